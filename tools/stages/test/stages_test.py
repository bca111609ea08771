#!/usr/bin/env python3
"""What stages grow out of: chapters made up for these tests, and the names of the repository's own stages."""

import contextlib
import io
import os
from pathlib import Path
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(HERE.parents[1]))

from stages import __main__ as command  # noqa: E402
from stages import difference, goals, includes, page, reading, rules, show, source, stage  # noqa: E402


def body(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def opening(grows: str | None) -> str:
    """An opening comment as a stage has it."""
    lines = ["/// @file", "/// Stage, `x`: it adds.", "///", "/// Idea: a sum."]
    if grows is not None:
        lines.append(f"/// Grows out of: {grows}")
    return body(*lines, "/// Weakness: none.", "")


def numbered(count: int, name: str = "x") -> str:
    """So many lines of code, each of which occurs once."""
    return body(*(f"int {name}{i} = {i};" for i in range(count)))


class Folder(unittest.TestCase):
    """Tests with a project of their own."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="stages_test_"))
        self.addCleanup(shutil.rmtree, self.root)

    def put(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def put_stage(self, path: str, grows: str | None, code: str = "int a;\n") -> None:
        self.put(path, opening(grows) + code)

    def parsed(self, grows: str, path: str = "02_b/op/7_x.cu") -> stage.Stage:
        return stage.parse(path, opening(grows))

    def mistakes(self) -> list[str]:
        return [str(mistake) for mistake in rules.check(self.root, self.steps())]

    def steps(self) -> list[reading.Step]:
        return reading.steps(self.root)

    def assert_one(self, found: list[str], *parts: str) -> None:
        """One mistake, on one line, that says all of this."""
        self.assertEqual(len(found), 1, found)
        self.assertNotIn("\n", found[0])
        for part in parts:
            self.assertIn(part, found[0])

    def run_command(self, *arguments: str) -> tuple[int, str, str]:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = command.main(list(arguments), self.root)
        return status, out.getvalue(), err.getvalue()


class Source(unittest.TestCase):
    def code(self, *lines: str) -> list[str]:
        return [line.text for line in source.code(body(*lines))]

    def test_comments_blank_lines_and_includes_do_not_count(self):
        text = [
            "#include <a>",
            "",
            '  # include "b"',
            "int a;  // one",
            "/* two",
            "   three */ int b;",
            "int /**/ c;",
            "///",
        ]
        self.assertEqual(self.code(*text), ["int a;", " int b;", "int   c;"])
        self.assertEqual([line.number for line in source.code(body(*text))], [4, 6, 7])

    def test_what_a_file_of_its_own_needs_around_its_code_does_not_count(self):
        text = ["#pragma once", "namespace a::b {", "inline namespace c {", "namespace {", "int a;"]
        text += ["}  // namespace", "}  // namespace c", "}  // namespace a::b"]
        self.assertEqual(self.code(*text), ["int a;"])
        for line in ("namespace a = b;", "namespace a { class B; }", "using namespace a;", "}"):
            self.assertEqual(self.code(line), [line])

    def test_lines_below_the_opening_comment(self):
        text = body("", "/// @file", "/// One.", "", "/// Two.", "int a;")
        self.assertEqual([line.text for line in source.below_opening(text)], ["", "", "/// Two.", "int a;"])

    def test_an_include_that_is_a_comment_is_none(self):
        found = source.includes(
            body('#include "a.hpp"', '// #include "b.hpp"', "/*", '#include "c.hpp"', "*/", "#include <d>")
        )
        self.assertEqual([(line.number, line.text) for line in found], [(1, "a.hpp"), (6, "d")])

    def test_what_only_looks_like_a_comment_stays(self):
        for line in (
            'f("// a", "/*");',
            "f('\"', '/', \"*/\");",
            'f("\\"// a");',
            'R"x(// " )" )x" // b',
            "int a = 1'000; g('\\'');",
        ):
            self.assertEqual(self.code(line), [line.removesuffix(" // b")])
        self.assertEqual(self.code("int a = 1'000;  // it's", "f();"), ["int a = 1'000;", "f();"])

    def test_a_comment_goes_on_behind_a_backslash(self):
        self.assertEqual(self.code("// a \\", "b", "c"), ["c"])

    def test_other_directives_count(self):
        self.assertEqual(self.code("#pragma unroll", "#define A 1"), ["#pragma unroll", "#define A 1"])


class Field(Folder):
    def test_a_stage_of_the_same_folder(self):
        found = self.parsed("6_tensor_core.cu")
        self.assertEqual((found.parent, found.line, found.mark), ("02_b/op/6_tensor_core.cu", 5, None))
        self.assertEqual((found.name, found.full_name, found.mistakes), ("x", "op/x", ()))

    def test_a_stage_of_another_folder_and_of_the_chapter(self):
        self.assertEqual(self.parsed("01_a/op/2_y.cpp").parent, "01_a/op/2_y.cpp")
        found = self.parsed("1_y.cpp", "02_b/7_x.cu")
        self.assertEqual((found.parent, found.full_name), ("02_b/1_y.cpp", "x"))

    def test_nothing(self):
        self.assertEqual((self.parsed("nothing").parent, self.parsed("nothing").mistakes), (None, ()))

    def test_a_mark_and_its_reason(self):
        found = self.parsed("3_c.cpp; port to the GPU: all chunks at once")
        self.assertEqual(
            (found.parent, found.mark, found.reason), ("02_b/op/3_c.cpp", "port to the GPU", "all chunks at once")
        )

    def test_a_reason_goes_on_up_to_a_label(self):
        found = self.parsed("3_c.cpp; port to\n/// the GPU: all chunks, see\n/// Foo::bar\n/// Thread mapping: no")
        self.assertEqual((found.mark, found.reason), ("port to the GPU", "all chunks, see Foo::bar"))

    def test_a_reason_goes_on_up_to_an_empty_line(self):
        self.assertEqual(self.parsed("8_s.cu; large step: it\n/// is\n///\n/// and more").reason, "it is")

    def test_only_the_opening_comment_counts(self):
        found = stage.parse("02_b/op/7_x.cu", opening(None) + "/// Grows out of: 6_y.cu\nint a;\n")
        self.assert_one([str(m) for m in found.mistakes], "02_b/op/7_x.cu:1: ", "/// Grows out of: FILE")

    def test_an_unknown_mark_is_a_mistake(self):
        found = self.parsed("8_s.cu; larger: so").mistakes
        self.assert_one([str(m) for m in found], "02_b/op/7_x.cu:5: there is no mark `larger`", "large step")

    def test_a_mark_without_a_reason_is_a_mistake(self):
        for grows in ("8_s.cu; port to the GPU", "8_s.cu; port to the GPU:"):
            self.assert_one([str(m) for m in self.parsed(grows).mistakes], "`port to the GPU` needs its reason")

    def test_no_name_is_a_mistake(self):
        for grows in ("", "; port to the GPU: so"):
            self.assert_one([str(m) for m in self.parsed(grows).mistakes], "02_b/op/7_x.cu:5: ", "names no stage")

    def test_two_lines_are_a_mistake(self):
        found = self.parsed("1_a.cu\n/// Weakness: no\n/// Grows out of: 2_b.cu")
        self.assert_one([str(m) for m in found.mistakes], "02_b/op/7_x.cu:7: ", "more than one")
        self.assertIsNone(found.parent)

    def test_nothing_needs_no_mark(self):
        self.assert_one([str(m) for m in self.parsed("nothing; port to the GPU: so").mistakes], "needs no mark")

    def test_stage_files(self):
        for path in ("01_a/1_x.cu", "01_a/op/12_x_y.cpp"):
            self.assertTrue(stage.is_stage(path), path)
        for path in ("01_a/x.cu", "01_a/op/1_x.hpp", "01_a/op/more/1_x.cu", "common/1_x.cu", "01_a/op/prepare.cu"):
            self.assertFalse(stage.is_stage(path), path)

    def test_reading_order(self):
        self.put("01_a/main.cpp", "using namespace second;\nfirst::add();\n")
        for path in ("01_a/first/1_x.cpp", "01_a/second/10_x.cpp", "01_a/second/2_x.cpp", "02_b/1_x.cpp"):
            self.put_stage(path, "nothing")
        self.assertEqual(
            list(stage.find(self.root)),
            ["01_a/second/2_x.cpp", "01_a/second/10_x.cpp", "01_a/first/1_x.cpp", "02_b/1_x.cpp"],
        )


class Difference(unittest.TestCase):
    def test_removed_and_added(self):
        found = difference.compare("a;\nb;\nc;\n", "a;\nB;\nC;\nc;\n")
        self.assertEqual((found.removed, found.added, found.changed), (1, 2, 3))
        self.assertEqual([row.sign + row.text for row in found.rows], [" a;", "-b;", "+B;", "+C;", " c;"])
        self.assertEqual([(row.old, row.new) for row in found.rows], [(1, 1), (2, None), (None, 2), (None, 3), (3, 4)])

    def test_white_space_comments_and_includes_do_not_count(self):
        old = "#include <a>\nvoid f(int a, int b) {\n  g(a,  b);\n}\n"
        new = "// another\n\nvoid f(int a,\n       int b) {\n    g(a, b);  // here\n}\n"
        self.assertEqual(difference.compare(old, new).changed, 0)
        self.assertGreater(difference.compare(old, new, source.lines).changed, 0)

    def test_a_line_broken_elsewhere_and_changed_counts(self):
        self.assertEqual(difference.compare("f(a, b);\n", "f(a,\n  c);\n").changed, 3)

    def test_lines_that_occur_once_are_kept_together(self):
        old = body("{", "}", "{", "}", "unique();", "{", "}")
        new = body("{", "unique();", "}", "{", "}", "{", "}")
        found = difference.compare(old, new)
        self.assertIn(" unique();", [row.sign + row.text for row in found.rows])

    def test_a_function_is_added_from_its_name_to_its_end(self):
        old = body("int y;", "void f() {", "  a();", "}", "}")
        new = body("int x;", "void f() {", "  a();", "}", "void g() {", "  b();", "}", "}")
        for one, other, sign in ((old, new, "+"), (new, old, "-")):
            changed = [row.text for row in difference.compare(one, other).rows if row.sign == sign]
            self.assertEqual(changed[1:], ["void g() {", "  b();", "}"])

    def test_every_line_of_both_files_is_there_in_order(self):
        chance = random.Random(1)
        for _ in range(300):
            old, new = ([chance.choice("abcdefgh}") + ";" for _ in range(chance.randrange(25))] for _ in range(2))
            for row in (rows := difference.compare(body(*old), body(*new)).rows):
                self.assertIn(row.sign, " +-")
            self.assertEqual([row.text for row in rows if row.sign != "+"], old)
            self.assertEqual([row.text for row in rows if row.sign != "-"], new)
            self.assertEqual([row.new for row in rows if row.new], list(range(1, len(new) + 1)))
            self.assertEqual([row.old for row in rows if row.old], list(range(1, len(old) + 1)))

    def test_hunks_have_three_lines_around_and_name_their_function(self):
        old = "void f(int a) {\n" + numbered(10).replace("int", "  int") + "}\n"
        new = old.replace("x5", "z5")
        ((heading, rows),) = difference.compare(old, new).hunks()
        self.assertEqual(heading, "@@ -4,7 +4,7 @@ void f(int a) {")
        self.assertEqual([row.sign for row in rows], list("   -+   "))

    def test_changes_far_apart_are_two_hunks(self):
        old = numbered(20)
        new = old.replace("int x2 ", "int z2 ").replace("int x15 ", "int z15 ")
        self.assertEqual(len(difference.compare(old, new).hunks()), 2)

    def test_empty_lines_are_shown_but_not_between_a_line_and_what_takes_its_place(self):
        found = difference.compare("a;\n\nb;\n", "a;\n\nB;\n\nc;\n")
        self.assertEqual([row.after_blank for row in found.hunks()[0][1]], [False, True, False, True])
        self.assertEqual(found.changed, 3)


class Reading(Folder):
    def setUp(self):
        super().setUp()
        self.put_stage("01_a/op/1_x.cpp", "nothing", "int a;\n")

    def step(self, path: str) -> reading.Step:
        return next(step for step in self.steps() if step.stage.path == path)

    def files(self, path: str) -> dict[str, int]:
        return dict(self.step(path).files)

    def test_a_first_stage_is_all_new(self):
        self.put_stage("01_a/op/1_x.cpp", "nothing", '#include "01_a/a.hpp"\nint a;\n')
        self.put("01_a/a.hpp", "#pragma once\n/// A.\nint b;\n\nint c;\n")
        step = self.step("01_a/op/1_x.cpp")
        self.assertEqual((step.code, step.own, step.files, step.new), (None, 1, [("01_a/a.hpp", 2)], 3))

    def test_changed_lines_and_new_files(self):
        self.put_stage("01_a/op/2_y.cu", "1_x.cpp", '#include "tile.cuh"\nint b;\nint c;\n')
        self.put("01_a/op/tile.cuh", numbered(5))
        step = self.step("01_a/op/2_y.cu")
        self.assertEqual((step.own, step.in_files, step.new), (3, 5, 8))

    def test_files_are_reached_by_way_of_others(self):
        """Headers of headers, and the sources beside them; by any way, of any folder, but only those to read count."""
        self.put_stage("01_a/op/2_y.cu", "1_x.cpp", '#include "common/view.hpp"\n#include <vector>\nint a;\n')
        self.put("common/view.hpp", '#include "tile/one.cuh"\n#include "view.hpp"\nint v;\n')
        self.put("common/view.cpp", '#include "common/missing.hpp"\nint v;\n')
        self.put("common/tile/one.cuh", numbered(2))
        self.put("common/tile/one.cu", '#include "01_a/op/../plan.hpp"\nint o;\n')
        self.put("01_a/plan.hpp", "int p;\n")
        self.put("01_a/plan.cpp", "// #include \"01_a/not_this.hpp\"\n" + numbered(3))
        self.put("01_a/not_this.hpp", "int n;\n")
        self.assertEqual(
            self.files("01_a/op/2_y.cu"),
            {"01_a/plan.cpp": 3, "01_a/plan.hpp": 1, "common/tile/one.cu": 1, "common/tile/one.cuh": 2},
        )

    def test_another_stage_is_no_file_to_read_but_a_way_to_others(self):
        self.put_stage("01_a/op/2_y.cu", "1_x.cpp", '#include "3_z.cu"\nint a;\n')
        self.put_stage("01_a/op/3_z.cu", "2_y.cu", '#include "z.cuh"\n' + numbered(9))
        self.put("01_a/op/z.cuh", "int z;\n")
        self.assertEqual(self.files("01_a/op/2_y.cu"), {"01_a/op/z.cuh": 1})

    def test_what_a_stage_before_has_reached_is_not_new(self):
        self.put("common/tile/t.cuh", "int t;\n")
        including = '#include "common/tile/t.cuh"\nint a;\n'
        self.put_stage("01_a/op/2_y.cu", "1_x.cpp", including)
        self.put_stage("01_a/op/3_lower_number.cu", "1_x.cpp", including)
        self.put_stage("01_a/other/1_no_stage_before.cu", "01_a/op/1_x.cpp", including)
        self.put_stage("01_a/third/1_child.cu", "01_a/op/2_y.cu", "int a;\n")
        self.put_stage("01_a/third/2_grandchild.cu", "1_child.cu", including)
        self.put_stage("02_b/op/1_later_chapter.cu", "01_a/op/1_x.cpp", including)
        self.assertEqual(
            [step.stage.name for step in self.steps() if step.files], ["y", "no_stage_before"], "where the file is new"
        )

    def test_dispatch_and_variants_are_not_on_the_path(self):
        self.put("common/tile/t.cuh", "int t;\n")
        including = '#include "common/tile/t.cuh"\nint a;\n'
        self.put("01_a/op/dispatch/dispatch.cu", including)
        self.put("01_a/op/dispatch/variant.cu", including)
        self.put_stage("01_a/op/3_y.cu", "1_x.cpp", including)
        self.assertEqual([step.stage.name for step in self.steps()], ["x", "y"])
        self.assertEqual(self.files("01_a/op/3_y.cu"), {"common/tile/t.cuh": 1})

    def test_stages_that_grow_out_of_each_other_have_an_end(self):
        self.put_stage("01_a/op/2_y.cpp", "3_z.cpp")
        self.put_stage("01_a/op/3_z.cpp", "2_y.cpp")
        self.assertEqual([step.new for step in self.steps()], [1, 0, 0])


class Moves(Folder):
    """Lines that move from stages to a header change no number."""

    def new_reading(self) -> dict[str, int]:
        return {step.stage.path: step.new for step in self.steps()}

    def move(self, lines: str, header: str, *paths: str) -> None:
        """Moves lines that these stages have in common to a header, which all of them include."""
        for path in paths:
            text = source.read(self.root / path)
            self.assertEqual(text.count(lines), 1, path)
            text = text.replace(lines, "")
            self.put(path, text.replace("#include", f'#include "{header}"\n#include', 1))
        around = ["#pragma once", "/// @file", "/// Moved.", "", "#include <cstdint>", "", "namespace tutorial::moved {"]
        self.put(header, body(*around) + lines + "}  // namespace tutorial::moved\n")

    def test_lines_that_a_stage_adds(self):
        """In a copy of the chapter as it is."""
        folder = "01_linear_attention/causal_dot_product"
        for part in ("01_linear_attention", "common"):
            shutil.copytree(ROOT / part, self.root / part, ignore=shutil.ignore_patterns("test"))
        before = self.new_reading()
        lmha = source.read(self.root / folder / "5_lmha.cu")
        share = re.search(r"^template <[^\n]*\nstruct Share \{.*?^\};\n", lmha, re.MULTILINE | re.DOTALL)[0]
        self.assertGreater(len(source.code(share)), 15)
        self.move(share, f"{folder}/share.cuh", f"{folder}/5_lmha.cu")
        self.assertEqual(self.new_reading(), before)
        changed = next(step for step in self.steps() if step.stage.path == f"{folder}/5_lmha.cu")
        self.assertEqual(changed.files, [(f"{folder}/share.cuh", len(source.code(share)))])

    def test_lines_that_several_stages_have(self):
        function = "void chain() {\n" + numbered(30).replace("int", "  int") + "}\n"
        start = "#include <vector>\nnamespace tutorial::a {\n"
        self.put_stage("01_a/op/1_x.cpp", "nothing", start + "int x;\n}  // namespace tutorial::a\n")
        for number, grows in ((2, "1_x.cpp"), (3, "2_y.cu"), (4, "2_y.cu")):
            own = numbered(number, f"own{number}_")
            self.put_stage(f"01_a/op/{number}_y.cu", grows, start + own + function + "}  // namespace tutorial::a\n")
        before = self.new_reading()
        self.assertEqual(list(before.values()), [1, 1 + 2 + 32, 2 + 3, 2 + 4])
        self.move(function, "01_a/op/chain.cuh", *(f"01_a/op/{number}_y.cu" for number in (2, 3, 4)))
        self.assertEqual(self.new_reading(), before)
        self.move(function, "common/tile/chain.cuh", "01_a/op/chain.cuh")
        self.assertEqual(self.new_reading(), before)


class Show(Folder):
    STEP = reading.Step(
        stage.parse("01_a/2_y.cu", opening("1_x.cpp; port to the GPU: all at once")),
        difference.compare("a;\nb;\n", "a;\nc;\nd;\n"),
        3,
        [reading.File("01_a/longer.cuh", 20), reading.File("01_a/b.cu", 1)],
    )

    def shown(self, colours: bool) -> str:
        return show.difference("01_a/1_x.cpp", "01_a/2_y.cu", show.notes(self.STEP, []), self.STEP.code, colours)

    def test_header_and_lines(self):
        self.assertEqual(
            self.shown(False),
            "--- 01_a/1_x.cpp\n+++ 01_a/2_y.cu\n"
            "1 line of code removed, 2 added, 21 in 2 files read here for the first time; 24 lines of new reading\n"
            "port to the GPU: all at once\n@@ -1,2 +1,3 @@\n a;\n-b;\n+c;\n+d;\n",
        )

    def test_files_stand_in_columns(self):
        self.assertEqual(
            show.files(self.STEP),
            "\nread here for the first time:\n  01_a/longer.cuh  20 lines of code\n  01_a/b.cu        1 line of code\n",
        )
        self.assertEqual(show.files(self.STEP._replace(files=[])), "")

    def test_other_stages_of_the_name(self):
        self.assertEqual(show.notes(self.STEP, ["b/y", "c/y"])[-1], "the chapter has other stages of this name: b/y c/y")

    def test_colours_add_nothing_but_colours(self):
        text = self.shown(True)
        self.assertIn("\x1b[31m-b;\x1b[0m", text)
        self.assertIn("\x1b[32m+c;\x1b[0m", text)
        for code in (show.BOLD, show.CYAN, show.GREEN, show.RED, show.PLAIN):
            text = text.replace(code, "")
        self.assertEqual(text, self.shown(False))

    def test_colours_are_for_terminals_that_want_them(self):
        terminal = mock.Mock(isatty=lambda: True)
        for environment, wanted in (
            ({}, True),
            ({"NO_COLOR": "1"}, False),
            ({"NO_COLOR": ""}, True),
            ({"TERM": "dumb"}, False),
        ):
            with mock.patch.dict(os.environ, environment, clear=True):
                self.assertEqual(show.has_colours(terminal), wanted, environment)
                self.assertFalse(show.has_colours(io.StringIO()))

    def test_the_table_has_every_stage(self):
        self.put_stage("01_a/op/1_x.cpp", "nothing", "int a;\nint b;\n")
        self.put_stage("01_a/op/2_y.cu", "1_x.cpp; port to the GPU: so", '#include "y.cuh"\nint b;\nint c;\n')
        self.put_stage("01_a/op/3_z.cu", None)
        self.put("01_a/op/y.cuh", numbered(7))
        rows = [line.split() for line in show.table(self.steps()).splitlines()]
        self.assertEqual(rows[0], "chapter stage grows out of removed added in new files new reading mark".split())
        self.assertEqual(rows[2], ["01_a", "op/x", "nothing", "2", "0", "2"])
        self.assertEqual(rows[3], ["01_a", "op/y", "1_x.cpp", "1", "1", "7", "9", "port", "to", "the", "GPU"])
        self.assertEqual(rows[4], ["01_a", "op/z", "?", "1", "0", "1"])


class Rules(Folder):
    def setUp(self):
        super().setUp()
        self.put_stage("01_a/op/1_x.cpp", "nothing")

    def test_all_is_well(self):
        self.put_stage("01_a/op/2_y.cpp", "1_x.cpp")
        self.put_stage("02_b/3_z.cu", "01_a/op/2_y.cpp; port to the GPU: so")
        self.assertEqual(self.mistakes(), [])

    def test_a_stage_without_the_line(self):
        self.put_stage("01_a/op/2_y.cpp", None)
        self.assert_one(self.mistakes(), "01_a/op/2_y.cpp:1: ", "add `/// Grows out of: FILE`")

    def test_a_parent_that_does_not_exist(self):
        self.put_stage("01_a/op/2_y.cpp", "1_y.cpp")
        self.assert_one(self.mistakes(), "01_a/op/2_y.cpp:5: ", "1_y.cpp, which does not exist")

    def test_a_parent_that_is_no_stage(self):
        self.put("01_a/op/prepare.cu", "int a;\n")
        self.put_stage("01_a/op/2_y.cpp", "prepare.cu")
        self.assert_one(self.mistakes(), "01_a/op/2_y.cpp:5: ", "prepare.cu, which is no stage")

    def test_an_unknown_mark(self):
        self.put_stage("01_a/op/2_y.cpp", "1_x.cpp; big: so")
        self.assertIn("01_a/op/2_y.cpp:5: there is no mark `big`", self.mistakes()[0])

    def test_a_cycle(self):
        self.put_stage("01_a/op/2_y.cpp", "3_z.cpp")
        self.put_stage("01_a/op/3_z.cpp", "2_y.cpp")
        self.put_stage("01_a/op/4_w.cpp", "3_z.cpp")
        self.assert_one(self.mistakes(), "01_a/op/2_y.cpp:5: grows out of itself, by way of 01_a/op/3_z.cpp; ")

    def test_a_stage_that_grows_out_of_itself(self):
        self.put_stage("01_a/op/2_y.cpp", "2_y.cpp")
        self.assert_one(self.mistakes(), "01_a/op/2_y.cpp:5: grows out of itself; ")

    def test_only_the_first_stage_grows_out_of_nothing(self):
        self.put_stage("01_a/op/2_y.cpp", "nothing")
        self.put_stage("01_a/other/2_y.cpp", "nothing")
        self.assert_one(self.mistakes(), "01_a/op/2_y.cpp:5: ", "such as 1_x.cpp")

    def test_the_limit(self):
        self.put("01_a/op/y.cuh", numbered(50))
        including = '#include "y.cuh"\nint a;\n'
        self.put_stage("01_a/op/2_y.cpp", "1_x.cpp", including + numbered(rules.LIMIT - 50))
        self.assertEqual(self.mistakes(), [])
        self.put_stage("01_a/op/2_y.cpp", "1_x.cpp", including + numbered(rules.LIMIT - 49))
        self.assert_one(
            self.mistakes(),
            "01_a/op/2_y.cpp:5: has 201 lines of new reading (151 of its own and 50 in files",
            "200 is the limit",
            "or mark it",
        )

    def test_the_limit_of_a_first_stage(self):
        self.put_stage("01_a/op/1_x.cpp", "nothing", numbered(rules.LIMIT + 1))
        self.assert_one(self.mistakes(), "01_a/op/1_x.cpp:5: has 201 lines")

    def test_the_limit_of_a_port_to_the_gpu(self):
        self.put_stage("01_a/op/2_y.cu", "1_x.cpp; port to the GPU: so", "int a;\n" + numbered(rules.PORT_LIMIT))
        self.assertEqual(self.mistakes(), [])
        self.put_stage("01_a/op/2_y.cu", "1_x.cpp; port to the GPU: so", numbered(rules.PORT_LIMIT))
        (found,) = self.mistakes()
        self.assertTrue(found.endswith("and 400 is the limit; make the step smaller"), found)

    def test_dispatch_has_no_number(self):
        self.put("01_a/op/dispatch/dispatch.cu", numbered(1000))
        self.assertEqual(self.mistakes(), [])
        self.put_stage("01_a/op/2_dispatch.cu", "1_x.cpp")
        self.assert_one(self.mistakes(), "01_a/op/2_dispatch.cu:1: is no stage", "01_a/op/dispatch/dispatch.cu")

    def test_a_mark_lifts_the_limit_for_one_stage_in_ten(self):
        mark = "1_x.cpp; large step: so"
        for number in range(2, 11):
            self.put_stage(f"01_a/op/{number}_y.cpp", "1_x.cpp")
        self.put_stage("01_a/op/11_z.cpp", mark, numbered(500))
        self.assertEqual(self.mistakes(), [])
        self.put_stage("01_a/op/5_y.cpp", mark, numbered(600))
        self.assert_one(
            self.mistakes(), "01_a/op/11_z.cpp:5: 2 stages have a mark", "1 may", "501 lines of new", "step smaller"
        )
        self.put_stage("01_a/op/5_y.cpp", mark)
        self.assert_one(self.mistakes(), "01_a/op/5_y.cpp:5: 2 stages have a mark", "take it away")

    def test_there_may_be_so_many_stages(self):
        for number in range(2, rules.STAGES + 1):
            self.put_stage(f"01_a/op/{number}_y.cpp", "1_x.cpp")
        self.assertEqual(self.mistakes(), [])
        self.put_stage("02_b/op/1_z.cpp", "nothing")
        self.assert_one(self.mistakes(), "02_b/op/1_z.cpp:1: is one of 121 stages, and there may be 120")

    def test_half_of_the_stages_are_short(self):
        for number in range(2, 40):
            self.put_stage(f"01_a/op/{number}_y.cpp", "1_x.cpp", numbered(50 if number % 2 else rules.MEDIAN + 1))
        self.assertEqual(self.mistakes(), [])
        self.put_stage("01_a/op/3_y.cpp", "1_x.cpp", numbered(180))
        self.put_stage("01_a/op/5_y.cpp", "1_x.cpp", numbered(170))
        self.assert_one(self.mistakes(), "01_a/op/3_y.cpp:5: half of all stages have more than")

    def test_ports_to_the_gpu_are_not_counted(self):
        for number in range(2, 6):
            self.put_stage(f"01_a/op/{number}_y.cu", "1_x.cpp; port to the GPU: so", numbered(200))
        self.assertEqual(self.mistakes(), [])
        self.assertEqual(rules.marked(self.steps()), [])

    def test_a_port_ends_in_a_cu_file(self):
        self.put_stage("01_a/op/2_y.cpp", "1_x.cpp; port to the GPU: so")
        self.assert_one(self.mistakes(), "01_a/op/2_y.cpp:5: ", "it is no .cu file")

    def test_a_port_begins_on_the_cpu(self):
        for number, kernel in ((2, "__global__ void f() {}"), (4, "  launch(f, {1, 1});"), (6, "f<<<1, 1>>>();")):
            self.put_stage(f"01_a/op/{number}_y.cu", "1_x.cpp", kernel + "\n")
            self.put_stage(f"01_a/op/{number + 1}_z.cu", f"{number}_y.cu; port to the GPU: so")
            self.assert_one(self.mistakes(), f"01_a/op/{number + 1}_z.cu:5: ", f"{number}_y.cu runs on the GPU already")
            self.put_stage(f"01_a/op/{number + 1}_z.cu", f"{number}_y.cu")

    def test_a_port_may_begin_in_a_cu_file_without_a_kernel(self):
        self.put_stage("01_a/op/2_y.cu", "1_x.cpp", "// launch(f);\nother::dispatch(a);\n")
        self.put_stage("01_a/op/3_z.cu", "2_y.cu; port to the GPU: so")
        self.assertEqual(self.mistakes(), [])


class Includes(Folder):
    def setUp(self):
        super().setUp()
        self.put("01_a/sum.hpp", "struct Arguments {\n};\n")
        self.put("01_a/more.hpp", "using gla::HalfArguments;\n")
        self.put("01_a/small.hpp", "// struct Arguments\nint helper();\n")
        self.put("01_a/operators.hpp", "Operator definition();\n")
        self.put("01_a/op/inner.hpp", "struct Arguments {};\n")
        self.put("01_a/tile.cuh", "struct Arguments {};\n")
        self.put("02_b/own.hpp", "int own();\n")

    def found(self, path: str, *headers: str) -> list[str]:
        self.put(path, body(*(f'#include "{header}"' for header in headers)))
        found = [str(mistake) for mistake in includes.check(self.root)]
        (self.root / path).unlink()
        return found

    def test_what_is_allowed(self):
        headers = ("common/view.hpp", "02_b/own.hpp", "own.hpp", "01_a/sum.hpp", "01_a/more.hpp")
        for path in ("02_b/op/1_x.cu", "02_b/helper.cuh", "02_b/test/x_test.cpp"):
            self.assertEqual(self.found(path, *headers), [])

    def test_private_headers(self):
        for header in (
            "01_a/small.hpp",
            "01_a/op/inner.hpp",
            "01_a/tile.cuh",
            "01_a/missing.hpp",
            "01_a/test/stages.hpp",
        ):
            for path in ("02_b/op/1_x.cu", "02_b/test/x_test.cpp", "02_b/main.cpp"):
                self.assert_one(
                    self.found(path, "common/view.hpp", header), f"{path}:2: includes {header}, a private header"
                )

    def test_a_way_around_by_relative_paths(self):
        self.assert_one(self.found("02_b/op/1_x.cu", "../../01_a/tile.cuh"), "includes 01_a/tile.cuh")

    def test_operators_hpp_is_for_the_runner(self):
        for path in ("02_b/main.cpp", "02_b/operators.cpp", "02_b/decode_operators.cpp"):
            self.assertEqual(self.found(path, "01_a/operators.hpp"), [])
        for path in ("02_b/op/1_x.cu", "02_b/test/main.cpp", "02_b/own_operators.hpp"):
            self.assert_one(
                self.found(path, "01_a/operators.hpp"), f"{path}:1: includes 01_a/operators.hpp, which is for"
            )


class Command(Folder):
    def setUp(self):
        super().setUp()
        self.put("01_a/README.md", "# 01 A: one\n")
        self.put_stage("01_a/op/1_x.cpp", "nothing")
        self.put_stage("01_a/op/2_y.cpp", "1_x.cpp", "int b;\n")
        self.put_stage("01_a/other/1_x.cpp", "nothing")
        self.put_stage("02_b/1_z.cu", "01_a/op/2_y.cpp; port to the GPU: so | so", "int c;\n")
        self.put(page.PATH, f"# T\n\nWords.\n\n{page.BEGIN}\n{page.END}\n")

    def test_a_stage(self):
        for arguments in (("01_a", "y"), ("01_a", "op/y")):
            status, out, err = self.run_command(*arguments)
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(
                out.startswith(
                    "--- 01_a/op/1_x.cpp\n+++ 01_a/op/2_y.cpp\n1 line of code removed, 1 added; 2 lines of new reading\n@@"
                ),
                out,
            )
            self.assertIn("+/// Grows out of: 1_x.cpp\n", out)
            self.assertTrue(out.endswith("-int a;\n+int b;\n"), out)

    def test_no_comments(self):
        for arguments in (("01_a", "y", "--no-comments"), ("01_a", "--no-comments", "y")):
            status, out, _ = self.run_command(*arguments)
            self.assertEqual(status, 0)
            self.assertNotIn("///", out)
            self.assertTrue(out.endswith("-int a;\n+int b;\n"), out)

    def test_files_that_are_read_for_the_first_time(self):
        self.put_stage("01_a/op/2_y.cpp", "1_x.cpp", '#include "y.hpp"\nint b;\n')
        self.put("01_a/op/y.hpp", "#pragma once\n/// All of y.\nint y;\n")
        listed = "\nread here for the first time:\n  01_a/op/y.hpp  1 line of code\n"
        self.assertTrue(self.run_command("01_a", "y")[1].endswith(listed))
        whole = "\n--- /dev/null\n+++ 01_a/op/y.hpp\n@@ -0,0 +1,3 @@\n+#pragma once\n+/// All of y.\n+int y;\n"
        self.assertTrue(self.run_command("01_a", "y", "--whole")[1].endswith(listed + whole))
        code = "\n--- /dev/null\n+++ 01_a/op/y.hpp\n@@ -0,0 +3,1 @@\n+int y;\n"
        self.assertTrue(self.run_command("01_a", "y", "--whole", "--no-comments")[1].endswith(listed + code))

    def test_a_first_stage(self):
        self.put_stage("01_a/op/1_x.cpp", "nothing", '#include "x.hpp"\nint a;\n')
        self.put("01_a/op/x.hpp", "int x;\n")
        said = (
            "01_a/op/1_x.cpp grows out of nothing: it is the first stage of its operator\n"
            "1 line of code, 1 in 1 file read here for the first time; 2 lines of new reading\n"
            "\nread here for the first time:\n  01_a/op/x.hpp  1 line of code\n"
        )
        self.assertEqual(self.run_command("01_a", "op/x")[:2], (0, said))
        whole = self.run_command("01_a", "op/x", "--whole", "--no-comments")[1]
        self.assertTrue(whole.startswith(said))
        self.assertIn("+++ 01_a/op/1_x.cpp\n@@ -0,0 +9,1 @@\n+int a;\n", whole)
        self.assertTrue(whole.endswith("+++ 01_a/op/x.hpp\n@@ -0,0 +1,1 @@\n+int x;\n"), whole)

    def test_of_several_stages_of_a_name_the_first_is_shown(self):
        self.put_stage("01_a/another/2_y.cpp", "01_a/op/2_y.cpp")
        self.put("01_a/main.cpp", "op::y(); another::y();\n")
        status, out, err = self.run_command("01_a", "y")
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(out.startswith("--- 01_a/op/1_x.cpp\n+++ 01_a/op/2_y.cpp\n"), out)
        self.assertEqual(out.splitlines()[3], "the chapter has other stages of this name: another/y")
        self.assertNotIn("other stages", self.run_command("01_a", "op/y")[1])

    def test_a_table(self):
        status, out, _ = self.run_command()
        self.assertEqual((status, len(out.splitlines())), (0, 6))
        self.assertEqual(len(self.run_command("02_b")[1].splitlines()), 3)

    def test_bad_usage_is_one_line(self):
        self.put_stage("02_b/2_no_line.cu", None)
        self.put_stage("02_b/3_no_parent.cu", "9_x.cu")
        for arguments, words in (
            (("01_a", "w"), "its stages are: op/x op/y other/x"),
            (("03_c", "x"), "'03_c'"),
            (("02_b", "no_line"), "02_b/2_no_line.cu:1: "),
            (("02_b", "no_parent"), "02_b/3_no_parent.cu:5: grows out of 9_x.cu, which does not exist"),
            (("--colour",), "--colour"),
            (("a", "b", "c"), "c"),
            (("--no-comments",), "--no-comments needs a stage"),
            (("01_a", "--whole"), "--whole needs a stage"),
            (("--comments",), "--comments"),
            (("--check", "--write"), "choose one"),
            (("--check", "01_a"), "all stages"),
            (("--check", "--whole"), "all stages"),
        ):
            status, out, err = self.run_command(*arguments)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), (arguments, err))
            self.assertTrue(err.startswith("tutorial: "), err)
            self.assertIn(words, err)

    def test_the_page_is_written_and_compared(self):
        status, out, err = self.run_command("--check")
        self.assertEqual((status, err), (1, "tutorial: 1 mistake\n"))
        self.assertIn(f"{page.PATH}: ", out)
        self.assertEqual(self.run_command("--write")[0], 0)
        self.assertEqual(self.run_command("--check"), (0, goals.table(self.steps()), ""))
        text = (self.root / page.PATH).read_text(encoding="utf-8")
        self.assertTrue(text.startswith("# T\n\nWords.\n\n"), text)
        self.assertIn("## 01 A: one\n", text)
        self.assertIn("| **op** |", text)
        self.assertIn("| [`y`](../01_a/op/2_y.cpp) | [`1_x.cpp`](../01_a/op/1_x.cpp) | 1 | 1 | 0 | 2 |  |\n", text)
        self.assertIn(r"| 1 | 1 | 0 | 2 | port to the GPU: so \| so |", text)
        self.put_stage("01_a/op/2_y.cpp", "1_x.cpp", "int b;\nint c;\n")
        self.assertTrue(self.run_command("--check")[1].startswith(f"{page.PATH}: its table is"))

    def test_the_goals_and_where_the_stages_are(self):
        self.put_stage("01_a/op/3_y.cu", "1_x.cpp; large step: so", "int a;\n" + numbered(300))
        self.put_stage("01_a/op/4_y.cu", "1_x.cpp", "int a;\n" + numbered(201))
        self.put("01_a/op/dispatch/dispatch.cu", numbered(500))
        lines = [re.split("  +", line) for line in goals.table(self.steps()).splitlines()]
        self.assertEqual([line[0] for line in lines[1:]][0], "numbered stages")
        self.assertEqual(
            [line[1:] for line in lines[1:]],
            [["6", "at most 120"], ["2", "at most 90"], ["1", "none"], ["1 of 4", "at most 1 in 10"]],
        )

    def test_a_page_without_a_place_for_the_table(self):
        self.put(page.PATH, f"# T\n\n{page.END}\n{page.BEGIN}\n")
        self.assertEqual(self.run_command("--write")[0], 2)
        (self.root / page.PATH).unlink()
        status, _, err = self.run_command("--check")
        self.assertEqual((status, err.count("\n")), (2, 1))

    def test_the_check_looks_at_includes_too(self):
        self.run_command("--write")
        self.put("02_b/x.cuh", '#include "01_a/op/x.cuh"\n')
        status, out, _ = self.run_command("--check")
        self.assertEqual(status, 1)
        self.assertTrue(out.startswith("02_b/x.cuh:1: "), out)


class Script(Folder):
    """./tutorial diff in a copy of the tool that is no clone."""

    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "tutorial", self.root)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/console.py", self.root / "tools")
        shutil.copytree(
            ROOT / "tools/stages", self.root / "tools/stages", ignore=shutil.ignore_patterns("test", "__pycache__")
        )
        for path in ("01_a/CMakeLists.txt", "02_b/CMakeLists.txt"):
            self.put(path, "")
        self.put_stage("01_a/op/1_x.cpp", "nothing")
        self.put_stage("02_b/1_z.cpp", "01_a/op/1_x.cpp", "int b;\n")

    def tutorial(self, *arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [self.root / "tutorial", *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout, done.stderr

    def test_a_chapter_is_named_as_everywhere(self):
        for name in ("2", "02", "02_b", "02_b/", "b"):
            status, out, err = self.tutorial("diff", name, "z")
            self.assertEqual((status, err), (0, ""))
            self.assertTrue(out.endswith("\n-int a;\n+int b;\n"), out)

    def test_options_may_stand_in_front(self):
        out = self.tutorial("diff", "--no-comments", "2", "z")[1]
        self.assertTrue(out.endswith("@@ -8,1 +8,1 @@\n-int a;\n+int b;\n"), out)

    def test_the_table_and_help(self):
        self.assertIn("op/x", self.tutorial("diff")[1])
        self.assertIn("STAGE", self.tutorial("diff", "--help")[1])
        self.assertIn("./tutorial diff [CHAPTER [STAGE]]", self.tutorial("--help")[1])

    def test_bad_usage(self):
        for arguments in (
            ("diff", "7", "z"),
            ("diff", "2", "y"),
            ("diff", "--backend", "cuda"),
            ("diff", "2", "z", "--more"),
        ):
            status, out, err = self.tutorial(*arguments)
            self.assertEqual((status, out, err.count("\n")), (2, "", 1), (arguments, err))


class Repository(unittest.TestCase):
    def test_stages_are_called_as_the_tables_of_contents_call_them(self):
        found = stage.find(ROOT)
        self.assertGreater(len(found), 50)
        for one in found.values():
            self.assertIn(f'"{one.name}"', source.read(ROOT / one.chapter / "main.cpp"), one.path)


if __name__ == "__main__":
    unittest.main()
