#!/usr/bin/env python3
"""How pages are made of READMEs and sources, without Doxygen and without a browser."""

import contextlib
import io
from pathlib import Path
import re
import sys
import tempfile
import unittest
from unittest import mock

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "pictures")]

import build  # noqa: E402
import drawings as drawings_module  # noqa: E402
import labels  # noqa: E402
import memory  # noqa: E402
import translations  # noqa: E402
from book import annotate, changes, comments, markdown, pages, repository, site, stories, techniques, translated, tree  # noqa: E402
from book.pages import Book, code_page  # noqa: E402
from book.repository import ROOT, Chapter, chapters, read, sources  # noqa: E402
from book.stories import Story  # noqa: E402
from filter import filtered  # noqa: E402
from stages import difference, reading, stage  # noqa: E402
from svg import Picture  # noqa: E402

STAGE = """/// @file
/// Stage 1, `one`: it adds.
///
/// Idea: a sum. Improves on: nothing. Unchanged: all
/// of it.
///
///   S = S + 1
///
/// Requires: nothing.

#include <a>

namespace tutorial {

/// Adds.
/// @param x what is added, x <y>
int add(int x) { return x + 1; }

}  // namespace tutorial
"""


class Building(unittest.TestCase):
    """What becomes of the book that was there before."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.output = self.folder / "docs"

    def build(self, result) -> tuple[int, str]:
        """Builds a book of one page; `result` is its status or what goes wrong."""

        def made_up(output: Path) -> int:
            (output / "html").mkdir()
            (output / "html/index.html").write_text("new", encoding="utf-8")
            if isinstance(result, BaseException):
                raise result
            return result

        with mock.patch.object(build, "build", made_up), mock.patch.object(sys, "argv", ["build.py", str(self.output)]):
            with contextlib.redirect_stderr(io.StringIO()) as text:
                return build.main(), text.getvalue()

    def index(self) -> str:
        return (self.output / "html/index.html").read_text(encoding="utf-8")

    def test_the_old_book_stands_until_the_new_one_does(self):
        self.assertEqual(self.build(0), (0, ""))
        (self.output / "html/index.html").write_text("old", encoding="utf-8")
        for result, status in ((1, 1), (KeyboardInterrupt(), 130), (OSError(28, "No space left", "x"), 2)):
            self.assertEqual(self.build(result)[0], status)
            self.assertEqual(self.index(), "old")
        self.assertEqual(self.build(0)[0], 0)
        self.assertEqual(self.index(), "new")
        self.assertEqual([path.name for path in self.folder.iterdir()], ["docs"])

    def test_what_cannot_be_written_is_one_line(self):
        self.output.touch()
        self.assertEqual(self.build(0), (2, f"{self.output} is a file, and the book is a folder\n"))
        self.output = self.output / "docs"
        status, text = self.build(0)
        self.assertEqual((status, text.count("\n")), (2, 1), text)
        self.assertEqual(self.build(KeyboardInterrupt())[1].count("\n"), 1)

    def test_paths_may_have_spaces(self):
        self.assertEqual(build.quoted(["a b", "c"]), '"a b" "c"')
        for line in (ROOT / "docs/Doxyfile.in").read_text(encoding="utf-8").splitlines():
            for place in re.findall(r"\S*@(?!PAGES@|SOURCES@)[A-Z_]+@\S*", line):
                self.assertTrue(line.startswith("#") or re.fullmatch('".*"', place), line)


class Comments(unittest.TestCase):
    def test_an_indented_run_after_an_empty_line_stays_as_it_is(self):
        text = comments.markdown(["An equation:", "", "  S = q_t *k*", "    <x>", "", "and text"])
        self.assertIn("```{.unparsed}\nS = q_t *k*\n  <x>\n```", text)
        self.assertIn("and text", text)

    def test_prose_says_nothing_to_doxygen(self):
        self.assertEqual(comments.escape("a <b> @c [L]: `<b>`"), "a &lt;b&gt; @@c [L]: `<b>`")
        self.assertEqual(comments.escape("i <= t, x < y, `U'`"), "i <= t, x < y, ``U'``")
        self.assertEqual(comments.escape("94 %。70 % of, `%。`"), "94 \\%。70 % of, `%。`")

    def test_a_shape_at_the_start_of_a_line_defines_no_link(self):
        self.assertEqual(comments.escape("[B, L]: of\n  [H]: `x`, [H]: y"), "&zwj;[B, L]: of\n  &zwj;[H]: `x`, [H]: y")

    def test_labels_are_bold_and_begin_paragraphs(self):
        text = comments.prose(["Idea: one.", "Improves on: two. Unchanged: three."])
        self.assertIn("**Idea:** one.\n\n**Improves on:** two. **Unchanged:** three.", text)


class Annotate(unittest.TestCase):
    def test_the_idea_then_text_and_code_in_turn(self):
        idea, source = annotate.annotated(STAGE)
        self.assertIn("**Idea:** a sum.", idea)
        self.assertLess(source.index("#include <a>"), source.index("Adds."))
        self.assertLess(source.index("Adds."), source.index("int add(int x)"))

    def test_nothing_of_a_source_is_lost(self):
        for chapter in chapters():
            for path in chapter.stages:
                pages = "\n".join(annotate.annotated(read(path)))
                for line in read(path).splitlines():
                    if line.strip() and not line.lstrip().startswith(("///", "#pragma once")):
                        self.assertIn(line, pages, path)


class Changes(unittest.TestCase):
    """What a stage changes in the one that it grows out of."""

    CODE = difference.compare("a;\nb < 1;\n", "a;\n\nB < 1;\nc;\n")

    def step(self, path: str, text: str, code: difference.Difference | None) -> reading.Step:
        files = [reading.File("common/tile/state.cuh", 66), reading.File("01_linear_attention/causal_dot_product.hpp", 1)]
        return reading.Step(stage.parse(path, text), code, 3, files)

    def test_a_diff_is_open_below_its_count(self):
        step = self.step("01_a/2_y.cpp", "/// Grows out of: 1_x.cpp\n", self.CODE)
        text = changes.details(step, self.CODE)
        self.assertIn('<details class="changes" id="changes" open>', text)
        self.assertIn("<code>1_x.cpp</code>: 1 line of code removed, 2 added, 67 in 2 files", text)
        self.assertIn("; 70 lines of new reading</summary>", text)
        self.assertIn('<span class="same"> a;</span><span class="removed">-b &lt; 1;</span>', text)
        self.assertIn('<span class="added">+B &lt; 1;</span><span class="added">+c;</span>', text)

    def test_a_stage_has_one_where_it_grows_out_of_another(self):
        with tempfile.TemporaryDirectory() as folder:
            book = Book(Path(folder))
            grown, first = book.chapters[0].stages[1], book.chapters[0].stages[0]
            name = Path(first).name
            text = f"/// @file\n/// Idea: one.\n/// Grows out of: {name}; port to the GPU: so\n/// Requires: nothing.\n"
            book.steps[grown] = self.step(grown, text, self.CODE)
            book.steps[first] = self.step(first, text, None)
            idea = annotate.annotated(text)[0]
            link = f"[`{name}`]({code_page(first)}.html)"
            self.assertIn(f"**Grows out of:** {link}; port to the GPU: so", book.linked(grown, idea))
            self.assertEqual(book.linked(first, idea), idea)
            for path, step in book.steps.items():
                book.source(path, "title", "")
                page = (Path(folder) / f"{code_page(path)}.md").read_text(encoding="utf-8")
                self.assertEqual(page.count('<details class="changes" id="changes" open>'), step.code is not None, path)
                self.assertIn(f"; {step.new} line{'s' * (step.new != 1)} of new reading", page, path)
                for file in step.files:
                    self.assertRegex(page, rf"\n- \[`{file.path}`\]\([\w.:/]+\): {file.lines} lines? of code\n")

    def test_the_diff_has_comments_but_not_the_opening_comment(self):
        """The opening comment is the text of the page."""
        with tempfile.TemporaryDirectory() as folder:
            book = Book(Path(folder))
            texts = [book.changes(path) for path, step in list(book.steps.items())[:20] if step.code]
            for kind in ("added", "removed", "same"):  # unchanged lines, too
                self.assertTrue(any(re.search(rf'<span class="{kind}">.[^<]*//[^<]*</span>', text) for text in texts), kind)
            for text in texts:
                self.assertNotIn("@file", text)
                self.assertNotIn("Grows out of", text)


class Stories(unittest.TestCase):
    """Which page tells of a source."""

    STAGES = [f"05_x/{name}" for name in ("rule/1_a.cpp", "rule/2_b.cu", "rule_backward/1_a.cpp", "kda/1_a.cpp")]
    STAGES += [f"05_x/{name}" for name in ("kda/2_b.cu", "kda_backward/1_a.cpp", "decode/1_a.cu")]
    SHARED = ["05_x/kda.hpp", "05_x/kda/dispatch/dispatch.cu", "05_x/kda_backward/walk.hpp", "05_x/main.cpp"]
    TEXTS = {
        "README.md": "# 05 X\n\n[a](rule/1_a.cpp)\n",
        "kda/README.md": "# KDA\n\n## `kda`\n\n### `a`\n\n## The gradients: `kda_backward`\n\n### `a`\n\n## Measured\n\n### B\n\nof KDA\n",
        "rule_backward/README.md": "# Gradients\n\n[one](../decode/1_a.cu)\n",
    }

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for path, text in self.TEXTS.items():
            file = Path(folder.name) / "05_x" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        for module in (repository, stories):
            self.enterContext(mock.patch.object(module, "ROOT", Path(folder.name)))
        self.enterContext(mock.patch.dict(repository.TOLD_WITH, {"decode": "rule_backward"}))
        self.chapter = Chapter("05_x", "05 X", self.STAGES, self.SHARED)
        self.own, self.gradients, self.kda = stories.stories(self.chapter)

    def test_a_branch_has_its_operator_and_its_gradients(self):
        self.assertEqual((self.kda.name, self.kda.title), ("branch_05_kda", "KDA"))
        self.assertEqual(self.kda.stages, self.STAGES[3:6])
        self.assertEqual(self.kda.shared, self.SHARED[:3])
        self.assertEqual(self.gradients.stages, [self.STAGES[2], self.STAGES[6]])
        self.assertEqual((self.own.stages, self.own.shared), (self.STAGES[:2], self.SHARED[3:]))

    def test_a_stage_leads_to_the_section_about_it(self):
        self.assertEqual(self.kda.section("05_x/kda/1_a.cpp"), "a")
        self.assertEqual(self.kda.section("05_x/kda_backward/1_a.cpp"), "a-1")
        self.assertIsNone(self.kda.section("05_x/kda/2_b.cu"))

    def test_a_chapter_lists_its_branches_after_its_stages(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(pages, "read", lambda path: self.TEXTS[path[5:]]):
            book = self.book(folder)
            with mock.patch.object(book, "source") as source:
                book.chapter(self.chapter, ("index.html", "Contents"), ("chapter_06.html", "06 Y"))
            page = {name: (Path(folder) / f"{name}.md").read_text(encoding="utf-8") for name in book.written}
        listed = [one for one in re.findall(r"@subpage (\w+)|(Branches of this chapter):", page["chapter_05"])]
        self.assertEqual(
            ["".join(one) for one in listed],
            [*map(code_page, self.STAGES[:2]), "Branches of this chapter", "branch_05_rule_backward", "branch_05_kda", "chapter_05_files"],
        )
        for kind, link in (("previous", "branch_05_rule_backward"), ("up", "chapter_05"), ("next", "chapter_06")):
            self.assertIn(f'<a class="{kind}" href="{link}.html">', page["branch_05_kda"])
        links = {call.args[0]: call.args[2] for call in source.call_args_list}
        self.assertEqual(set(links), {*self.STAGES, *self.SHARED})
        self.assertIn('<a class="up" href="branch_05_kda.html#branch_05_kda_a-1">', links["05_x/kda_backward/1_a.cpp"])
        self.assertIn('<a class="next" href="chapter_06.html">', links["05_x/rule/2_b.cu"])  # the path, past branches

    def test_measured_sections_of_branches_are_collected(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(pages, "read", lambda path: self.TEXTS[path[5:]]):
            book = self.book(folder)
            book.timings()
            text = (Path(folder) / "timings.md").read_text(encoding="utf-8")
        self.assertIn("## KDA {#timings_05_kda}", text)
        self.assertIn("### B {#timings_05_kda_b}", text)
        self.assertIn("of KDA", text)
        self.assertNotIn("## Gradients", text)  # has measured nothing

    def book(self, folder: str) -> Book:
        """A book of this chapter alone."""
        told = stories.stories(self.chapter)
        with mock.patch.object(pages, "chapters", lambda: [self.chapter]), mock.patch.object(pages, "ROOT", repository.ROOT):
            book = Book(Path(folder))
        book.readmes = {one.readme: one.name for one in told}
        book.resolve = lambda path: f"{path}.html"
        return book


class Texts(unittest.TestCase):
    """Pages of Markdown files."""

    def test_all_of_them_are_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            book = Book(Path(folder))
            for path in sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "docs/notebook").glob("**/*.md")):
                self.assertIn(str(path.relative_to(ROOT)), book.readmes)

    def test_names_are_told_by_paths(self):
        self.assertEqual(pages.text_page("docs/symbols.md"), "symbols")
        self.assertEqual(pages.text_page("docs/notebook/README.md"), "notebook")
        self.assertEqual(pages.text_page("docs/notebook/05_kda.md"), "notebook_05_kda")
        self.assertEqual(pages.text_page("docs/notebook/subject/05.md"), "notebook_subject_05")
        with self.assertRaises(SystemExit):
            pages.unique([("a/b.md", "a_b"), ("a_b.md", "a_b")])


class Translations(unittest.TestCase):
    """What a translated page says of the English one."""

    ENGLISH = (
        "# 02 T\n\n[中文](README.zh.md)\n\nA question.\n\n## A b\n\n```sh\n## no heading\n```\n\n### `x`\n\nOld.\n\n"
        "<!-- timings: written -->\n\n| [01](01/README.md) | learn | 1 ms |\n\n<!-- end of timings -->\n\n#### deep\n\n## A b\n"
    )
    CHINESE = (
        "# 02 题\n\n[English](README.md)\n\n<!-- translates introduction -->\n\n问题。\n\n<!-- translates a-b -->\n\n## 甲，乙\n\n"
        "<!-- translates x -->\n\n### `x`\n\n<!-- translates a-b-1 -->\n\n## 甲乙\n"
    )

    def found(self, english: str, chinese: str) -> list[tuple[str, str]]:
        return [(one.what, one.slug) for one in translated.findings(translated.sections(english), chinese)]

    def test_sections_are_headings_of_two_levels_and_what_is_before_them(self):
        found = translated.sections(self.ENGLISH)
        self.assertEqual([one.slug for one in found], ["introduction", "a-b", "x", "a-b-1"])
        self.assertEqual("".join(one.text for one in found), self.ENGLISH)
        self.assertIn("#### deep", found[2].text)

    def test_a_section_is_stale_when_its_words_change(self):
        accepted = translated.accepted(translated.sections(self.ENGLISH), self.CHINESE, [])
        self.assertEqual(self.found(self.ENGLISH, accepted), [])
        for same in (
            self.ENGLISH.replace("A question.", "A\nquestion."),
            self.ENGLISH.replace("1 ms", "2 ms"),  # generated
            self.ENGLISH.replace("[中文](README.zh.md)\n\n", ""),
        ):
            self.assertEqual(self.found(same, accepted), [])
        for text, expected in (
            (self.ENGLISH.replace("A question.", "A riddle."), [("stale", "introduction")]),
            (self.ENGLISH.replace("Old.", "New."), [("stale", "x")]),
            (self.ENGLISH.replace("| learn |", "| forget |"), [("stale", "x")]),  # a cell that people write
            (self.ENGLISH.replace("## no heading", "ls"), [("stale", "a-b")]),
            (self.ENGLISH.replace("### `x`", "### `y`"), [("missing", "y"), ("superfluous", "x")]),
        ):
            self.assertEqual(self.found(text, accepted), expected)

    def test_a_comment_without_a_hash_is_not_yet_accepted(self):
        self.assertEqual({what for what, _ in self.found(self.ENGLISH, self.CHINESE)}, {"stale"})
        some = translated.accepted(translated.sections(self.ENGLISH), self.CHINESE, ["x"])
        self.assertEqual([slug for _, slug in self.found(self.ENGLISH, some)], ["introduction", "a-b", "a-b-1"])

    def test_sections_stand_in_the_order_of_the_english_page(self):
        a, x = "<!-- translates a-b -->", "<!-- translates x -->"
        swapped = self.CHINESE.replace(a, "A").replace(x, a).replace("A", x)
        accepted = translated.accepted(translated.sections(self.ENGLISH), swapped, [])
        self.assertEqual(self.found(self.ENGLISH, accepted), [("misplaced", "x")])

    def test_a_chinese_heading_has_the_id_of_the_english_one(self):
        self.assertEqual(markdown.english_ids(self.CHINESE), {"甲乙": "a-b", "x": "x", "甲乙-1": "a-b-1"})

    def test_what_a_reader_would_get_lost_by_is_an_error(self):
        def error(page: str, what: str, slug: str) -> bool:
            return translations.is_error(page, translated.Finding(what, slug, slug))

        self.assertTrue(error("README.zh.md", "stale", "how-to-read"))
        self.assertTrue(error("02_chunkwise/README.zh.md", "stale", "introduction"))
        self.assertTrue(error("02_chunkwise/README.zh.md", "missing", "pipelined"))
        self.assertFalse(error("02_chunkwise/README.zh.md", "stale", "pipelined"))
        self.assertFalse(error("docs/running.zh.md", "missing", "backends"))

    def run_command(self, *arguments: str) -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.redirect_stderr(text):
            return translations.main(list(arguments)), text.getvalue()

    def test_the_command(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(translations, "ROOT", Path(folder)):
            page = Path(folder) / "README.zh.md"
            page.write_text(self.CHINESE, encoding="utf-8")
            (Path(folder) / "README.md").write_text(self.ENGLISH, encoding="utf-8")
            status, text = self.run_command("--check")
            self.assertEqual((status, text.splitlines()[2]), (1, "README.zh.md: error: stale: `x` (x)"))
            self.assertEqual(self.run_command("--accept", str(page), "nope")[0], 2)
            self.assertEqual(self.run_command("--accept", str(page)), (0, ""))
            self.assertEqual(self.run_command("--check"), (0, ""))
            self.assertEqual(self.run_command("--accept", "README.md")[0], 2)
            self.assertEqual(self.run_command("--sections")[0], 2)


class Labels(unittest.TestCase):
    """Drawings with Chinese words."""

    TABLES = {"all": {"chunk #": "块 #", "registers": "寄存器"}, "p": {"a sum": "和", "the # parts": "# 部分"}}

    def picture(self, *texts: tuple[str, str]) -> Picture:
        picture = Picture("p", 100, 50, "a sum", "the 3 parts")
        for words, kind in texts:
            picture.text(10, 20, words, kind)
        return picture

    def test_words_come_from_the_dictionary_and_numbers_stay(self):
        say = labels.Labels(self.TABLES, picture := self.picture(("chunk 12", "small"), ("registers", "mono"), ("registers now", "small")))
        text = picture.svg(say, "zh-CN")
        self.assertIn(' xml:lang="zh-CN" ', text)
        self.assertIn('<title id="p-t">和</title>\n<desc id="p-d">3 部分</desc>', text)
        self.assertEqual(re.findall(r"<text[^>]*>([^<]*)", text), ["块 12", "registers", "registers now"])
        self.assertEqual(say.missing, ["registers now"])
        self.assertEqual(picture.svg().count("块"), 0)

    def test_a_picture_of_memory_has_the_words_of_all_of_them(self):
        picture = Picture("memory/a_cu", 100, 50, "a sum", "a row")
        for words in ("shared", "registers", "a row"):
            picture.text(10, 20, words)
        tables = self.TABLES | {"memory": {"shared": "共享内存", "a row": "行"}, "memory/a_cu": {"a sum": "和", "a row": "一行"}}
        say = labels.Labels(tables, picture)
        self.assertEqual(re.findall(r"<text[^>]*>([^<]*)", picture.svg(say)), ["共享内存", "寄存器", "一行"])
        self.assertEqual(say.missing, [])

    def test_code_needs_no_words(self):
        for words in ("Q Kᵀ", "S[4][1]", "u0", "fence.proxy.async", "K_0ᵀ V_0", "128", "scores_full 4", "n + 1", "d"):
            self.assertTrue(labels.is_code(words), words)
        for words in ("chunk 0", "lane 6", "O of n", "in line", "start"):
            self.assertFalse(labels.is_code(words), words)

    def test_the_first_chapters_are_all_chinese_and_no_entry_is_left_over(self):
        tables, used = labels.tables(), set()
        drawings = {picture.name: picture for picture in drawings_module.all_drawings() + memory.all_memories()}
        first = {
            name
            for path in ("README.md", "01_linear_attention/README.md", "02_chunkwise/README.md")
            for name in re.findall(r"docs/pictures/((?:memory/)?\w+)\.svg\)", read(path))
        }
        self.assertGreater(len(first), 20)
        for name in labels.shown("svg"):
            say = labels.Labels(tables, drawings[name])
            drawings[name].svg(say)
            used |= say.used
            self.assertEqual(set(tables.get(name, {})) - say.used, set(), f"[{name}] of labels_zh.toml")
            if name in first:
                self.assertEqual(say.missing, [], name)
        for common in ("all", "memory"):
            self.assertEqual(set(tables[common]) - used, set(), f"[{common}] of labels_zh.toml")
        self.assertLessEqual(set(tables) - {"all", "memory"}, labels.shown("svg"))


class Tree(unittest.TestCase):
    """The tree of pages beside the text."""

    def test_it_loses_the_sections_of_pages_and_keeps_the_ways(self):
        with tempfile.TemporaryDirectory() as folder:
            html = Path(folder)
            (html / "navtreedata.js").write_text(
                'var NAVTREE =\n[\n["L", "index.html", [["One", "one.html", "one"], ["F", "f.html", [["m", "f.html#m", null]\n]]]]\n];\n'
                'var NAVTREEINDEX =\n[\n"f.html"\n];\n\nvar SYNCONMSG = \'x\';\n'
            )
            (html / "one.js").write_text(
                'var one =\n[\n["a", "one.html#a", [["b", "one.html#b", null]]],["One: <tt>c</tt>", "c.html", null]\n];\n'
            )
            (html / "navtreeindex0.js").write_text(
                'var NAVTREEINDEX0 =\n{\n"c.html":[0,1],"f.html#m":[1,0],"one.html":[0],"one.html#b":[0,0,0]\n};\n'
            )
            tree.Tree(html, {"one.html", "c.html"}).mend()
            found = tree.variables(html / "navtreedata.js")
            self.assertEqual(found["NAVTREE"][0][2], [["One", "one.html", "one"], ["F", "f.html", [["m", "f.html#m", None]]]])
            self.assertEqual(found["NAVTREEINDEX"], ["f.html"])
            self.assertEqual(tree.variables(html / "one.js"), {"one": [["c", "c.html", None]]})
            ways = {"c.html": [0, 0], "f.html#m": [1, 0], "one.html": [0], "one.html#b": [0]}
            self.assertEqual(tree.variables(html / "navtreeindex0.js"), {"NAVTREEINDEX0": ways})


    def test_a_translated_page_stands_in_the_place_of_the_english_one(self):
        with tempfile.TemporaryDirectory() as folder:
            html = Path(folder)
            (html / "navtreedata.js").write_text(
                'var NAVTREE =\n[\n["L", "index.html", [["One", "one.html", null], ["Eins", "one_zh.html", [["x", "one_zh.html#x", null]]], ["Two", "two.html", null]\n]]\n];\n'
            )
            (html / "navtreeindex0.js").write_text('var NAVTREEINDEX0 =\n{\n"one.html":[0],"one_zh.html":[1]\n};\n')
            (html / "navtreeindex1.js").write_text('var NAVTREEINDEX1 =\n{\n"one_zh.html#x":[1,0],"two.html":[2]\n};\n')
            tree.Tree(html, {"one.html", "one_zh.html", "two.html"}, {"one_zh.html": "one.html"}).mend()
            self.assertEqual([one[0] for one in tree.variables(html / "navtreedata.js")["NAVTREE"][0][2]], ["One", "Two"])
            ways = {**tree.variables(html / "navtreeindex0.js")["NAVTREEINDEX0"], **tree.variables(html / "navtreeindex1.js")["NAVTREEINDEX1"]}
            self.assertEqual(ways, {"one.html": [0], "one_zh.html": [0], "one_zh.html#x": [0], "two.html": [1]})


class Readme(unittest.TestCase):
    def convert(self, text):
        return markdown.Converter(lambda path: path.replace("/", "_") + ".html", "page", "01_a/README.md").convert(text)

    def test_ids_are_githubs(self):
        self.assertEqual(markdown.slug("WY: the identity minus a sum"), "wy-the-identity-minus-a-sum")
        self.assertEqual(markdown.slug("What `x`, really?"), "what-x-really")

    def test_headings_links_formulas(self):
        text = self.convert("# T\n\n## A b\n\n[x](#a-b) [`y`](../c.cu)\n\n```math\na_b \\le c\n```\n")
        self.assertIn("## A b {#page_a-b}", text)
        self.assertIn("[x](page.html#page_a-b)", text)
        self.assertIn("[`y`](c.cu.html)", text)
        self.assertIn("\\f[\na_b \\le c\n\\f]", text)

    def test_headings_of_one_name_have_ids_of_their_own(self):
        text = "# T\n\n## `a`\n\n```sh\n# no heading\n```\n\n## a\n\n## T\n"
        self.assertEqual([slug for _, _, slug in markdown.headings(text)], ["t", "a", "a-1", "t-1"])
        self.assertEqual(re.findall(r"\{#page_(.*)\}", self.convert(text)), ["a", "a-1", "t-1"])

    def test_headings_say_what_doxygen_can_show(self):
        text = self.convert("# T\n\n### What $R_t$ and `a<b>` **cost** & [link](../b.md) -- `x_y`\n\n#### C\n\n## D\n\n### E\n")
        self.assertIn("## What `R_t` and `a<b>` cost & link -- `x_y` {#page_what-r_t-and-ab-cost--link----x_y}\n", text)
        self.assertEqual(re.findall(r"(?m)^#+ ", text), ["## ", "### ", "## ", "### "])  # no level left out
        page = "<title>a &lt;tt&gt;b&lt;/tt&gt;</title><h2>&lt;tt&gt;a&lt;b&gt;&lt;/tt&gt;</h2>"
        self.assertEqual(site.with_code_in_headings(page), "<title>a b</title><h2><code>a&lt;b&gt;</code></h2>")

    def test_words_in_formulas_show_no_backslash(self):
        text = self.convert("# T\n\n$`S_0 = \\text{initial\\_state}`$\n\n```math\n\\text{a\\_b} + \\mathrm{c\\_d}\n```\n")
        self.assertIn("\\text{initial_state}", text)
        self.assertIn("\\text{a_b} + \\mathrm{c\\_d}", text)

    def test_a_piece_of_a_diff_has_colours(self):
        text = self.convert("# T\n\n<!-- diff of a/2_b.cu -->\n```diff\n a < b\n-c\n+d\n...\n```\n\nAfter.\n")
        lines = '<span class="same"> a &lt; b</span><span class="removed">-c</span><span class="added">+d</span><span class="same">...</span>'
        self.assertIn(f'<pre class="fragment diff"><code>{lines}</code></pre>', text)

    def test_comments_are_for_who_edits(self):
        text = self.convert("<!-- Written. -->\n\n# T\n\n<!-- from here -->\n\n| a |\n| --- |\n\n<!-- to here -->\n")
        self.assertEqual(text.strip(), "| a |\n| --- |")

    def test_pictures_keep_their_alternative(self):
        self.assertIn(
            '<img src="p.svg" alt="what it shows"/>', self.convert("# T\n\n![what it shows](../docs/p.svg)\n")
        )

    def test_formulas_within_a_line(self):
        text = self.convert("# T\n\nA $S_t = k_t^T v_t$, $`a \\, b`$ and $q_t\ni$; `$HOME` and $5 stay.\n")
        self.assertIn("A \\f$S_t = k_t^T v_t\\f$, \\f$a \\, b\\f$ and \\f$q_t\ni\\f$;", text)
        self.assertIn("`$HOME` and $5 stay.", text)
        self.assertEqual(text.count("\\f$"), 6)

    def test_a_row_of_a_table_may_hold_formulas(self):
        self.assertIn("| \\f$P_{ti}\\f$ | `P` |", self.convert("# T\n\n| a | b |\n| --- | --- |\n| $P_{ti}$ | `P` |\n"))

    def test_bold_text_may_begin_and_end_with_code(self):
        text = self.convert("# T\n\n**`a`**, **b c\nd** and `**x**` <y>, **`e` f**.\n")
        self.assertIn("<b>`a`</b>, <b>b c\nd</b> and `**x**` &lt;y&gt;, <b>`e` f</b>.", text)

    def test_a_number_at_the_start_of_a_line_begins_no_list(self):
        self.assertIn("from 2 to 64. It\nis", self.convert("# T\n\nfrom 2 to\n64. It\nis\n"))
        for same in ("1. a\n2. b", "9. a\n   b\n10. c", "a\n\n2. b"):
            self.assertIn(same, self.convert(f"# T\n\n{same}\n"))

    def test_no_line_of_text_begins_like_an_item_of_a_list(self):
        for path in [*Book(Path(tempfile.gettempdir())).readmes]:
            for info, _, lines in markdown.blocks(read(path)):
                for before, line in zip(lines, lines[1:]):
                    if info is None and re.match(r"(1\.|\+) ", line) and not re.match(r" *(\d+\.|-) |   ", before):
                        self.assertEqual(before.strip(), "", f"{path}: {line}")

    def test_what_unfolds_stays_html(self):
        text = self.convert("# T\n\n<details>\n<summary>All</summary>\n\n| a |\n| --- |\n\n</details>\n\nb <c>\n")
        self.assertIn("\\htmlonly[block]<details>\n<summary>All</summary>\\endhtmlonly\n\n| a |", text)
        self.assertIn("\\htmlonly[block]</details>\\endhtmlonly", text)
        self.assertIn("b &lt;c&gt;", text)

    def test_formulas_of_readmes_are_closed(self):
        for path in [*Book(Path(tempfile.gettempdir())).readmes]:
            for info, _, lines in markdown.blocks(read(path)):
                if info is None:
                    left = markdown.FORMULA.sub("", "\n".join(lines))
                    self.assertNotIn("$", left, f"{path}: a dollar without its other one")

    def test_a_translated_page_has_the_ids_of_the_english_one(self):
        text = (
            "# 题\n\n[English](README.md)\n\n<!-- translates introduction 0123456789 -->\n\n见[测量](#测量)和[结果](../x.zh.md#结果)。\n\n"
            "<!-- translates measured 0123456789 -->\n\n## 测量\n\n#### `x`\n"
        )
        english = {"x.zh.md": {"结果": "result"}}
        converter = markdown.Converter(lambda path: "x_zh.html", "page_zh", "01_a/README.zh.md", english=lambda path: english[path])
        text = converter.convert(text)
        self.assertTrue(text.lstrip().startswith("见"), "neither a title nor a switch")
        self.assertIn("[测量](page_zh.html#page_zh_measured)", text)
        self.assertIn("[结果](x_zh.html#x_zh_result)", text)
        self.assertIn("## 测量 {#page_zh_measured}\n", text)
        self.assertIn("### `x` {#page_zh_x}", text)
        self.assertNotIn("<!--", text)

    def test_emphasis_needs_no_space_beside_chinese(self):
        text = self.convert("# T\n\n称为*片段*。*分片*是 *a* 与 2 * d，`x*`、$S^*$ 的*和*\n")
        self.assertIn("称为<em>片段</em>。<em>分片</em>是 *a* 与 2 * d，`x*`、\\f$S^*\\f$ 的<em>和</em>", text)

    def test_comments_in_code_stay(self):
        self.assertIn("<!-- a -->", self.convert("# T\n\n```text\n<!-- a -->\n```\n"))

    def test_code_stays_code(self):
        self.assertIn("```{.sh}\n./tutorial #x <y>\n```", self.convert("# T\n\n```sh\n./tutorial #x <y>\n```\n"))


class Site(unittest.TestCase):
    def test_numbers_with_an_exponent_stay_whole(self):
        whole = '<span class="number">2.6e-3</span>'
        self.assertEqual(site.with_whole_numbers("<td>2.6e-3 </td><p>(2.6e-3),"), f"<td>{whole} </td><p>({whole}),")
        for same in ('<a href="page.html#2.6e-3">', "re-3", "x2.6e-3", "2.6e3"):
            self.assertEqual(site.with_whole_numbers(same), same)


    def test_a_formula_and_the_mark_behind_it_stay_together(self):
        self.assertEqual(
            site.with_marks_at_formulas(r"块 \(S^T\)，\(a\) 和（\(b_1\)）, \(c\)."),
            r'块 <span class="whole">\(S^T\)，</span>\(a\) 和<span class="whole">（\(b_1\)）</span>, \(c\).',
        )

    def test_a_page_says_its_language_and_leads_to_the_other(self):
        page = '<html xmlns="x"><title>Linear attention: X</title>' + "".join(site.CHINESE) + "<!-- language -->"
        for name, language, switch in (
            ("a", "en", '<a href="a_zh.html" lang="zh-CN">中文</a> / <b lang="en">English</b>'),
            ("a_zh", "zh-CN", '<b lang="zh-CN">中文</b> / <a href="a.html" lang="en">English</a>'),
            ("b", "en", '<i lang="zh-CN" title="这一页只有英文">中文</i> / <b lang="en">English</b>'),
        ):
            text = site.with_languages(page, name, {"a"})
            self.assertIn(f'<html lang="{language}" xmlns="x">', text)
            self.assertIn(f'<span id="book-language">{switch}</span>', text)
            self.assertEqual("线性注意力：" in text, language == "zh-CN")
        with self.assertRaises(SystemExit):
            site.with_languages("<html >", "a_zh", {"a"})

    def test_the_foot_stands_at_the_end_of_the_text(self):
        foot = '<div id="nav-path" class="navpath"><ul><li>x</li></ul>\n</div>\n'
        page = f"<p>a</p></div><!-- contents -->\n</div><!-- doc-content -->\n<!-- start footer part -->\n{foot}</body>"
        self.assertEqual(site.with_foot(page), f"<p>a</p></div><!-- contents -->\n{foot}</div><!-- doc-content -->\n</body>")

    def test_only_names_with_their_type_link_to_fields(self):
        one, other = ('<a class="code hl_variable" href="x.html">%s</a>' % name for name in ("P", "Tiles::kBytes"))
        self.assertEqual(site.without_guessed_links(f"{one} = {other}"), f"P = {other}")

    def test_a_picture_stands_in_a_box(self):
        shown = '<img src="a.svg" alt="x"/><img src="b.svg"/>'
        text = site.put_pictures(shown, {"a.svg": '<svg class="pic" width="620">'}, {"b.svg"})
        self.assertIn('<div class="picture" style="--natural-width: 620px"><svg class="pic" width="620"></div>', text)
        self.assertIn('<div class="picture"><img src="b.svg"/></div>', text)


class Filter(unittest.TestCase):
    def test_line_numbers_stay(self):
        for folder in ("common", "02_chunkwise", "06_scan"):
            for path in sources(folder):
                if "emulator" in path:
                    continue
                before, after = read(path).splitlines(), filtered(read(path), Path(path)).splitlines()
                self.assertIn(len(after) - len(before), (0, 1), path)  # one more: @endcond at the end
                for i, line in enumerate(before):
                    if line.endswith("{") and line.strip() != "{" and "//" not in line:
                        self.assertIn(line, after[i], path)

    def test_a_comment_is_about_all_of_a_run(self):
        text = filtered("/// @file\n\n// What it needs.\nint a();\nint b();\n\nint c();\n", Path("x.hpp"))
        self.assertIn("/** What it needs. */ int a();", text)
        self.assertIn("/** What it needs. */ int b();", text)
        self.assertIn("\nint c();", text)

    def test_no_first_sentence_ends_within_a_path(self):
        text = filtered("/// @file\n/// One line of `./x y --z`. Two.\n", Path("x.hpp"))
        self.assertIn("/// One line of `x y --z`. Two.\n", text)

    def test_a_doxygen_comment_is_about_its_overloads_only(self):
        text = filtered("/// @file\n\n/// Of one.\nint a(int);\nint a(long);\nint b();\n", Path("x.hpp"))
        self.assertIn("/** Of one. */ int a(long);", text)
        self.assertIn("\nint b();", text)

    def test_two_names_have_one_comment_each(self):
        text = filtered("/// @file\nstruct X {\n  int a, b;  ///< sizes\n};\n", Path("x.hpp"))
        self.assertIn("/** sizes */ int a; /** sizes */ int b;", text)


class Techniques(unittest.TestCase):
    def test_every_place_is_there(self):
        self.assertTrue(all(t.places for t in techniques.load()))

    def test_each_leads_to_the_diff_of_a_stage(self):
        steps = {step.stage.path: step for step in reading.steps(ROOT)}
        for technique in techniques.load():
            first = technique.first(list(steps))
            if technique.name in ("Timing on a GPU", "Choosing a kernel by an estimate"):  # of no stage
                self.assertIsNone(first)
            else:
                self.assertIsNotNone(steps[first].code, technique.name)

    def test_the_first_stage_is_the_one_that_is_read_first(self):
        places = [techniques.Place("c/2.cu", 1), techniques.Place("x.hpp", 1), techniques.Place("c/1.cu", 1)]
        self.assertEqual(techniques.Technique("a", "b", places).first(["c/1.cu", "c/2.cu"]), "c/1.cu")
        self.assertEqual(techniques.Technique("a", "b", places, "c/2.cu").first(["c/1.cu", "c/2.cu"]), "c/2.cu")
        self.assertIsNone(techniques.Technique("a", "b", places[1:2]).first(["c/1.cu"]))
        with self.assertRaises(SystemExit):
            techniques.Technique("a", "b", places, "c/3.cu").first(["c/1.cu"])

    def test_a_pattern_that_matches_nothing_is_an_error(self):
        with self.assertRaises(SystemExit):
            techniques.find("README.md", "no line says this")


class Repository(unittest.TestCase):
    def test_exercises_show_their_task_and_not_their_solution(self):
        with tempfile.TemporaryDirectory() as folder:
            book = Book(Path(folder))
            for chapter in book.chapters:
                page = book.exercises(chapter)
                tasks = [one for one in book.tasks if one.chapter == int(chapter.number)]
                self.assertGreaterEqual(len(tasks), 6)
                for one in tasks:
                    self.assertIn(f"Exercise {one.number}: {one.title}", page)
                self.assertEqual(page.count("Goal: "), len(tasks))
                self.assertNotIn("__global__", page)

    def test_the_tasks_of_a_translated_chapter_are_chinese(self):
        with tempfile.TemporaryDirectory() as folder:
            book = Book(Path(folder))
            chapter = book.chapters[1]
            book.readmes["02_chunkwise/README.zh.md"] = "chapter_02_zh"
            english, chinese = book.exercises(chapter), book.exercises(chapter, "zh")
            self.assertIn("### 练习 2.1：一块的分数 {#chapter_02_zh_checked_exercise-21-the-scores-of-a-chunk}", chinese)
            ids = [re.findall(r"\{#([\w-]+)\}", text) for text in (english, chinese)]
            self.assertEqual([one.replace("chapter_02_", "chapter_02_zh_") for one in ids[0]], ids[1])

    def test_translated_pages_lead_to_translated_pages(self):
        """With a front page and a chapter that are translated."""
        made = {"README.zh.md": "# 首页\n\n[English](README.md)\n", "02_chunkwise/README.zh.md": "# 02 分块\n\n[English](README.md)\n"}
        with tempfile.TemporaryDirectory() as folder:
            book = Book(Path(folder))
            book.translations = {"README.zh.md": "index_zh", "02_chunkwise/README.zh.md": "chapter_02_zh"}
            book.readmes |= book.translations

            def text_of(path: str) -> str:
                return made.get(path) or read(path)

            with mock.patch.object(pages, "read", text_of), mock.patch.object(
                pages, "title", lambda path: re.match("# (.*)", text_of(path))[1]
            ):
                book.translated_pages()
                titles = book.translated_titles()
            page = {name: (Path(folder) / f"{name}.md").read_text(encoding="utf-8") for name in book.written}
        self.assertEqual(titles, {"index": "首页", "chapter_02": "02 分块"})
        self.assertEqual(list(page), ["index_zh", "chapter_02_zh"])
        self.assertIn("- [02 分块](chapter_02_zh.html)\n", page["index_zh"])
        self.assertIn("](chapter_03.html)\n", page["index_zh"])
        for link in ('class="previous" href="chapter_01.html"', 'class="up" href="index_zh.html">目录', 'class="next" href="chapter_03.html"'):
            self.assertIn(link, page["chapter_02_zh"])
        for stage in book.stories["02"][0].stages:
            self.assertIn(f"({code_page(stage)}.html)", page["chapter_02_zh"])
        self.assertNotIn("@subpage", page["chapter_02_zh"] + page["index_zh"])

    def test_stages_stand_in_the_order_of_the_table_of_contents(self):
        for chapter in chapters():
            places = [repository.place_in_main(ROOT, path) for path in chapter.stages]
            self.assertEqual(places, sorted(places))
            for before, after in zip(chapter.stages, chapter.stages[1:]):
                if Path(before).parent == Path(after).parent:
                    self.assertLess(stage.parse(before, "").number, stage.parse(after, "").number)

    def test_pictures_show_without_css_variables(self):
        for path in (ROOT / "docs/pictures").glob("**/*.svg"):
            for tag in re.findall(r"<(?:rect|circle|line|polyline)\b[^>]*>", path.read_text(encoding="utf-8")):
                self.assertRegex(tag, r' (fill="#|stroke=")', path)

    def test_kernels_have_a_picture_of_their_memory(self):
        drawn = {p.stem for p in (ROOT / "docs/pictures/memory").glob("*.svg")}
        for chapter in chapters():
            for path in chapter.stages:
                # A stage without a kernel of its own: a choice, another's kernels or a library's.
                if path.endswith(".cu") and "__global__" in read(path) and "dispatch" not in path:
                    name = path.replace("/", "_").replace(".", "_")
                    self.assertIn(
                        name,
                        drawn
                        | {
                            "02_chunkwise_linear_attention_recurrent_cu",
                            "03_gla_retention_2_gpu_cu",
                            "06_scan_decode_2_prefill_cu",
                        },
                    )


if __name__ == "__main__":
    unittest.main()
