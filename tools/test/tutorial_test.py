#!/usr/bin/env python3
"""./tutorial as hostile and clumsy users run it, in a project of two chapters whose cmake and ninja are made up."""

import os
from pathlib import Path
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = Path(__file__).resolve().parents[2]

# Configures as cmake does: what an attempt that failed has left makes the next one fail, unless it starts afresh.
CMAKE = """\
if [[ $1 == --version ]]; then echo "cmake version 3.25.1"; exit; fi
echo "cmake $*" >>"$LOG"
if [[ $1 == --build ]]; then # an exercise
  printf '#!/bin/bash\\necho "%s checks"\\nexit %s\\n' "${2##*/}" "${EXERCISE_STATUS:-0}" >"$2/exercise/exercise"
  chmod +x "$2/exercise/exercise"
  exit
fi
build=$2/build/$4
if [[ -f $build/broken && "$*" != *--fresh* ]]; then exit 1; fi
mkdir -p "$build/exercise"
rm -f "$build/broken"
printf '%s\\n' "CMAKE_HOME_DIRECTORY:INTERNAL=$2" "BUILD_TESTING:BOOL=ON" "CMAKE_MAKE_PROGRAM:FILEPATH=$BIN/ninja" \\
  >"$build/CMakeCache.txt"
if [[ ${DISK_FULL:-} == yes ]]; then touch "$build/broken"; exit 1; fi
touch "$build/build.ninja"
"""
NINJA = """\
echo "ninja $$ begins" >>"$LOG"
sleep "${BUILD_SECONDS:-0}"
for chapter in 01_a/a 02_b/b; do
  mkdir -p "$2/${chapter%/*}"
  printf '#!/bin/bash\\necho "%s $*"\\nif [[ -n ${TUTORIAL_SUMMARY:-} ]]; then echo "%s\\t3\\t0\\t1\\tb 2x a" >>"$TUTORIAL_SUMMARY"; fi\\n' \
    "$chapter" "${chapter%/*}" >"$2/$chapter"
  chmod +x "$2/$chapter"
done
echo "ninja $$ ends" >>"$LOG"
"""


