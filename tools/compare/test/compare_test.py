#!/usr/bin/env python3
"""Sweeps of chapters that are not there, and tables and pictures of timings that were made up for these tests."""

import ast
import contextlib
import io
import json
import os
import re
from pathlib import Path
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock
import xml.etree.ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parents[1]))

from compare import __main__ as command  # noqa: E402
from compare import against, groups, machine, peers, pictures, plan, programs, readme, store, sweep, tables, words  # noqa: E402
from compare.progress import Progress  # noqa: E402

MADE_UP = HERE / "data" / "made_up.json"
PROBLEM = {"B": 4, "H": 8, "Dk": 128, "Dv": 128, "seed": 1}


class Folder(unittest.TestCase):
    """Tests with a folder of their own, and chapters in it."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="compare_test_"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.build = self.folder / "build"
        for chapter in ("04_fused_chunk", "06_scan"):
            program = self.build / chapter / chapter[3:]
            program.parent.mkdir(parents=True)
            text = (HERE / "fake_chapter.py").read_text(encoding="utf-8").split("\n", 1)[1]
            program.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
            program.chmod(0o755)
        self.log = self.folder / "log"
        self.path = self.folder / "timings.json"

    def trouble(self, what: str = "", backend: str = "cuda"):
        return mock.patch.dict(os.environ, FAKE_LOG=str(self.log), FAKE_TROUBLE=what, FAKE_BACKEND=backend)

    def runs(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []

    def timings(self) -> store.Timings:
        return store.Timings(machine.describe(self.build), "2026-01-01T00:00:00", "abc", dict(PROBLEM))

    def sweep(self, trouble="", lengths=(32, 64), timings=None, timeout_s=20.0, minutes=10.0, **options):
        """A sweep of the first chapter; the timings and the report."""
        timings = timings or self.timings()
        jobs = plan.jobs(programs.load_all(self.build)[:1], lengths, **options)
        progress = Progress(1, len(jobs), io.StringIO())
        with self.trouble(trouble):
            report = sweep.Sweep(timings, self.path, timeout_s).run(jobs, minutes, progress)
        return timings, report

    def outcomes(self, timings, L=64) -> dict[str, str]:
        return {t["stage"]: t["outcome"] for t in timings if t["L"] == L}


class Sweeping(Folder):
    def test_all_stages_are_timed_in_a_process_a_length_and_place(self):
        timings, report = self.sweep()
        self.assertTrue(report.complete)
        self.assertEqual(len(self.runs()), 4)
        self.assertEqual(
            self.outcomes(timings), dict.fromkeys(("recurrent", "quadratic", "two_kernels", "fused", "blelloch"), "timed")
        )
        fused = timings.by_key["04_fused_chunk", "simple_gla", None, "fused", 64]
        self.assertEqual(fused["sizes"], {"B": 4, "H": 8, "L": 64, "Dk": 128, "Dv": 128, "scale": 1.0})
        self.assertEqual(set(fused["time_ms"]), {"median", "min", "max", "runs", "graph"})
        self.assertEqual(timings.machine["limits"]["copy_bandwidth_gb_s"], 4250)
        self.assertEqual(timings.machine["gpu"] or "NVIDIA H200", "NVIDIA H200")

    def test_what_a_stage_refuses_is_listed_with_its_reason(self):
        timings, report = self.sweep()
        self.assertTrue(report.complete)
        blelloch = timings.by_key["04_fused_chunk", "scan", None, "blelloch", 32]
        self.assertEqual((blelloch["outcome"], blelloch["reason"]), ("skipped", "L = 32 is too short"))
        self.assertIn("- 04 `scan` `blelloch`, L = 32: skipped, L = 32 is too short", tables.not_timed(timings))

    def test_what_a_sweep_has_not_reached_is_listed(self):
        timings, _ = self.sweep()
        self.assertNotIn("not run yet", tables.not_timed(timings))
        del timings.by_key["04_fused_chunk", "simple_gla", None, "quadratic", 64]
        self.assertIn("- 04 `simple_gla` `quadratic`, L = 64: not run yet", tables.not_timed(timings))

    def test_a_stage_that_crashes_is_found_and_the_rest_goes_on(self):
        timings, report = self.sweep("crash:fused@32")
        self.assertFalse(report.complete)
        self.assertEqual(report.failed, ["04_fused_chunk simple_gla fused at L=32: crashed with SIGSEGV"])
        self.assertEqual(
            self.outcomes(timings, 32),
            {"recurrent": "timed", "quadratic": "timed", "two_kernels": "timed", "fused": "crashed", "blelloch": "skipped"},
        )
        self.assertEqual(set(self.outcomes(timings).values()), {"timed"})
        self.assertIn("**crashed**", tables.report(timings, "x.json"))
        self.assertIn("SIGSEGV", store.load(self.path).text())

    def test_what_failed_is_tried_again(self):
        timings, _ = self.sweep("crash:fused@32")
        self.log.unlink()
        timings, report = self.sweep(timings=store.load(self.path))
        self.assertTrue(report.complete)
        self.assertEqual(len(self.runs()), 1)
        self.assertIn("--stage fused", self.runs()[0])
        self.assertEqual(self.outcomes(timings, 32)["fused"], "timed")

    def test_a_stage_that_is_wrong_fails_alone(self):
        timings, report = self.sweep("wrong:two_kernels", lengths=[64])
        self.assertEqual(report.failed, ["04_fused_chunk simple_gla two_kernels at L=64: an illegal memory access"])
        self.assertEqual(self.outcomes(timings)["two_kernels"], "failed")
        self.assertEqual(self.outcomes(timings)["fused"], "timed")

    def test_stages_that_another_made_fail_are_run_without_it(self):
        timings, report = self.sweep("poison:two_kernels", lengths=[64], cpu=False)
        self.assertEqual(len(report.failed), 1)
        self.assertEqual(self.outcomes(timings), {"two_kernels": "failed", "fused": "timed", "blelloch": "timed"})

    def test_a_stage_that_hangs_is_stopped(self):
        timings, report = self.sweep("hang:blelloch", lengths=[64], timeout_s=1.5, cpu=False)
        self.assertEqual(report.failed, ["04_fused_chunk scan blelloch at L=64: did not end within 1.5 s"])
        self.assertEqual(self.outcomes(timings), {"two_kernels": "timed", "fused": "timed", "blelloch": "crashed"})

    def test_a_stage_that_always_hangs_costs_its_time_once_and_comes_last_next_time(self):
        timings, report = self.sweep("hang:fused", lengths=[32, 64, 128], timeout_s=1.0, cpu=False)
        self.assertEqual(report.failed, ["04_fused_chunk simple_gla fused at L=32: did not end within 1 s"])
        for L in (64, 128):
            self.assertEqual(self.outcomes(timings, L), {"two_kernels": "timed", "fused": "crashed", "blelloch": "timed"})
        reason = timings.by_key["04_fused_chunk", "simple_gla", None, "fused", 128]["reason"]
        self.assertEqual(reason, "not tried, as it did not end at L = 32")
        self.log.unlink()
        timings, report = self.sweep("hang:fused", lengths=[32, 64, 128, 256], timeout_s=1.0, timings=timings, cpu=False)
        self.assertEqual(timings.by_key["04_fused_chunk", "simple_gla", None, "two_kernels", 256]["outcome"], "timed")
        self.assertIn("two_kernels", self.runs()[0], "what was not tried yet comes first")
        self.assertEqual(len(self.runs()), 2, "then the bad one, once")

    def test_a_hanging_stage_does_not_outlast_the_sweep(self):
        start = time.monotonic()
        timings, report = self.sweep("hang:two_kernels", lengths=[32], minutes=1.5 / 60, cpu=False)
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual((report.left_gpu, report.complete), (1, False))
        self.assertEqual(self.outcomes(timings, 32), {})

    def test_too_little_memory_is_no_failure(self):
        timings, report = self.sweep("memory:fused", lengths=[64])
        self.assertTrue(report.complete)
        self.assertEqual(
            timings.by_key["04_fused_chunk", "simple_gla", None, "fused", 64]["reason"],
            "fused needs 9 GB of GPU memory, 1 GB are free",
        )

    def test_slow_cpu_stages_are_skipped_at_long_lengths(self):
        timings, report = self.sweep(lengths=[512, 1024, 2048, 4096, 8192, 16384])
        self.assertTrue(report.complete)
        outcomes = {t["L"]: t["outcome"] for t in timings if t["stage"] == "quadratic"}  # 1e-4 L^2 ms: 1.7 s at 4096
        self.assertEqual(outcomes, {512: "timed", 1024: "timed", 2048: "timed", 4096: "skipped", 8192: "skipped", 16384: "skipped"})
        reason = timings.by_key["04_fused_chunk", "simple_gla", None, "quadratic", 4096]["reason"]
        self.assertEqual(reason, "about 1.7 s a run, going by L = 2048")
        self.assertEqual({t["outcome"] for t in timings if t["stage"] == "recurrent"}, {"timed"})

    def test_a_cpu_stage_of_which_nothing_is_known_is_not_run_long(self):
        timings, _ = self.sweep(lengths=[16384])
        self.assertEqual(self.outcomes(timings, 16384)["quadratic"], "skipped")
        self.assertEqual(self.outcomes(timings, 16384)["fused"], "timed")

    def test_variants_are_timed_where_they_are_asked_for(self):
        timings, _ = self.sweep(lengths=[64], variants=True)
        self.assertEqual(self.outcomes(timings)["narrow"], "timed")
        self.assertNotIn("narrow", self.outcomes(self.sweep(lengths=[64])[0]))

    def test_forms_are_processes_of_their_own(self):
        timings, _ = self.sweep(lengths=[64], forms=True)
        self.assertIn(("04_fused_chunk", "scan", "backward", "back", 64), timings.by_key)
        self.assertNotIn("back", self.outcomes(self.sweep(lengths=[64])[0]))

    def test_one_form_alone(self):
        timings, _ = self.sweep(lengths=[64], only_form="backward")
        self.assertEqual({timing["form"] for timing in timings}, {"backward"})
        self.assertEqual(command.only_form(timings), "backward")
        self.assertIsNone(command.only_form(store.load(MADE_UP)))

    def test_a_form_is_published_beside_the_rest(self):
        timings, _ = self.sweep(lengths=[64], only_form="backward")
        timings.machine["gpu"] = "NVIDIA H200"
        folder = self.folder / "published"
        text = "<!-- timings of scan --backward at 64: written by ./tutorial compare --publish -->\n<!-- end of timings -->\n"
        page = self.folder / "root/04_fused_chunk/scan/README.md"
        page.parent.mkdir(parents=True)
        page.write_text(text, encoding="utf-8")
        with mock.patch.multiple(command, PUBLISHED=folder, ROOT=self.folder / "root"), contextlib.redirect_stderr(io.StringIO()):
            command.publish(timings)
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["backward.md", "h200_form_backward.json"])
        written = page.read_text(encoding="utf-8")
        self.assertIn("| `back` | GPU |", written)
        self.assertIn("(../../docs/timings/backward.md)", written)

    def test_a_form_may_take_several_options(self):
        operator = programs.Operator("linear_attention", "backward+normalize", "", {}, ())
        self.assertEqual(operator.label, "linear_attention --backward --normalize")
        self.assertEqual(programs.options_of(operator.form), ["--backward", "--normalize"])
        self.assertEqual(programs.options_of(None), [])

    def test_no_process_starts_when_the_time_is_over(self):
        timings, report = self.sweep(minutes=0)
        self.assertEqual((report.left_gpu, report.left_cpu, report.complete), (2, 2, False))
        self.assertEqual(len(timings.by_key), 0)

    def test_a_full_sweep_of_all_chapters_is_planned_to_take_ten_minutes_at_most(self):
        def chapter(i, gpu, cpu, count):  # stages spread over operators
            stages = [programs.Stage(f"g{n}", "gpu", "bf16") for n in range(gpu)]
            stages += [programs.Stage(f"c{n}", "cpu", "fp64") for n in range(cpu)]
            parts = tuple(programs.Operator(f"o{n}", None, "", {}, tuple(stages[n::count])) for n in range(count))
            return programs.Program(f"0{i}_x", Path("x"), parts)

        main = [(ROOT / f / "main.cpp").read_text(encoding="utf-8") for f in sorted(groups.HEADLINES)]
        # A sweep leaves forms out: gradients, and several devices. Some chapters have functions of their own for
        # them; of the others, some stages are counted all the same.
        form = re.compile(r"^\w.*\b\w*(backward|over_devices)\w*\(.*\{$", re.MULTILINE)
        main = ["\n}\n".join(f for f in m.split("\n}\n") if not form.search(f)) for m in main]
        stages = [[s for s in m.split(".stage({")[1:] if "_backward" not in s.split("})")[0]] for m in main]
        gpu = [sum("Processor::gpu" in s.split("})")[0] for s in each) for each in stages]
        cpu = [len(each) - g for each, g in zip(stages, gpu)]
        added = [[line for line in m.splitlines() if "chapter.add(" in line] for m in main]
        operators = [sum("backward" not in x and "normalized" not in x for x in lines) for lines in added]
        chapters = [chapter(i, *counts) for i, counts in enumerate(zip(gpu, cpu, operators), 1)]
        seconds = sum(job.seconds() for job in plan.jobs(chapters, plan.LENGTHS))
        self.assertLess(seconds, 600)
        self.assertGreater(seconds, 100)


class Planning(unittest.TestCase):
    def names(self, **options) -> set[str]:
        """The stages that a sweep over an operator with variants would run."""
        stages = [programs.Stage(name, "gpu", "fp32", variant=name != "scan") for name in ("scan", "cub", "narrow")]
        operator = programs.Operator("scan", None, "", {}, tuple(stages))
        jobs = plan.jobs([programs.Program("06_scan", Path("scan"), (operator,))], [32], **options)
        return {stage.name for job in jobs for part in job.parts for stage in part.stages}

    def test_yardsticks_are_variants_that_every_sweep_runs(self):
        self.assertIn("cub", groups.YARDSTICKS)
        self.assertEqual(self.names(), {"scan", "cub"})
        self.assertEqual(self.names(variants=True), {"scan", "cub", "narrow"})


class Resuming(Folder):
    def run_command(self, *arguments) -> tuple[int, str]:
        text = io.StringIO()
        base = ["--build", str(self.build), "--backend", "cuda", "--results", str(self.path), "--commit", "abc"]
        with self.trouble(), contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            return command.main([*base, *arguments]), text.getvalue()

    def test_what_is_there_is_not_run_again(self):
        timings, _ = self.sweep(lengths=[32, 64, 128])
        self.assertEqual(len(self.runs()), 6)
        whole = {key: t["time_ms"] for key, t in timings.by_key.items()}
        kept = store.load(self.path)
        for key in [key for key in kept.by_key if key[-1] > 32]:
            del kept.by_key[key]
        kept.save(self.path)
        self.log.unlink()
        timings, report = self.sweep(lengths=[32, 64, 128], timings=store.load(self.path))
        self.assertTrue(report.complete)
        self.assertEqual(len(self.runs()), 4)
        self.assertEqual({key: t["time_ms"] for key, t in timings.by_key.items()}, whole)

    def test_a_killed_sweep_leaves_a_whole_file_and_goes_on(self):
        base = [sys.executable, "-m", "compare", "--build", self.build, "--backend", "cuda", "--results", self.path]
        base += ["--commit", "abc", "--lengths", "32,64", "4"]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "FAKE_LOG": str(self.log)}
        process = subprocess.Popen(
            base, env={**environment, "FAKE_TROUBLE": "hang:fused@64"}, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 30
        while len(self.runs()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=20)[1]
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("interrupted; the same command goes on from here", errors)
        self.assertEqual({key[-1] for key in store.load(self.path).by_key}, {32})
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["build", "log", "timings.json"])
        self.log.unlink()
        done = subprocess.run(base, env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("timings.json has 1 of 4 processes' timings already", done.stderr)
        self.assertEqual(len(self.runs()), 3)
        self.assertEqual(len(store.load(self.path).by_key), 10)

    def test_timings_of_another_commit_or_problem_are_put_aside(self):
        self.run_command("--lengths", "64", "--no-cpu", "4")
        status, text = self.run_command("--lengths", "64", "--no-cpu", "-B", "2", "4")
        self.assertEqual(status, 0, text)
        self.assertIn("is of another machine, commit or problem: it is now", text)
        self.assertEqual(len(list(self.folder.glob("timings-*.json"))), 1)
        self.assertEqual(store.load(self.path).problem["B"], 2)

    def test_timings_of_another_problem_are_found_before_the_sweep(self):
        status, text = self.run_command("--lengths", "64", "-B", "2", "--against", str(MADE_UP), "4")
        self.assertEqual(status, 2, text)
        self.assertIn("the timings are of {'B': 2,", text)
        self.assertEqual(self.runs(), [])

    def test_timings_that_lack_a_chapter_are_not_published(self):
        with mock.patch.object(command, "PUBLISHED", self.folder / "published"):
            with self.assertRaisesRegex(command.UsageError, "the last stage of 01_linear_attention, .* has no time"):
                command.publish(store.load(MADE_UP))
        self.assertFalse((self.folder / "published").exists())

    def test_status_1_when_a_stage_failed(self):
        with mock.patch.dict(os.environ, FAKE_TROUBLE="crash:fused"):
            base = ["--build", str(self.build), "--backend", "cuda", "--results", str(self.path), "--lengths", "64", "4"]
            with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(command.main(base), 1)
        self.assertIn("failed: 04_fused_chunk simple_gla fused at L=64: crashed with SIGSEGV", text.getvalue())

    def test_pages_and_pictures_are_beside_the_file(self):
        status, text = self.run_command("--lengths", "2048,4096,16384", "--minutes", "20")
        self.assertEqual(status, 0, text)
        self.assertIn("Simple GLA", (self.folder / "timings.md").read_text(encoding="utf-8"))
        self.assertTrue((self.folder / "staircase_04_fused_chunk.svg").exists())


class Refusing(Folder):
    def run_command(self, *arguments) -> tuple[int, str]:
        with contextlib.redirect_stderr(io.StringIO()) as text, contextlib.redirect_stdout(io.StringIO()):
            return command.main([*arguments]), text.getvalue()

    def test_the_emulator_has_no_times(self):
        status, text = self.run_command("--build", str(self.build), "--backend", "emulator")
        self.assertEqual(status, 2)
        self.assertIn("an emulator build: its times are not a GPU's", text)
        self.assertIn("--counts", text)

    def test_bad_usage_is_one_line(self):
        self.path.write_text('{"format": 1}', encoding="utf-8")
        for arguments, message in (
            (["--lengths", "32,x"], "--lengths: '32,x'"),
            (["--lengths", "0"], "--lengths: '0'"),
            (["9"], "there is no chapter '9'; the chapters are: 04_fused_chunk 06_scan"),
            (["--against", str(self.folder / "none.json")], "none.json: No such file"),
            (["--against", str(self.path)], "holds no timings"),
            (["--counts"], "the emulator counts"),
            (["--cpu", "--no-cpu"], "choose one"),
            (["a\nb"], "there is no chapter 'a\\nb'"),
            (["--minutes", "nan"], "--minutes: invalid minutes value: 'nan'"),
            (["--minutes", "-1"], "--minutes"),
            (["--minutes", "inf"], "--minutes"),
            (["-B", "x"], "-B/--batch: invalid whole value: 'x'"),
            (["--nonsense"], "--nonsense"),
            (["--counts", "--against", str(MADE_UP)], "--counts has no use for --against"),
            (["--counts", "--publish"], "--counts has no use for --publish"),
            (["--counts", "--results", "r.json"], "--counts has no use for --results"),
            (["--counts", "--cpu"], "--counts has no use for --cpu"),
            (["--counts", "--minutes", "1"], "--counts has no use for --minutes"),
            (["--counts", "--forms"], "--counts has no use for --forms"),
            (["--counts", "--only-form", "backward"], "--counts has no use for --only-form"),
            (["--forms", "--only-form", "backward"], "--forms and --only-form: choose one"),
            (["--only-form", "sideways"], "--only-form: there is no form 'sideways'; the forms are: backward"),
            (["--counts", "--variants"], "--counts has no use for --variants"),
            (["--render", str(MADE_UP), "--counts"], "--render has no use for --counts"),
            (["--render", str(MADE_UP), "4"], "--render has no use for a chapter"),
            (["--render", str(MADE_UP), "--lengths", "64"], "--render has no use for --lengths"),
            (["--render", str(MADE_UP), "--results", "r.json"], "--render has no use for --results"),
            (["--cpu", "--publish"], "--publish: with --cpu the timings are not a GPU's"),
        ):
            base = ["--build", str(self.build), "--backend", "cuda"]
            status, text = self.run_command(*base, *arguments)
            self.assertEqual(status, 2, arguments)
            self.assertIn(message, text)
            self.assertEqual(text.count("\n"), 1, text)

    def test_the_script_asks_before_it_installs_or_builds(self):
        for arguments, message in (
            (["nope"], "there is no chapter 'nope'; the chapters are: 01_linear_attention"),
            (["--render", str(MADE_UP), "--cpu"], "--render has no use for --cpu"),
            (["--counts", "--publish"], "--counts has no use for --publish"),
        ):
            status, text = self.run_command("--parse-only", *arguments)
            self.assertEqual((status, text.count("\n")), (2, 1), text)
            self.assertIn(message, text)
        with mock.patch.object(command, "show") as show:
            self.assertEqual(self.run_command("--parse-only", "--render", str(MADE_UP)), (0, ""))
        show.assert_not_called()

    def test_a_sweep_that_timed_nothing_fails(self):
        base = ["--build", str(self.build), "--backend", "cuda", "--results", str(self.path), "--commit", "abc"]
        with self.trouble("memory:blelloch"), mock.patch.object(command, "show"):
            status, text = self.run_command(*base, "--no-cpu", "--lengths", "32", "6")
        self.assertEqual(status, 0, text)
        self.path.unlink()
        with self.trouble("memory:two_kernels"), mock.patch.object(plan, "jobs", return_value=[]):
            status, text = self.run_command(*base, "--no-cpu", "--lengths", "32", "6")
        self.assertEqual((status, text), (1, "tutorial: nothing was timed\n"))

    def test_results_that_nobody_gets_are_an_error(self):
        environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
        for tool, arguments in (("compare", "--help"), ("stages", ""), ("stages", "--help"), ("stages", "01_linear_attention")):
            for closed in (">/dev/full", ">&-"):
                call = f"'{sys.executable}' -P -m {tool} {arguments} {closed}"
                done = subprocess.run(call, shell=True, env=environment, capture_output=True, text=True, check=False)
                with self.subTest(call=call):
                    self.assertEqual(
                        (done.returncode, done.stderr), (2, "tutorial: standard output could not be written\n")
                    )

    def test_counts_come_from_the_emulator(self):
        with self.trouble(backend="emulator"), mock.patch.object(command, "RESULTS", self.folder):
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                status = command.main(["--build", str(self.build), "--backend", "emulator", "--counts", "--lengths", "64"])
        self.assertEqual(status, 0)
        self.assertIn("## 04_fused_chunk simple_gla at L = 64", out.getvalue())
        self.assertIn("| `fused` | 64 | 64 | 64 | 64 | 64 | 64 | 64 | 0.02x | 640 | 0 | 0 |", out.getvalue())
        self.assertNotIn("recurrent", out.getvalue())
        self.assertEqual(len(json.loads((self.folder / "counts.json").read_text())["counts"]), 6)


class Tables(unittest.TestCase):
    def setUp(self):
        self.timings = store.load(MADE_UP)

    def test_figures_have_three_digits(self):
        self.assertEqual(
            [tables.figure(x) for x in (0.0068, 0.0123, 0.1234, 1.234, 12.34, 123.4, 1234.5, None)],
            ["0.0068", "0.0123", "0.123", "1.23", "12.3", "123", "1234", ""],
        )

    def test_the_published_tables_are_among_them(self):
        text = tables.report(self.timings, "made_up.json")
        self.assertIn("| L | chunkwise | fused | scan |\n| --- | ---: | ---: | ---: |\n| 32 | 0.0640 | 0.0320 | **0.0100** |", text)
        self.assertIn("| L | chunkwise | scan |\n| --- | ---: | ---: |\n| 32 | 0.0300 | **0.0100** |", text)

    def test_dispatch_is_held_against_what_it_could_have_chosen(self):
        delta = dict(self.timings.by_key["05_deltanet_wy", "delta_rule", None, "dispatch", 512])
        for stage, ms in (("cluster", 0.05), ("slow", 0.08)):
            self.timings.add({**delta, "stage": stage, "step": [1, 2], "variant": True, "time_ms": {**delta["time_ms"], "graph": ms}})
        text = tables.choices(self.timings, [32, 512])
        self.assertEqual(text.splitlines()[2:], ["| 05 `delta_rule` |  | **1.08** `cluster` |"])
        self.assertIn(text.splitlines()[2][:50], tables.report(self.timings, "made_up.json"))
        self.timings.add({**delta, "stage": "cluster", "step": [1, 0], "time_ms": {**delta["time_ms"], "graph": 0.053}})
        self.assertIn("| 1.02 |", tables.choices(self.timings, [32, 512]))

    def test_text_is_kept_from_breaking_a_table(self):
        self.assertEqual(tables.table(["a", "b"], [["x|y", "1"]]).splitlines()[-1], "| x\\|y | 1 |")

    def test_crossovers_are_where_straight_lines_meet(self):
        series = {"a": {32: 1.0, 128: 2.0}, "b": {32: 0.5, 128: 4.0}}
        (c,) = groups.crossovers(series)
        self.assertEqual((c.before, c.after), ("b", "a"))
        self.assertAlmostEqual(c.L, 64, places=6)
        self.assertAlmostEqual(c.ms, 2**0.5, places=6)
        self.assertEqual(groups.crossovers({"a": {32: 1.0, 64: 2.0}, "b": {32: 2.0, 64: 3.0}}), [])
        self.assertEqual(groups.crossovers({"a": {32: 1.0}}), [])

    def test_every_stage_of_an_algorithm_is_in_its_chapter(self):
        for title, rows in groups.ALGORITHMS.items():
            for _, chapter, _, stage in rows:
                main = (ROOT / chapter / "main.cpp").read_text(encoding="utf-8")
                self.assertIn(f'.name = "{stage}"', main, title)


class Pictures(unittest.TestCase):
    def setUp(self):
        self.timings = store.load(MADE_UP)
        self.drawn = pictures.draw(self.timings)

    def test_there_is_a_staircase_a_chapter_a_picture_an_operator_and_the_limit(self):
        self.assertEqual(
            sorted(self.drawn),
            ["length_deltanet.svg", "length_simple_gla.svg", "limit.svg", "staircase_04_fused_chunk.svg",
             "staircase_05_deltanet_wy.svg", "staircase_06_scan.svg"],
        )  # fmt: skip

    def test_they_are_svg_with_text_a_title_and_no_background(self):
        for name, (text, words) in self.drawn.items():
            root = xml.etree.ElementTree.fromstring(text)
            space = "{http://www.w3.org/2000/svg}"
            self.assertTrue(root.findtext(f"{space}title"), name)
            self.assertEqual(root.findtext(f"{space}desc"), words)
            self.assertGreater(len(list(root.iter(f"{space}text"))), 5, name)
            self.assertNotIn("#ffffff", text, name)
            self.assertNotIn("#000000", text, name)

    def test_crossovers_and_stages_are_named(self):
        self.assertIn("L ≈ 2048", self.drawn["length_simple_gla.svg"][0])
        self.assertIn("from L = 2048 on fused is faster than scan", self.drawn["length_simple_gla.svg"][1])
        self.assertIn("two_kernels", self.drawn["staircase_04_fused_chunk.svg"][0])

    def test_a_staircase_of_other_lengths_takes_the_longest_two(self):
        self.assertEqual(pictures.stairs_of(self.timings), (2048, 16384))
        for key in [key for key in self.timings.by_key if key[-1] == 16384]:
            del self.timings.by_key[key]
        self.assertEqual(pictures.stairs_of(self.timings), (512, 2048))
        self.assertIn("L = 512", pictures.draw(self.timings)["staircase_04_fused_chunk.svg"][0])

    def test_the_same_timings_give_the_same_file(self):
        self.assertEqual(self.drawn, pictures.draw(store.load(MADE_UP)))


class Against(unittest.TestCase):
    def test_ratios_are_here_over_there(self):
        ours, theirs = store.load(MADE_UP), store.load(MADE_UP)
        for timing in ours:
            if timing["time_ms"]:
                timing["time_ms"] = {k: 2 * v if k != "runs" and v else v for k, v in timing["time_ms"].items()}
        found = against.ratios(ours, theirs)
        self.assertEqual({round(ratio, 9) for ratio in found.values()}, {2.0})
        text = against.report(ours, theirs, "made_up.json")
        self.assertIn("ratio 2.00 in the geometric mean, 2.00 to 2.00", text)
        self.assertIn("| `copy_bandwidth_gb_s` | 4250 | 4250 | 1.00 |", text)

    def test_other_sizes_are_not_compared(self):
        ours, theirs = store.load(MADE_UP), store.load(MADE_UP)
        ours.problem["B"] = 1
        with self.assertRaises(against.AgainstError):
            against.report(ours, theirs, "x")
        ours = store.load(MADE_UP)
        ours.by_key.clear()
        with self.assertRaises(against.AgainstError):
            against.report(ours, theirs, "x")


class Readme(unittest.TestCase):
    TEXT = (
        f"# T\n\n{readme.BEGIN}\n\n| chapter | teaches | old |\n| --- | --- | --- |\n"
        "| [04 Fused](04_fused_chunk/README.md) | fusing | old |\n| [01 A](01_linear_attention/README.md) | a | old |\n\n"
        f"{readme.END}\n\n| [04 Fused](04_fused_chunk/README.md) | outside | stays |\n"
    )

    def test_the_last_column_is_written_and_the_rest_stays(self):
        text = readme.updated(self.TEXT, store.load(MADE_UP))
        self.assertIn("| chapter | teaches | its fastest kernel, on an H200 |", text)
        self.assertIn("| [04 Fused](04_fused_chunk/README.md) | fusing | 3.28 ms: 19 % of the limit |", text)
        self.assertIn("for 4 sequences of 8 heads and 16384 positions, 128 wide;", text)
        self.assertIn("| a | not measured |", text)
        self.assertIn("| outside | stays |", text)
        self.assertEqual(readme.updated(text, store.load(MADE_UP)), text)

    def test_wins_and_losses_against_the_fastest_peer_that_agrees(self):
        def row(ratio, agrees=True):
            return {"operator": "simple_gla", "form": None, "problem": {"L": 16384}, "graph_ratio": ratio, "agrees": agrees}

        def cell(*rows):
            return readme.updated(self.TEXT, store.load(MADE_UP), {"comparisons": rows})

        def said(*rows):
            empty = "a\n" + "\nold\n".join(readme.RATIOS) + "\nz\n"
            text = readme.ratios_updated(empty, store.load(MADE_UP), {"comparisons": rows})
            self.assertEqual(readme.ratios_updated(text, store.load(MADE_UP), {"comparisons": rows}), text)
            return " ".join(text.split())

        self.assertIn("19 % of the limit, 1.6 times as fast as flash-linear-attention |", cell(row(3.0), row(1.6)))
        self.assertIn("19 % of the limit, takes 2 times as long as flash-linear-attention |", cell(row(1.6), row(0.5)))
        self.assertNotIn("flash", cell(row(0.5, agrees=False)))
        self.assertIn("faster one at none of the lengths compared (16384).", said(row(1.6)))
        lost = said(row(1.6), {**row(0.5), "problem": {"L": 512}}, {**row(0.8), "problem": {"L": 1024}})
        self.assertIn("brackets: `simple_gla` at L = 512 (2), 1024 (1.25). " + readme.RATIOS[1], lost)
        self.assertNotIn("old", lost)
        self.assertIn("Not compared yet.", said())

    def test_the_limit_of_a_graph_is_without_states(self):
        timing = {
            "operator": "gla", "form": None, "dtype": "bf16", "limit_ms": 4.0, "bytes": 4 * 8 * 2 * 3 * 16 * 32,
            "sizes": {"B": 2, "H": 3, "Dk": 16, "Dv": 32}, "outcome": "timed", "time_ms": {"graph": 6.0, "median": 7.0},
        }  # fmt: skip
        self.assertEqual(store.limit_ms(timing), 3.0)
        self.assertEqual(store.limit_share(timing), 0.5)
        self.assertEqual(store.limit_ms({**timing, "time_ms": {"graph": None, "median": 7.0}}), 4.0)
        self.assertEqual(store.limit_ms({**timing, "dtype": "fp32"}), 4.0)
        self.assertEqual(store.limit_ms({**timing, "operator": "causal_dot_product"}), 4.0)

    def test_older_pairs_are_compared_with_the_times_that_the_table_shows(self):
        timings = store.load(MADE_UP)
        ours = store.best_ms(groups.find(timings, "04_fused_chunk", "simple_gla").stages["fused"][16384])
        row = {
            "operator": "simple_gla", "form": None, "chapter": "04_fused_chunk", "stage": "fused", "graph_ratio": 1.6,
            "problem": {"B": 4, "H": 8, "Dk": 128, "Dv": 128, "L": 16384}, "agrees": True, "theirs": {"graph": 3 * ours},
        }  # fmt: skip
        older = {"date": "2026-01-02", "commit": "older", "comparisons": [row]}
        key = ("simple_gla", 16384)
        self.assertAlmostEqual(peers.ratios(older, timings)[key], 3)
        self.assertEqual(peers.ratios({**older, "commit": timings.commit}, timings)[key], 1.6)
        self.assertEqual(peers.ratios({**older, "comparisons": [{**row, "stage": "gone"}]}, timings)[key], 1.6)
        self.assertIn(" 3 times as fast as flash-linear-attention", readme.updated(self.TEXT, timings, older))
        text = " ".join(readme.ratios_updated("\n".join(readme.RATIOS), timings, older).split())
        self.assertIn("Its times are of 2026-01-02, ours of", text)

    def test_other_libraries_have_rows_and_a_sentence_of_their_own(self):
        def row(peer, ratio):
            return {
                "operator": "simple_gla", "form": None, "chapter": "04_fused_chunk", "stage": "fused", "peer": peer,
                "problem": {"L": 512}, "graph_ratio": ratio, "agrees": True, "theirs": {"graph": ratio},
            }  # fmt: skip

        timings = store.load(MADE_UP)
        rows = [row("chunk_simple_gla", 2.0), row("flashinfer.simple", 0.5)]
        compared = {"date": "2026-01-01", "commit": timings.commit, "comparisons": rows}
        self.assertEqual(peers.libraries(compared), ["flash-linear-attention", "FlashInfer"])
        self.assertEqual(peers.ratios(compared), {("simple_gla", 512): 2.0})
        text = " ".join(readme.ratios_updated("\n".join(readme.RATIOS), timings, compared).split())
        self.assertIn("FlashInfer, compared for `simple_gla`, is faster for `simple_gla` at L = 512 (2).", text)
        self.assertIn("04 `simple_gla`, FlashInfer | 0.50 |", peers.summary(compared))
        table = readme.chapter_table(timings, "04_fused_chunk", "simple_gla", (512,), compared)
        self.assertIn("| flash-linear-attention | GPU | bf16 | 2.00 |", table)
        self.assertIn("| FlashInfer | GPU | bf16 | 0.500 |", table)

    def test_a_chapters_table_is_written_between_its_comments(self):
        begin = "<!-- timings of simple_gla{}: written by ./tutorial compare --publish -->\n"
        text = f"a\n\n{begin.format('')}old\n<!-- end of timings -->\n\n{begin.format(' at 512, 16384')}<!-- end of timings -->\nz\n"
        written = readme.chapter_updated(text, "04_fused_chunk", [store.load(MADE_UP)])
        self.assertNotIn("old", written)
        self.assertIn("| stage | on | type | L = 128 | L = 512 | L = 2048 | L = 16384 | of the limit, 2048 | of the limit, 16384 |", written)
        self.assertIn("| stage | on | type | L = 512 | L = 16384 | of the limit, 16384 |", written)
        self.assertIn("| `fused` | GPU | bf16 |", written)
        self.assertTrue(written.startswith("a\n") and written.endswith("z\n"))
        self.assertEqual(readme.chapter_updated(written, "04_fused_chunk", [store.load(MADE_UP)]), written)
        self.assertIn("Not measured yet.", readme.chapter_updated(text, "03_gla", [store.load(MADE_UP)]))

    def test_a_chapters_table_says_the_sizes_of_its_operator(self):
        timings = store.load(MADE_UP)

        def note(**sizes) -> str:
            for timing in timings:
                if (timing["chapter"], timing["operator"]) == ("06_scan", "simple_gla"):
                    timing["sizes"] = {"L": timing["L"], **sizes}
            return " ".join(readme.chapter_table(timings, "06_scan", "simple_gla", (512,), None).split())

        self.assertIn("; B=4, H=8, Dk=Dv=128; milliseconds", note(B=4, H=8, Dk=128, Dv=128))
        self.assertIn("; B=2, H=3, D=64; milliseconds", note(B=2, H=3, D=64, Dg=1, scale=1.0))
        self.assertIn("; B=2, D=64; milliseconds", note(B=2, D=64), "the operator has no heads")
        self.assertIn("; B=4, H=8, Dk=Dv=128; milliseconds", note(), "nothing was timed")

    def test_the_staircase_is_written_between_its_comments(self):
        text = self.TEXT + "\n".join(readme.STAIRCASE) + "\n"
        self.assertEqual(readme.updated(text, store.load(MADE_UP)).count("first_to_last"), 0, "its stages were not timed")
        published = store.load(ROOT / "docs" / "timings" / "h200.json")
        written = readme.updated(text, published)
        self.assertEqual(written.count("(docs/timings/first_to_last.svg)"), 1)
        self.assertEqual(readme.updated(written, published), written)

    def test_without_markers_there_is_nothing_to_write(self):
        with self.assertRaises(readme.ReadmeError):
            readme.updated("# T\n", store.load(MADE_UP))


class Translated(unittest.TestCase):
    """Tables and notes on Chinese pages."""

    def test_the_dictionary_has_what_is_said_and_nothing_else(self):
        tree = ast.parse(Path(readme.__file__).read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "words"]
        said = {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
        constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        self.assertGreater(len(said), 20)
        self.assertEqual(said - set(words.CHINESE.dictionary), set())
        self.assertEqual(set(words.CHINESE.dictionary) - constants, set())
        for english, chinese in words.CHINESE.dictionary.items():
            self.assertEqual(set(re.findall(r"\{\w+\}", english)), set(re.findall(r"\{\w+\}", chinese)), english)

    def test_the_same_markers_have_the_same_figures(self):
        timings = store.load(MADE_UP)
        begin = "<!-- timings of simple_gla: written by ./tutorial compare --publish -->\n"
        page = f"# 题\n\n{begin}<!-- end of timings -->\n"
        english = readme.chapter_updated(page, "04_fused_chunk", [timings])
        written = readme.chapter_updated(page, "04_fused_chunk", [timings], words=words.CHINESE)
        self.assertEqual(re.findall(r"\d+\.\d+", written), re.findall(r"\d+\.\d+", english))
        self.assertIn("| 阶段 | 设备 | 类型 | L = 128 | L = 512 | L = 2048 | L = 16384 | 占极限，2048 | 占极限，16384 |", written)
        self.assertRegex(written, r"(?m)^（.*。）$")  # a note of one line
        self.assertEqual(readme.chapter_updated(written, "04_fused_chunk", [timings], words=words.CHINESE), written)

    def test_the_front_page(self):
        text = Readme.TEXT.replace("| chapter |", "| 章 |").replace("01_linear_attention/README.md", "01_linear_attention/README.zh.md")
        written = readme.updated(text, store.load(MADE_UP), words=words.CHINESE)
        self.assertIn("| 章 | teaches | 本章最快的核函数（H200） |", written)
        self.assertIn("| [04 Fused](04_fused_chunk/README.md) | fusing | 3.28 ms：极限的 19 % |", written)
        self.assertIn("(01_linear_attention/README.zh.md) | a | 未测量 |", written)

    def test_translations_are_written_beside_the_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "docs").mkdir()
            for name in ("README.md", "README.zh.md"):
                (root / name).write_text(Readme.TEXT, encoding="utf-8")
            (root / "docs/running.md").write_text("\n".join(readme.RATIOS), encoding="utf-8")
            readme.update(root, store.load(MADE_UP))
            self.assertIn("19 % of the limit", (root / "README.md").read_text(encoding="utf-8"))
            self.assertIn("极限的 19 %", (root / "README.zh.md").read_text(encoding="utf-8"))


class Published(unittest.TestCase):
    """What is in the repository agrees with the timings in it."""

    PATH = ROOT / "docs" / "timings" / "h200.json"

    def test_the_readme_has_its_markers(self):
        readme.block_of((ROOT / "README.md").read_text(encoding="utf-8"))

    def test_the_readme_agrees_with_the_timings(self):
        for path in ROOT.glob("README*.md"):
            text = path.read_text(encoding="utf-8")
            written = readme.updated(text, store.load(self.PATH), command.comparison("h200"), words.words_of(path))
            self.assertEqual(written, text, path)

    def test_the_page_on_running_agrees_with_the_timings(self):
        for path in (ROOT / "docs").glob("running*.md"):
            text = path.read_text(encoding="utf-8")
            written = readme.ratios_updated(text, store.load(self.PATH), command.comparison("h200"), words.words_of(path))
            self.assertEqual(written, text, path)

    def test_the_chapters_agree_with_the_timings(self):
        published = command.published("h200")
        for path, chapter, depth in readme.pages(ROOT):
            text = path.read_text(encoding="utf-8")
            tables_of_it = readme.CHAPTER.findall(text)
            if depth == 1:
                self.assertTrue(tables_of_it, f"{path} has no table of timings")
            self.assertEqual(text.count("<!-- timings of "), len(tables_of_it), f"{path}: a comment is misspelt")
            said = words.words_of(path)
            written = readme.chapter_updated(text, chapter, published, command.comparison("h200"), depth, said)
            self.assertEqual(written, text, f"run ./tutorial compare --render {self.PATH} --publish")
            self.assertNotIn(said("Not measured yet."), text, path)

    def test_the_runs_agree_with_what_was_written_down(self):
        runs = readme.load_runs(ROOT / "docs/timings/runs.toml")
        used = set()
        for path, *_ in readme.pages(ROOT):
            text = path.read_text(encoding="utf-8")
            self.assertEqual(text.count("<!-- runs of "), len(readme.RUNS.findall(text)), f"{path}: a comment is misspelt")
            self.assertEqual(readme.runs_updated(text, runs), text, "run ./tutorial compare --publish")
            used |= {found["name"] for found in readme.RUNS.finditer(text)}
        self.assertEqual(used, set(runs))
        for name, run in runs.items():
            self.assertRegex(run["date"], r"^\d{4}-\d\d-\d\d$", name)
            self.assertTrue(run["gpu"] and all(len(row) == len(run["columns"]) for row in run["rows"]), name)

    def test_the_page_of_the_timings_agrees_with_them(self):
        timings = store.load(self.PATH)
        named = [(name, words) for name, (_, words) in pictures.draw(timings).items()]
        page = (self.PATH.parent / "README.md").read_text(encoding="utf-8")
        compared = command.comparison("h200")
        against_peers = peers.report(compared, timings) if compared else ""
        self.assertEqual(tables.report(timings, "h200.json", named, against_peers, forms=command.published_forms()), page)
        for name, _ in named:
            self.assertTrue((self.PATH.parent / name).exists(), name)

    def test_every_gpu_stage_is_there(self):
        timings = store.load(self.PATH)
        self.assertEqual({t["chapter"] for t in timings}, set(groups.HEADLINES))
        self.assertEqual({L for L in timings.lengths()}, set(plan.LENGTHS))


class Progressing(unittest.TestCase):
    def test_the_rest_is_estimated_from_what_was_done(self):
        now = [0.0]
        text = io.StringIO()
        progress = Progress(600, 3, text, lambda: now[0])
        self.assertAlmostEqual(progress.remaining(), 600)
        progress.begin("a")
        now[0] = 400
        progress.end(200)
        self.assertGreater(progress.remaining(), 700)  # twice as slow as planned
        self.assertLess(progress.remaining(), 800)
        progress.begin("b")
        self.assertIn("[2/3] b  6:40 gone, about ", text.getvalue())


class Files(unittest.TestCase):
    def test_what_is_written_is_read(self):
        timings = store.load(MADE_UP)
        self.assertEqual(json.loads(timings.text()), json.loads(MADE_UP.read_text(encoding="utf-8")))

    def test_other_files_are_refused_in_a_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.json"
            deep = "[" * 100000
            for text in ("", "[]", "{}", '{"format": 9}', '{"format": 1, "timings": [1]}', deep, '{"format": ' + deep):
                path.write_text(text, encoding="utf-8")
                with self.assertRaises(store.StoreError) as caught:
                    store.load(path)
                self.assertNotIn("\n", str(caught.exception))

    def test_every_member_of_a_file_is_checked(self):
        """What is accepted with a member changed or missing can also be shown."""
        whole = json.loads(MADE_UP.read_text(encoding="utf-8"))
        whole["timings"] = [t for t in whole["timings"] if t["L"] == 2048]

        def places(value, path=()):
            yield path
            if isinstance(value, dict):
                for name in value:
                    yield from places(value[name], (*path, name))
            elif isinstance(value, list) and value:
                yield from places(value[0], (*path, 0))

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.json"
            refused = 0
            for place in list(places(whole))[1:]:
                for junk in (None, "x", -1, 1e308, [], {}, "missing"):
                    data = json.loads(json.dumps(whole))
                    parent = data
                    for name in place[:-1]:
                        parent = parent[name]
                    if junk == "missing":
                        del parent[place[-1]]
                    else:
                        parent[place[-1]] = junk
                    path.write_text(json.dumps(data), encoding="utf-8")
                    try:
                        timings = store.load(path)
                    except store.StoreError:
                        refused += 1
                        continue
                    with self.subTest(place=place, junk=junk):
                        tables.report(timings, "x.json")
            self.assertGreater(refused, 100)


if __name__ == "__main__":
    unittest.main()
