"""`./tutorial exercise N.M --check FILE` for files in any folder, by any name.

Usage: any_file_test.py BUILD_FOLDER
"""

import os
from pathlib import Path
import subprocess
import sys
import tempfile
import unittest

from exercises import task

BUILD = Path(sys.argv.pop()).resolve()
ONE = task.find()[0]


def check(name: str, folder: Path) -> tuple[int, str]:
    """The status and what is printed, as ./tutorial calls it: from the folder in which the user is."""
    command = [sys.executable, "-P", "-B", "-m", "exercises", "--build", str(BUILD), ONE.number, "--check", name]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(task.ROOT / "tools")},
    )
    return done.returncode, done.stdout


class AnyFile(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name).resolve()

    def test_a_right_kernel_in_a_folder_outside_by_odd_names(self) -> None:
        for name in ("it's größer, \\ # of $5 & more.cu", "a folder/mine"):
            with self.subTest(name=name):
                file = self.folder / name
                file.parent.mkdir(exist_ok=True)
                file.write_text(ONE.solution)
                status, text = check(name, self.folder)
                self.assertEqual(status, 0, text)
                self.assertTrue(text.startswith(f"{file}\n  holds  "), text)

    def test_a_mistake_is_named_with_its_file_and_line(self) -> None:
        folder = self.folder / "a folder"
        folder.mkdir()
        file = folder / "my kernel.cu"
        line = ONE.solution.split("if (i < length) y[i]")[0].count("\n") + 1
        file.write_text(ONE.solution.replace("if (i < length) y[i]", "if (i <= length) y[i]"))
        status, text = check(str(file), task.ROOT)
        self.assertEqual(status, 1, text)
        self.assertIn(f"y[1] of 1 at {file}:{line}, thread (1,0,0)", text)
        file.write_text(ONE.solution.replace("      __syncthreads();\n", "", 1))
        status, text = check("a folder/my kernel.cu", self.folder)
        self.assertEqual(status, 1, text)
        self.assertIn(f"written at {file}:", text)

    def test_what_the_compiler_refuses_is_named_with_its_file(self) -> None:
        file = self.folder / "my kernel.cu"
        file.write_text(ONE.solution.replace("float sum", "floot sum", 1))
        status, text = check("my kernel.cu", self.folder)
        self.assertEqual(status, 1, text)
        self.assertIn(f"{file}:", text)
        self.assertIn("floot", text)

    def test_the_same_name_again_with_another_text(self) -> None:
        file = self.folder / "mine.cu"
        for text, expected in ((ONE.solution, 0), (ONE.skeleton, 1), (ONE.solution, 0)):
            file.write_text(text)
            self.assertEqual(check("mine.cu", self.folder)[0], expected)


if __name__ == "__main__":
    unittest.main()
