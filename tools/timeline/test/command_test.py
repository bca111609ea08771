#!/usr/bin/env python3
"""`./tutorial trace` and `./tutorial exercise --trace` from end to end, in the emulator: command_test.py BUILD [unittest's
options]. And wrong uses, in a line with status 2."""

import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from timeline import published, trace  # noqa: E402
from timeline.barriers import ARRIVALS, COPIES, Barriers  # noqa: E402
from timeline.places import ROOT  # noqa: E402

BUILD = Path()


def tutorial(*arguments: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("EMULATOR_", "LC_"))}
    return subprocess.run(
        [ROOT / "tutorial", *arguments], capture_output=True, text=True, check=False, env=environment | {"LANG": "C"}, cwd=ROOT
    )


BAD_USES = [
    (["trace"], "a chapter and a stage are needed"),
    (["trace", "2"], "a chapter and a stage are needed"),
    (["trace", "9", "fused"], "there is no chapter '9'"),
    (["trace", "2", "fused", "pipelined"], "unrecognized arguments: pipelined"),
    (["trace", "2", "fused", "--chunks", "0"], "'0' is no whole number from 1 on"),
    (["trace", "2", "fused", "--blocks", "x"], "'x' is no whole number from 1 on"),
    (["trace", "2", "fused", "--", "--stage", "pipelined"], "--stage is not an option to give after --"),
    (["trace", "2", "fused", "--", "--timeline=x"], "--timeline is not an option to give after --"),
    (["trace", "--render", "/nowhere/x.json"], "/nowhere/x.json: No such file"),
    (["trace", "--render", "README.md"], "README.md: the name of a trace ends with .json"),
    (["trace", "--render", "CMakePresets.json"], "CMakePresets.json: it is no trace"),
    (["trace", "2", "fused", "--render", "x.json"], "--render stands alone"),
    (["trace", "2", "fused", "--publish"], "--publish stands alone"),
    (["exercise", "--trace"], "--trace needs the number of an exercise"),
    (["exercise", "2.8", "--hint", "--trace"], "--trace is of a check"),
]


