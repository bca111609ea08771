#!/usr/bin/env python3
"""What `./tutorial exercise` says to those who use it: right use, and wrong use in a line with status 2."""

import contextlib
import dataclasses
import io
import json
import os
from pathlib import Path
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from exercises import __main__ as command, build, reader, show, task  # noqa: E402


for name in ("LC_ALL", "LC_MESSAGES", "LANG"):  # in English wherever the test runs
    os.environ.pop(name, None)


def call(*arguments: str, folder: Path) -> tuple[int, str, str]:
    """The status, and what goes to standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    command.FOLDER = folder
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = command.main(list(arguments))
        except SystemExit as end:  # --help
            status = end.code or 0
    return status, out.getvalue(), err.getvalue()


# What is typed, and what the answer names.
BAD_USES = [
    (["9.1"], "there is no exercise '9.1'"),
    (["0.1"], "there is no exercise '0.1'"),
    (["1.0"], "those of chapter 1 are 1.1 1.2"),
    (["1.99"], "those of chapter 1 are 1.1 1.2"),
    (["2.77"], "those of chapter 2 are 2.1 2.2"),
    (["1"], "those of chapter 1 are"),
    (["01"], "those of chapter 1 are"),
    (["1."], "there is no exercise '1.'"),
    ([".1"], "there is no exercise '.1'"),
    (["1.1.1"], "there is no exercise '1.1.1'"),
    (["1,1"], "there is no exercise '1,1'"),
    (["1-1"], "there is no exercise '1-1'"),
    ([" 1.1"], "there is no exercise ' 1.1'"),
    (["1.1 "], "there is no exercise '1.1 '"),
    (["1.1x"], "there is no exercise '1.1x'"),
    (["one"], "there is no exercise 'one'"),
    ([""], "there is no exercise ''"),
    (["../1.1"], "there is no exercise '../1.1'"),
    (["linear_attention"], "there is no exercise 'linear_attention'"),
    (["exercises/01_1.cu"], "there is no exercise 'exercises/01_1.cu'"),
    (["1.1", "1.2"], "unrecognized arguments: 1.2"),
    (["1.1", "2.1", "3.1"], "unrecognized arguments: 2.1 3.1"),
    (["--hint"], "--hint needs the number of an exercise"),
    (["--solution"], "--solution needs the number of an exercise"),
    (["--restart"], "--restart needs the number of an exercise"),
    (["--check", "file.cu"], "--check needs the number of an exercise"),
    (["1.1", "--check"], "argument --check: expected one argument"),
    (["1.1", "--check", "no_such_file.cu"], "--check no_such_file.cu: No such file or directory"),
    (["1.1", "--check", "no/such/file.cu"], "--check no/such/file.cu: No such file or directory"),
    (["1.1", "--check", ""], "--check"),
    (["1.1", "--check", "/"], "it is a folder, and a file is needed"),
    (["1.1", "--check="], "--check"),
    (["1.1", "--check", 'a "quoted" name.cu'], "its name has a quote or a line break"),
    (["1.1", "--hint", "--solution"], "not allowed with argument --hint"),
    (["1.1", "--solution", "--hint"], "not allowed with argument --solution"),
    (["1.1", "--restart", "--hint"], "not allowed with argument --restart"),
    (["1.1", "--hint", "--check", "file.cu"], "not allowed with argument --hint"),
    (["1.1", "--check", "file.cu", "--restart"], "not allowed with argument --check"),
    (["1.1", "--hints"], "unrecognized arguments: --hints"),
    (["1.1", "--hin"], "unrecognized arguments: --hin"),
    (["1.1", "--hint=2"], "ignored explicit argument"),
    (["1.1", "--hint", "2"], "unrecognized arguments: 2"),
    (["1.1", "-s"], "unrecognized arguments: -s"),
    (["1.1", "--list"], "unrecognized arguments: --list"),
    (["1.1", "--verbose"], "unrecognized arguments: --verbose"),
    (["1.1", "--language", "fr"], "argument --language: invalid choice: 'fr'"),
    (["--list"], "unrecognized arguments: --list"),
    (["-1.1"], "there is no exercise '-1.1'"),
    (["1.1"], "call ./tutorial exercise"),
]


class BadUse(unittest.TestCase):
    def test_each_gives_a_line_and_status_2(self) -> None:
        self.assertGreaterEqual(len(BAD_USES), 40)
        for arguments, part in BAD_USES:
            with self.subTest(arguments=arguments), tempfile.TemporaryDirectory() as folder:
                status, out, err = call(*arguments, folder=Path(folder) / "exercises")
                self.assertEqual(status, 2, out + err)
                self.assertIn(part, err)
                self.assertEqual(err.count("\n"), 1, err)
                self.assertEqual(out, "")
                self.assertFalse((Path(folder) / "exercises").exists(), "a wrong call leaves a folder")


class InTheWay(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name) / "exercises"

    def refused(self, *arguments: str) -> str:
        status, _, err = call(*arguments, folder=self.folder)
        self.assertEqual(status, 2, err)
        self.assertEqual(err.count("\n"), 1, err)
        return err

    def test_a_file_where_the_folder_should_be(self) -> None:
        self.folder.write_text("mine")
        self.assertIn("exercises", self.refused("1.1", "--parse-only"))
        self.assertEqual(self.folder.read_text(), "mine")

    def test_a_folder_where_the_file_should_be(self) -> None:
        (self.folder / "01_1.cu").mkdir(parents=True)
        self.assertIn("01_1.cu", self.refused("1.1", "--parse-only"))

    def test_a_link_to_nowhere(self) -> None:
        self.folder.mkdir()
        (self.folder / "01_1.cu").symlink_to("nowhere")
        self.assertIn("01_1.cu", self.refused("1.1", "--parse-only"))

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_folder_that_cannot_be_written(self) -> None:
        self.folder.mkdir(mode=0o500)
        self.assertIn("Permission denied", self.refused("1.1", "--parse-only"))
        self.assertIn("Permission denied", self.refused("1.1", "--hint"))

    def test_a_file_to_check_that_is_no_text(self) -> None:
        self.folder.mkdir()
        (self.folder / "data.cu").write_bytes(b"\xff\xfe\x00")
        self.assertIn("it is no text", self.refused("1.1", "--check", str(self.folder / "data.cu")))

    def test_a_state_that_is_damaged_counts_as_none(self) -> None:
        self.folder.mkdir()
        for text in ("", "{", "[]", "null", '{"solved": 3, "hints": []}', '{"solved": [1], "hints": {"1.1": "x"}}'):
            (self.folder / ".state.json").write_text(text)
            status, out, err = call(folder=self.folder)
            self.assertEqual((status, err), (0, ""), text)
            self.assertIn("0 of ", out)
            self.assertEqual(call("1.1", "--hint", folder=self.folder)[0], 0, text)


class RightUse(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name) / "exercises"
        self.tasks = task.find()

    def test_help(self) -> None:
        status, out, _ = call("--help", folder=self.folder)
        self.assertEqual(status, 0)
        for option in ("--hint", "--solution", "--restart", "--check"):
            self.assertIn(option, out)

    def test_the_list_marks_what_is_solved(self) -> None:
        mine = reader.Reader(self.folder)
        mine.mark(self.tasks[1], True)
        _, out, _ = call(folder=self.folder)
        self.assertIn("  solved  1.2  ", out)
        self.assertIn(f"1 of {len(self.tasks)} are solved", out)
        self.assertIn("; ./tutorial exercise 1.1 starts the next\n", out)
        mine.mark(self.tasks[0], True)
        out = call(folder=self.folder)[1]
        self.assertIn("2 of ", out)
        self.assertIn("; ./tutorial exercise 1.3 starts the next\n", out)
        self.assertNotIn("exercise 1.1", out)
        mine.mark(self.tasks[0], False)
        mine.mark(self.tasks[1], False)
        none = call(folder=self.folder)[1]
        self.assertIn(f"0 of {len(self.tasks)} are solved; ./tutorial exercise 1.1 starts one\n", none)

    def test_a_copy_is_made_once_and_never_overwritten(self) -> None:
        status, out, _ = call("1.1", "--parse-only", folder=self.folder)
        self.assertEqual(status, 3)
        self.assertIn("Exercise 1.1: ", out)
        copy = self.folder / "01_1.cu"
        self.assertEqual(copy.read_text(), self.tasks[0].skeleton)
        copy.write_text("mine")
        status, out, _ = call("1.1", "--parse-only", folder=self.folder)
        self.assertEqual((status, out), (3, ""))
        self.assertEqual(copy.read_text(), "mine")

    def test_restart_keeps_the_old_file(self) -> None:
        call("1.1", "--parse-only", folder=self.folder)
        for number in (1, 2):
            (self.folder / "01_1.cu").write_text(f"mine {number}")
            status, out, _ = call("1.1", "--restart", folder=self.folder)
            self.assertEqual(status, 0)
            self.assertIn(f"01_1.old{number}.cu", out)
            self.assertEqual((self.folder / f"01_1.old{number}.cu").read_text(), f"mine {number}")
            self.assertEqual((self.folder / "01_1.cu").read_text(), self.tasks[0].skeleton)

    def test_hints_come_one_at_a_time(self) -> None:
        for i in (1, 2, 2):
            status, out, _ = call("1.1", "--hint", folder=self.folder)
            self.assertEqual(status, 0)
            self.assertEqual(out, f"hint {i} of 2: {self.tasks[0].hints[i - 1]}\n")

    def test_tasks_and_hints_are_there_in_chinese(self) -> None:
        title = "用一个线程块求前缀和"
        for arguments, environment in ((["--language", "zh"], {}), ([], {"LANG": "zh_CN.UTF-8"}), ([], {"LC_ALL": "zh_TW", "LANG": "C"})):
            with mock.patch.dict(os.environ, environment), tempfile.TemporaryDirectory() as folder:
                self.assertIn(f"Exercise 1.1: {title}\n\ny[i] = ", call("1.1", "--parse-only", *arguments, folder=Path(folder))[1])
                self.assertIn(f"1.1  {title}\n", call(*arguments, folder=Path(folder))[1])
                self.assertRegex(call("1.1", "--hint", *arguments, folder=Path(folder))[1], "^hint 1 of 2: 把和放在寄存器里。")
                self.assertEqual((Path(folder) / "01_1.cu").read_text(encoding="utf-8"), self.tasks[0].skeleton)
                last = self.tasks[-1]  # of a chapter without translations
                self.assertIn(last.statement, call(last.number, "--parse-only", *arguments, folder=Path(folder))[1])
        for environment in ({"LANG": "en_GB"}, {"LANG": "zhx"}, {"LC_ALL": "C", "LANG": "zh_CN"}, {"LANG": "zh_CN", "LC_MESSAGES": "de_DE"}):
            with mock.patch.dict(os.environ, environment):
                self.assertNotIn(title, call(folder=self.folder)[1], environment)

    def test_chinese_lines_fit_and_no_mark_begins_one(self) -> None:
        found = [task.translated(one, "zh") for one in self.tasks if one.chapter in (1, 2)]
        for one in found:
            lines = show.start(one, "x").splitlines()
            self.assertLessEqual(max(map(show.width, lines)), show.COLUMNS + 2, one.number)
            self.assertEqual([line for line in lines if line[:1] in tuple("，。：；、？！”）")], [])
            kept = "".join(show.fold(one.statement).split())
            self.assertEqual(kept, "".join(one.statement.split()))

    def test_the_solution_and_the_diff(self) -> None:
        self.assertEqual(call("1.1", "--solution", folder=self.folder)[1], self.tasks[0].solution)
        call("1.1", "--parse-only", folder=self.folder)
        self.assertEqual(call("1.1", "--solution", folder=self.folder)[1], self.tasks[0].solution)
        (self.folder / "01_1.cu").write_text(self.tasks[0].solution.replace("distance *= 2", "distance += 1"))
        out = call("1.1", "--solution", folder=self.folder)[1]
        self.assertIn("-    for (int distance = 1; distance < 128; distance += 1) {", out)
        self.assertIn("+    for (int distance = 1; distance < 128; distance *= 2) {", out)
        (self.folder / "01_1.cu").write_text(self.tasks[0].solution)
        self.assertEqual(call("1.1", "--solution", folder=self.folder)[1], "yours is ours\n")

    def test_what_comes_next(self) -> None:
        numbers = [one.number for one in self.tasks]
        self.assertIn(f"next: {numbers[1]}", show.next_after(self.tasks[0], self.tasks, [numbers[0]]))
        self.assertIn(f"next: {numbers[0]}", show.next_after(self.tasks[-1], self.tasks, [numbers[-1]]))
        self.assertEqual(show.next_after(self.tasks[0], self.tasks, numbers), "all exercises are solved\n")

    def test_the_state_is_one_file(self) -> None:
        call("1.1", "--hint", folder=self.folder)
        self.assertEqual([path.name for path in self.folder.iterdir()], [".state.json"])
        self.assertEqual(json.loads((self.folder / ".state.json").read_text())["hints"], {"1.1": 1})


class Tasks(unittest.TestCase):
    """What each exercise has, beside what variants_test.py runs."""

    def test_each_chapter_has_six(self) -> None:
        for chapter in {one.chapter for one in task.find()}:
            self.assertGreaterEqual(sum(one.chapter == chapter for one in task.find()), 6, chapter)

    def test_each_has_two_or_three_hints_a_dozen_attempts_and_10_to_40_lines_to_write(self) -> None:
        for one in task.find():
            with self.subTest(exercise=one.number):
                self.assertIn(len(one.hints), (2, 3))
                self.assertGreaterEqual(len(one.wrongs) + len(one.rights), 12)
                self.assertGreaterEqual(len(one.rights), 1)
                self.assertNotIn("// solution", one.skeleton + one.solution)
                self.assertIn("// Write this: ours takes", one.skeleton)
                self.assertIn("Goal: ", one.statement)
                blanks = "".join(match[2] for match in task.SOLUTION.finditer(one.text))
                lines = sum(not line.isspace() for line in blanks.splitlines())
                self.assertIn(lines, range(10, 41))
                self.assertNotIn("solution", one.statement)
                self.assertLessEqual(max(map(len, one.text.splitlines())), 120)

    def test_those_of_two_chapters_are_translated(self) -> None:
        for one in task.find():
            self.assertEqual(task.translation(one, "zh").exists(), one.chapter in (1, 2), one.number)
            said = task.translated(one, "zh")
            self.assertEqual(said.title.isascii(), one.chapter not in (1, 2), one.number)
            self.assertEqual("目标：" in said.statement, one.chapter in (1, 2), one.number)
            # Names in quotes are those of the file.
            self.assertEqual(set(re.findall("`[^`]+`", said.statement)), set(re.findall("`[^`]+`", " ".join(one.statement.split()))))

    def test_a_translation_that_lacks_something_is_named(self) -> None:
        one = task.find()[0]
        text = task.translation(one, "zh").read_text(encoding="utf-8")
        for wrong in (text.replace("\n2. ", "\n"), text.replace("# ", ""), ""):
            with tempfile.TemporaryDirectory() as folder:
                moved = dataclasses.replace(one, path=Path(folder) / one.path.name)
                task.translation(moved, "zh").write_text(wrong, encoding="utf-8")
                with self.assertRaisesRegex(task.TaskError, "it has not a title, a statement and 2 hints"):
                    task.translated(moved, "zh")

    def test_a_task_that_lacks_something_is_named(self) -> None:
        good = task.find()[0]
        broken = {
            "title": (good.text.replace("/// Exercise 1.1: ", "/// "), None, "does not begin with"),
            "blank": (good.text.replace("// end", ""), None, "nothing stands between"),
            "hints": (good.text, "", "there are no hints"),
            "plants": (good.text, 'hints = ["a"]', "no mistake is planted"),
            "key": (good.text, 'hints = ["a"]\n[[wrong]]\nwhy = "b"', "lacks 'replace'"),
            "text": (
                good.text,
                'hints = ["a"]\n[[wrong]]\nwhy = "b"\nreplace = "nowhere"\nwith = ""\nsays = ""',
                "stands 0 times",
            ),
        }
        for name, (text, plants, part) in broken.items():
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / good.path.name
                path.write_text(text)
                original = good.path.with_suffix(".toml").read_text()
                path.with_suffix(".toml").write_text(original if plants is None else plants)
                with self.assertRaisesRegex(task.TaskError, part):
                    task.read(path)
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(task.TaskError, "its name is not"):
            task.read(Path(folder) / "first.cu")


class Compiling(unittest.TestCase):
    def test_errors_are_those_of_the_file(self) -> None:
        file = task.ROOT / "exercises/01_1.cu"
        output = f"[1/2] building\n{file}:20:3: error: 'sun' was not declared\n   20 |   sun = 1;\n      |   ^~~\nninja: stopped\n"
        self.assertEqual(
            build.errors(output, file),
            "exercises/01_1.cu:20:3: error: 'sun' was not declared\n   20 |   sun = 1;\n      |   ^~~",
        )
        self.assertEqual(build.errors("something else\nhappened", file), "something else\nhappened")

    def test_an_error_that_names_the_type_of_an_array_says_what_an_array_can(self) -> None:
        file = task.ROOT / "exercises/01_4.cu"
        for said in (
            "cannot bind non-const lvalue reference of type ‘exercise::Shared<float, 8, 32>::Row&’ to an rvalue of type ‘exercise::Shared<float, 8, 32>::Row’",
            "cannot convert ‘exercise::Shared<float, 8, 32>’ to ‘float*’ in initialization",
            "no match for ‘operator+’ (operand types are ‘exercise::Global<const float>’ and ‘int’)",
        ):
            self.assertIn("`float* row = tile[i];`", build.errors(f"{file}:20:24: error: {said}", file))
        other = "no matching function for call to ‘run(int)’"
        self.assertNotIn("tile[i]", build.errors(f"{file}:20:24: error: {other}", file))


if __name__ == "__main__":
    unittest.main()