class Project(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="tutorial_test_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.root, self.bin, self.log = self.folder / "a clone", self.folder / "bin", self.folder / "log"
        for chapter in ("01_a", "02_b"):
            (self.root / chapter).mkdir(parents=True)
            (self.root / chapter / "CMakeLists.txt").touch()
        (self.root / "CMakePresets.json").touch()
        shutil.copy(ROOT / "tutorial", self.root)
        shutil.copytree(ROOT / "tools", self.root / "tools", ignore=shutil.ignore_patterns("test", "__pycache__"))
        self.bin.mkdir()
        self.command("cmake", CMAKE)
        self.command("ninja", NINJA)
        self.environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "BIN": str(self.bin), "LOG": str(self.log)}
        self.environment.pop("CXX", None)

    def command(self, name: str, text: str) -> None:
        """A program that the script finds before the real one."""
        path = self.bin / name
        path.write_text(f"#!/bin/bash\n{text}", encoding="utf-8")
        path.chmod(0o755)

    def popen(self, *arguments: str, behind: str = "", **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" {behind}', self.root / "tutorial", *arguments],
            env={**self.environment, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run_script(self, *arguments: str, behind: str = "", **environment: str) -> tuple[int, str, str]:
        process = self.popen(*arguments, behind=behind, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def refused(self, *arguments: str, behind: str = "", **environment: str) -> str:
        """Status 2, nothing on standard output, one line on standard error: the message."""
        status, out, err = self.run_script(*arguments, behind=behind, **environment)
        self.assertEqual((status, out, err.count("\n")), (2, "", 1), err)
        self.assertTrue(err.startswith("tutorial: "), err)
        return err.removeprefix("tutorial: ").rstrip("\n")

    def logged(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []


class Running(Project):
    RUN = ("run", "1", "--backend", "emulator", "--no-install")

    def test_chapters_do_not_write_one_file(self):
        self.assertEqual(self.run_script(*self.RUN, "--", "--json", "r.json")[:2], (0, "01_a/a --json r.json\n"))
        self.log.unlink()
        for options in (["--json", "r.json"], ["--json=-"], ["--list", "--json", "-"], ["--output=o"]):
            for chapters in (["1", "2"], []):
                self.assertIn("name one chapter", self.refused("run", *chapters, "--", *options))
        self.assertEqual(self.logged(), [], "it is found before anything is built")

    def test_several_chapters_end_with_a_table(self):
        status, out, _ = self.run_script("run", "--backend", "emulator", "--no-install")
        self.assertEqual(status, 0)
        table = [line.split() for line in out.splitlines()[-3:]]
        self.assertEqual(table[0], "page checked failed skipped fastest against first stage".split())
        self.assertEqual(table[1:], [f"{chapter}/README.md 3 0 1 b 2x a".split() for chapter in ("01_a", "02_b")])
        self.assertEqual(list((self.root / "build" / "emulator").glob("summary*")), [], "what it was made of is gone")

    def test_standard_output_that_cannot_be_written(self):
        for closed in (">/dev/full", ">&-"):
            self.assertEqual(self.refused("--help", behind=closed), "standard output could not be written")

    def test_standard_error_that_cannot_be_written(self):
        for closed in ("2>/dev/full", "2>&-"):
            self.assertEqual(self.run_script("nonsense", behind=closed)[0], 2)
            self.assertEqual(self.run_script(*self.RUN, behind=closed)[:2], (0, "01_a/a \n"), closed)

    def test_other_shells(self):
        for shell in (["sh"], ["bash", "--posix"], ["env", "POSIXLY_CORRECT=1", "bash"], ["env", "SHELLOPTS=posix", "bash"]):
            command = [*shell, str(self.root / "tutorial"), *self.RUN, "--", "a b", "*"]
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (0, "01_a/a a b *\n"), (shell, done.stderr))

    def test_a_checkout_of_git_that_writes_crlf(self):
        files = ["tutorial", "tools/fuzz.sh", "common/tensor.cpp", "golden/gla_len1.safetensors"]
        git = ["git", "-c", f"safe.directory={ROOT}", "-c", "core.autocrlf=true", "-c", "core.eol=crlf"]
        subprocess.run([*git, "checkout-index", f"--prefix={self.folder}/checkout/", *files], cwd=ROOT, check=True)
        for file in files:
            self.assertEqual((self.folder / "checkout" / file).read_bytes(), (ROOT / file).read_bytes(), file)

    def test_names_with_newlines(self):
        self.assertEqual(self.refused("run", "a\nb"), "there is no chapter 'a?b'; the chapters are: 01_a 02_b")
        self.assertIn("there is no command", self.refused("a\nb"))

    def test_the_current_folder_is_deleted(self):
        gone = self.folder / "gone"
        gone.mkdir()
        call = f"cd '{gone}' && rmdir '{gone}' && exec '{self.root}/tutorial' run 1 2>&1"
        done = subprocess.run(["bash", "-c", call], env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertTrue(done.stdout.endswith("tutorial: the folder that this runs in does not exist any more\n"), done.stdout)

    def test_a_compiler_with_options(self):
        self.assertEqual(self.run_script(*self.RUN, CXX="g++ -O0")[0], 0)
        self.assertIn("missing here", self.run_script(*self.RUN, CXX="no-such-compiler -O0")[2])

    def test_cmake_that_does_not_run(self):
        for text in ("exit 127\n", "echo broken; exit 1\n", "kill -SEGV $$\n"):
            self.command("cmake", text)
            status, _, err = self.run_script(*self.RUN)
            self.assertEqual(status, 2)
            self.assertTrue(err.endswith("bin/cmake does not run: it does not tell its version\n"), err)

    def test_a_driver_that_hangs(self):
        self.command("nvidia-smi", "exec sleep 60\n")
        self.command("timeout", '[[ $2 -le 60 ]] && exec /usr/bin/timeout "$1" 0.2 "${@:3}"\n')  # does not wait as long
        status, _, err = self.run_script("run", "1", "--no-install")
        self.assertEqual(status, 0, err)
        self.assertIn("backend emulator", err)

    def test_a_configure_that_failed_once(self):
        status, _, err = self.run_script(*self.RUN, DISK_FULL="yes")
        self.assertEqual(status, 2)
        self.assertTrue(err.endswith("cmake could not configure the build; what it said is above\n"), err)
        self.assertEqual(self.run_script(*self.RUN)[0], 0)
        # And one that was there before.
        os.utime(self.root / "CMakePresets.json", (time.time() + 5, time.time() + 5))
        self.assertEqual(self.run_script(*self.RUN, DISK_FULL="yes")[0], 2)
        self.assertEqual(self.run_script(*self.RUN)[0], 0)
        os.utime(self.root / "CMakePresets.json", (0, 0))
        self.log.unlink()
        self.assertEqual(self.run_script(*self.RUN)[0], 0)
        self.assertEqual([line for line in self.logged() if line.startswith("cmake")], [], "once is enough")

    def test_two_at_once(self):
        both = [self.popen(*self.RUN, BUILD_SECONDS="0.5") for _ in range(2)]
        results = [(process.communicate(timeout=60), process.returncode) for process in both]
        self.assertEqual([status for _, status in results], [0, 0], results)
        builds = [line.split()[1:] for line in self.logged() if line.startswith("ninja")]
        self.assertEqual([word for _, word in builds], ["begins", "ends", "begins", "ends"])
        self.assertEqual(sum("waiting for another ./tutorial" in err for (_, err), _ in results), 1)

    def test_the_build_ends_with_the_script(self):
        process = self.popen(*self.RUN, BUILD_SECONDS="60")
        deadline = time.monotonic() + 30
        while not any("begins" in line for line in self.logged()) and time.monotonic() < deadline:
            time.sleep(0.05)
        ninja = int(next(line for line in self.logged() if "begins" in line).split()[1])
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        while Path(f"/proc/{ninja}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertFalse(Path(f"/proc/{ninja}").exists())
        process.stdout.close()
        process.stderr.close()

    def test_a_clone_that_cannot_be_written(self):
        (self.root / "build").touch()
        status, _, err = self.run_script(*self.RUN)
        self.assertEqual(status, 2)
        self.assertTrue(err.endswith("a clone/build cannot be written\n"), err)


class Exercising(Project):
    """In which builds a reader's file is checked."""

    def setUp(self):
        super().setUp()
        shutil.copytree(ROOT / "exercise/tasks", self.root / "exercise/tasks")
        self.environment.pop("CUDACXX", None)

    def gpu(self, is_there: bool) -> None:
        answer = 'if [[ $1 == -L ]]; then echo "GPU 0"; else echo "9.0, made up"; fi'
        self.command("nvidia-smi", answer if is_there else "exit 9\n")
        self.command("nvcc", 'echo "release 13.0, V13.0"\n')
        (self.folder / "include").mkdir(exist_ok=True)
        for header in ("cublas_v2.h", "cufft.h"):
            (self.folder / "include" / header).touch()

    def checks(self, *options: str, **environment: str) -> tuple[int, list[str]]:
        """The status, and the builds that have checked."""
        status, out, err = self.run_script("exercise", "1.1", "--no-install", *options, **environment)
        self.assertNotIn("Traceback", err)
        return status, [line.removesuffix(" checks") for line in out.splitlines() if line.endswith(" checks")]

    def test_a_gpu_comes_after_the_emulator(self):
        self.gpu(True)
        self.assertEqual(self.checks(), (0, ["emulator", "cuda"]))
        self.assertEqual(self.checks("--backend", "emulator"), (0, ["emulator"]))
        self.assertEqual(self.checks("--backend=cuda"), (0, ["cuda"]))
        self.assertEqual(self.checks(EXERCISE_STATUS="1"), (1, ["emulator"]), "what is wrong is not timed")
        self.assertEqual(self.checks("--backend", "cuda", EXERCISE_STATUS="3"), (0, ["cuda"]), "not for this GPU")

    def test_without_a_gpu_the_emulator_is_enough(self):
        self.gpu(False)
        self.assertEqual(self.checks(), (0, ["emulator"]))
        self.assertIn("there is no GPU", self.refused("exercise", "1.2", "--backend", "cuda"))
        self.assertFalse((self.root / "exercises/01_2.cu").exists(), "it is found before anything is copied")


class Comparing(Project):
    def setUp(self):
        super().setUp()
        script = self.root / "tutorial"
        text = script.read_text(encoding="utf-8")
        self.assertIn("|python matplotlib|", text)
        script.write_text(text.replace("|python matplotlib|", "|python no_such_module|"), encoding="utf-8")

    def test_what_is_wrong_is_found_before_anything_is_installed(self):
        for arguments, message in (
            (["--backend", "emulator"], "this is an emulator build: its times are not a GPU's"),
            (["nope", "--backend", "emulator"], "there is no chapter 'nope'; the chapters are: 01_a 02_b"),
            (["nope", "--counts"], "there is no chapter 'nope'"),
            (["--counts", "--publish"], "--counts has no use for --publish"),
            (["--render", "no.json"], "no.json: No such file or directory"),
        ):
            status, _, err = self.run_script("compare", "--no-install", *arguments)
            self.assertEqual(status, 2)
            self.assertIn(message, err)
            self.assertNotIn("missing here", err)
        status, _, err = self.run_script("compare", "--no-install", "--counts", "2")
        self.assertEqual(status, 2)
        self.assertIn("missing here", err)
        self.assertEqual(self.logged(), [])


if __name__ == "__main__":
    unittest.main()