class BadUseTest(unittest.TestCase):
    def test_each_gives_one_line(self):
        for arguments, answer in BAD_USES:
            with self.subTest(arguments):
                done = tutorial(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(answer, done.stderr)

    def test_of_a_chapter(self):
        program = BUILD / "02_chunkwise/chunkwise"
        file = "/tmp/never_written.json"
        for arguments, answer in [
            (["--timeline", file], "one stage at a time"),
            (["--timeline", file, "--operator", "linear_attention", "--stage", "fused,pipelined"], "one stage at a time"),
            (["--timeline", file, "--operator", "linear_attention", "--stage", "chunkwise"], "linear_attention/chunkwise has no kernel"),
            (["--timeline", "/nowhere/x", "--operator", "linear_attention", "--stage", "fused"], "cannot write /nowhere/x"),
            (["--timeline-blocks", "3", "--operator", "linear_attention", "--stage", "fused"], "there is no --timeline"),
            (["--timeline", file, "--operator", "linear_attention", "--stage", "fused", "--timeline-blocks", "0"], "not between 1 and 4096"),
        ]:
            with self.subTest(arguments):
                done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(answer, done.stderr)
                self.assertFalse(Path(file).exists())


def as_of_a_gpu(data: dict) -> dict:
    """A trace of the emulator without what a GPU does not tell: when copies arrive, and phases beyond the parity of waits."""
    blocks = []
    for block in data["blocks"]:
        events = []
        for warp, kind, place, begin, end, barrier, phase, value, peer in block["events"]:
            if kind in ("product", "start", "end", "fence_products"):
                continue
            known = phase % 2 if kind == "wait" else -1
            events.append([warp, kind, place, begin, begin if kind in COPIES else end, barrier, known, value, peer])
        blocks.append(block | {"events": events})
    return data | {"clock": "multiprocessor", "clock_ghz": 2.0, "blocks": blocks}


def phases_and_causes(data: dict) -> tuple[dict, dict]:
    """Of each event at a barrier the phase, and of each wait who ended it; by what tells events apart."""
    one = trace.read(data)
    launch = one.launches[-1]
    found = Barriers(launch, one.is_logical)

    def key(event):
        return event.block.index, event.warp, event.kind, event.place, event.begin, event.object, event.peer

    events = [event for block in launch.blocks for event in block.events if event.kind in ("wait", *ARRIVALS, *COPIES)]
    return ({key(event): event.phase for event in events},
            {key(wait): key(cause) for wait, cause in found.cause.items() if wait.kind == "wait"})  # fmt: skip


class PhaseTest(unittest.TestCase):
    """The emulator knows what the tool has to find out of a GPU's trace."""

    def check(self, stage: str, *arguments: str) -> float:
        """All phases are found. Returns the share of the causes that are."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "t.json"
            command = [BUILD / "02_chunkwise/chunkwise", "--operator", "linear_attention", "--stage", stage, "-B", "1", "-H", "1",
                       *arguments, "--repeat", "1", "--warmup", "0", "--timeline", file]  # fmt: skip
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            data = json.loads(file.read_text(encoding="utf-8"))
        (phases, causes), (found_phases, found_causes) = phases_and_causes(data), phases_and_causes(as_of_a_gpu(data))
        self.assertGreater(len(causes), 20)
        self.assertEqual(phases, found_phases)
        return sum(found_causes.get(wait) == cause for wait, cause in causes.items()) / len(causes)

    def test_of_roles(self):
        self.assertEqual(self.check("queued_products", "-L", "1024"), 1)

    def test_of_a_cluster(self):
        self.assertGreater(self.check("cluster", "-L", "1024", "--value-dim", "128"), 0.95)


class StageTest(unittest.TestCase):
    def test_a_stage(self):
        done = tutorial("trace", "2", "queued_products", "--backend", "emulator", "--", "-B", "1", "-H", "1", "-L", "512")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("warps 12–15, 240 registers: state_update", "waits for scores_full", "from start to start of a chunk", "~"):
            self.assertIn(words, done.stdout)
        base = ROOT / "results/trace/queued_products"
        self.assertIn(f"picture: {base}.svg", done.stdout)
        self.assertIn("<svg", base.with_suffix(".svg").read_text(encoding="utf-8"))
        self.assertTrue(json.loads(base.with_suffix(".perfetto.json").read_text(encoding="utf-8"))["traceEvents"])
        again = tutorial("trace", "--render", f"{base}.json")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("waits for scores_full", again.stdout)

    def test_a_check_that_fails_is_told(self):
        done = tutorial("trace", "2", "no_such_stage", "--backend", "emulator")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no_such_stage", done.stderr)

    def test_a_cluster_has_all_of_its_blocks(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "cluster.json"
            arguments = ["--operator", "linear_attention", "--stage", "cluster", "-B", "1", "-H", "1", "-L", "256", "--value-dim", "128"]
            subprocess.run([BUILD / "02_chunkwise/chunkwise", *arguments, "--repeat", "1", "--warmup", "0", "--timeline", file],
                           stdout=subprocess.DEVNULL, check=True)  # fmt: skip
            one = trace.load(file)
        block = one.launches[-1].blocks[0]
        self.assertEqual(sorted(block.peers), [0, 1])
        self.assertTrue(any(event.kind == "push" and event.target is block.peers[1] for event in block.events))


    def test_kernels_that_start_early_overlap(self):
        program = BUILD / "05_deltanet_wy/deltanet_wy"
        if not program.is_file():
            self.skipTest("chapter 05 is not built")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "segments.json"
            arguments = ["--operator", "delta_rule", "--stage", "segments", "-B", "1", "-H", "1", "-L", "2048"]
            subprocess.run([program, *arguments, "--repeat", "1", "--warmup", "0", "--timeline", file],
                           stdout=subprocess.DEVNULL, check=True)  # fmt: skip
            one = trace.load(file)
        self.assertGreater(len(one.launches), 1)
        for before, after in zip(one.launches, one.launches[1:]):
            self.assertTrue(after.starts_early)
            self.assertLess(after.begin, before.end)
        waits = [event for block in one.launches[-1].blocks for event in block.events if event.kind == "previous_kernel"]
        self.assertGreaterEqual(max(wait.end for wait in waits), one.launches[-2].end)


class PagesTest(unittest.TestCase):
    def test_the_pictures_of_the_page_are_what_is_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            out, sys.stdout = sys.stdout, open(os.devnull, "w", encoding="utf-8")
            try:
                self.assertEqual(published.emulated(BUILD, Path(folder)), 0)
            finally:
                sys.stdout.close()
                sys.stdout = out
            for file in sorted(Path(folder).iterdir()):
                self.assertEqual(file.read_text(encoding="utf-8"), (published.FOLDER / file.name).read_text(encoding="utf-8"),
                                 f"{file.name}: ./tutorial trace --publish draws it again")  # fmt: skip

    def test_a_deadlock_is_drawn_up_to_where_all_wait(self):
        text = (published.FOLDER / "deadlock.emulator.svg").read_text(encoding="utf-8")
        self.assertEqual(text.count("waits for ever"), 3)


class ExerciseTest(unittest.TestCase):
    def test_an_exercise(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "mine.cu"
            file.write_text(tutorial("exercise", "2.8", "--solution").stdout, encoding="utf-8")
            done = tutorial("exercise", "2.8", "--check", str(file), "--trace", "--backend", "emulator")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("solved", done.stdout)
        self.assertIn("waits for empty", done.stdout)
        self.assertTrue((ROOT / "results/trace/exercise_2_8.svg").is_file())


if __name__ == "__main__":
    BUILD = (Path.cwd() / sys.argv.pop(1)).resolve()
    unittest.main()
