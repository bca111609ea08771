#!/usr/bin/env python3
"""What a page of the book must keep to: pages_test.py [PART ...] [unittest's options].

A PART is a chapter's number or the beginning of a page's path, such as 02 or 05_deltanet_wy/kda; without one all pages are
checked. Pages are the front page, the chapters' READMEs and those of their branches, docs/*.md and docs/notebook. What
holds of translated pages (README.zh.md) stands in a class of its own.
"""

from collections import Counter
from functools import cache
from pathlib import Path
import posixpath
import re
import subprocess
import sys
import unittest

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "tools")]

from book.markdown import FORMULA, SWITCH, TRANSLATES, blocks, slug  # noqa: E402
from book.repository import ROOT, read, story  # noqa: E402
from book.translated import INTRODUCTION, lines_outside_fences, sections  # noqa: E402
from stages.reading import steps  # noqa: E402

# Words of a page, without its generated tables.
WORDS = {
    "README.md": 700,
    "01_linear_attention/README.md": 3900,
    "02_chunkwise/README.md": 4950,
    "03_gla/README.md": 4250,
    "04_fused_chunk/README.md": 4900,
    "05_deltanet_wy/README.md": 4950,
    "06_scan/README.md": 4000,
}
BRANCH_WORDS = 4000
COLUMNS = 96  # of code and drawings within a page
OF_CONTRIBUTORS = ["CONTRIBUTING.md", "exercise/README.md", "tools/compare/README.md", "common/emulator/README.md"]
# What was measured, tried and given up has its place in the notebook; symbols and words are explained where they come.
NOTEBOOK_HEADINGS = re.compile(
    r"(?i)earlier forms?|did not help|what limits|not faster yet|where the (time|clocks)|old forms|tried|symbols|words that are new|glossary"
)
# The pages before the notebook was split off them.
BEFORE = "2afc22429717fc1ce64bda8a5ac88a9ec107c13c"

GENERATED = re.compile(r"(?ms)^<!-- (timings|runs|staircase|stages|sample)\b.*?-->$.*?^<!-- end of \1.*?-->$")
EXCERPT = re.compile(r"(?ms)^<!-- (diff|code) of (\S+) -->\n```(\w*)\n(.*?)^```$")
LINK = re.compile(r"(!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
FIGURE = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?![\w.]*\w)")

PARTS: list[str] = []


def relative(paths) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def chapter_pages() -> list[str]:
    return relative(ROOT.glob("[0-9][0-9]_*/README.md"))


def branch_pages() -> list[str]:
    return relative(ROOT.glob("[0-9][0-9]_*/*/README.md"))


def notebook_pages() -> list[str]:
    return relative((ROOT / "docs/notebook").rglob("*.md"))


def translated_pages() -> list[str]:
    return relative(path for pattern in ("README.zh.md", "[0-9][0-9]_*/README.zh.md", "docs/*.zh.md") for path in ROOT.glob(pattern))


def english(path: str) -> str:
    """The page that a translated one translates."""
    return path.replace(".zh.md", ".md")


def docs_pages() -> list[str]:
    return relative(path for path in (ROOT / "docs").glob("*.md") if not path.name.endswith(".zh.md"))


def wanted(paths: list[str]) -> list[str]:
    """Those that are asked for: a part is a number of a chapter or the beginning of a path."""

    def is_wanted(path: str) -> bool:
        return any(path.startswith(part) or Path(path).name.startswith(f"{part}_") for part in PARTS)

    return [path for path in paths if not PARTS or is_wanted(path)]


def prose(text: str) -> str:
    """A page without what is generated."""
    return GENERATED.sub("", SWITCH.sub("", text))


def code_lines(path: str) -> set[str]:
    return {line.strip() for line in read(path).splitlines()}


@cache
def step_of(path: str):
    return {step.stage.path: step for step in steps(ROOT)}[path]


@cache
def anchors(path: str) -> set[str]:
    """The ids of a page's headings, as GitHub makes them."""
    found = Counter()
    result = set()
    for info, _, lines in blocks(read(path)):
        for line in lines if info is None else ():
            if match := re.match(r"#+ (.*)", line):
                name = slug(match[1])
                result.add(f"{name}-{found[name]}" if found[name] else name)
                found[name] += 1
    return result


def figures(text: str) -> set[str]:
    """Numbers with three significant digits or more, without separators of thousands."""
    result = set()
    for found in FIGURE.findall(text):
        number = re.sub(r",(?=\d{3}\b)", "", found)
        if re.fullmatch(r"\d+(\.\d+)?", number) and len(number.replace(".", "").strip("0")) >= 3:
            result.add(number)
    return result


def capitals(text: str) -> set[str]:
    """The capital letters that stand alone in a page's formulas."""
    formulas = ["\n".join(lines) for info, _, lines in blocks(text) if info == "math"]
    for info, _, lines in blocks(text):
        if info is None:
            formulas += [m["quoted"] or m["plain"] or "" for m in FORMULA.finditer("\n".join(lines))]
    plain = re.sub(r"\\(text|mathrm|operatorname)\{[^}]*\}|\\[a-zA-Z]+|\^\{?\\?T\b\}?|\^T", " ", " ".join(formulas))
    return set(re.findall(r"(?<![A-Za-z])[A-Z](?![A-Za-z])", plain))


def symbols() -> dict[str, set[int]]:
    """The single capital letters of docs/symbols.md, each with its chapters; an empty set stands for all chapters."""
    result: dict[str, set[int]] = {}
    for names, where in re.findall(r"(?m)^\| (`[^|]*`) \|.*\| ([^|]*) \|$", read("docs/symbols.md")):
        chapters = {int(n) for n in re.findall(r"\d\d", where)}
        if span := re.search(r"(\d\d) to (\d\d)", where):
            chapters |= set(range(int(span[1]), int(span[2]) + 1))
        for letter in re.findall(r"`([A-Z])(?:_\w+)?`", names):
            everywhere = not chapters or result.get(letter) == set()
            result[letter] = set() if everywhere else result.get(letter, set()) | chapters
    return result


class Pages(unittest.TestCase):
    def test_words(self):
        counted = {path: len(prose(read(path)).split()) for path in [*chapter_pages(), *branch_pages(), "README.md"]}
        for path in wanted(list(counted)):
            with self.subTest(page=path):
                self.assertLessEqual(counted[path], WORDS.get(path, BRANCH_WORDS))
        if not PARTS:
            self.assertLessEqual(sum(counted[path] for path in chapter_pages()), 27000, "the six chapters together")

    def test_headings(self):
        for path in wanted(chapter_pages() + branch_pages()):
            with self.subTest(page=path):
                found = [line for line in re.findall(r"(?m)^#+ (.*)$", read(path)) if NOTEBOOK_HEADINGS.search(line)]
                self.assertEqual(found, [], "belongs to the notebook, or to where a word is first used")

    def test_width_of_code_and_drawings(self):
        everywhere = relative((ROOT / "docs").rglob("*.md")) + OF_CONTRIBUTORS
        for path in wanted(chapter_pages() + branch_pages() + ["README.md"] + everywhere):
            with self.subTest(page=path):
                wide = [
                    line for info, _, lines in blocks(read(path)) if info not in (None, "math") for line in lines if len(line) > COLUMNS
                ]
                self.assertEqual(wide, [])

    def test_links(self):
        others = docs_pages() + ["README.md", "CONTRIBUTING.md", "common/emulator/README.md"]
        for path in wanted(chapter_pages() + branch_pages() + notebook_pages() + others + translated_pages()):
            with self.subTest(page=path):
                broken = []
                text = "\n".join("\n".join(lines) for info, _, lines in blocks(read(path)) if info is None)
                for _, target in LINK.findall(re.sub(r"`[^`\n]*`", lambda m: re.sub(r"[()]", "", m[0]), text)):
                    if re.match(r"\w+:", target):
                        continue
                    name, _, heading = target.partition("#")
                    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
                    if not (ROOT / file).exists():
                        broken.append(target)
                    elif heading and file.endswith(".md") and heading not in anchors(file):
                        broken.append(target)
                self.assertEqual(broken, [])

    def test_excerpts_are_of_the_code(self):
        for path in wanted(chapter_pages() + branch_pages()):
            with self.subTest(page=path):
                for kind, file, language, body in EXCERPT.findall(read(path)):
                    self.assertEqual(language, "diff" if kind == "diff" else "cpp" if language == "cpp" else "cuda", file)
                    here = code_lines(file)
                    before = code_lines(step_of(file).stage.parent) if kind == "diff" else set()
                    for line in body.splitlines():
                        sign, code = (line[:1], line[1:].strip()) if kind == "diff" else (" ", line.strip())
                        if code and code != "...":
                            self.assertIn(code, before if sign == "-" else here, f"{file}: {line}")
                told = len(re.findall(r"(?m)^```diff$", read(path)))
                self.assertEqual(told, sum(kind == "diff" for kind, *_ in EXCERPT.findall(read(path))), "a diff says of what")

    def test_capital_letters_of_formulas_are_in_the_table_of_symbols(self):
        known = symbols()
        for path in wanted(chapter_pages() + branch_pages()):
            with self.subTest(page=path):
                chapter = int(path[:2])
                allowed = {letter for letter, where in known.items() if not where or chapter in where}
                self.assertEqual(sorted(capitals(read(path)) - allowed), [], f"docs/symbols.md has not that for chapter {chapter}")

    def test_stages_have_a_section_and_a_picture(self):
        """Every numbered stage has a heading with its name on its page; a stage on the GPU has a picture in that section."""
        for step in steps(ROOT):
            page = story(step.stage.path)
            if page not in wanted([page]):
                continue
            name = Path(step.stage.path).stem.partition("_")[2]
            with self.subTest(stage=step.stage.path, page=page):
                sections = re.findall(rf"(?ms)^(#+) [^\n]*`{name}`[^\n]*\n(.*?)(?=^#|\Z)", read(page))
                self.assertTrue(sections, "has no section")
                if step.stage.path.endswith(".cu"):
                    self.assertTrue(any(".svg)" in body for _, body in sections), "has no picture")

    def test_figures_that_left_a_page_are_in_the_notebook(self):
        """No measurement got lost when the pages became short."""
        known = subprocess.run(["git", "cat-file", "-e", BEFORE], cwd=ROOT, capture_output=True, check=False)
        if known.returncode:
            self.skipTest("the clone does not reach back to the long pages")
        kept = set().union(*(figures(read(page)) for page in [*chapter_pages(), *branch_pages(), *notebook_pages()]))
        kept |= set().union(*(figures(read(page)) for page in docs_pages() + ["common/emulator/README.md"]))
        for path in wanted(chapter_pages()):
            with self.subTest(page=path):
                old = subprocess.run(["git", "show", f"{BEFORE}:{path}"], cwd=ROOT, capture_output=True, check=True, text=True)
                lost = sorted(figures(prose(old.stdout)) - kept)
                self.assertEqual(lost, [], f"{len(lost)} figures stand neither on a page nor in the notebook")


def parts(text: str) -> dict[str, str]:
    """The text of each section of a translated page, by the id of the English section that its comment names."""
    places = [(place, match["slug"]) for place, line in lines_outside_fences(text) if (match := TRANSLATES.fullmatch(line))]
    ends = [place for place, _ in places[1:]] + [len(text)]
    return {slug: text[place:end] for (place, slug), end in zip(places, ends)}


class Translated(unittest.TestCase):
    """Chinese pages: how they are written, and that code, formulas and figures are those of the English page."""

    def test_the_languages_lead_to_each_other(self):
        for path in wanted(translated_pages()):
            with self.subTest(page=path):
                here, there = Path(path).name, Path(english(path)).name
                self.assertRegex(read(path), rf"\A# [^\n]+\n\n\[English\]\({re.escape(there)}\)\n\n<!-- translates {INTRODUCTION} ")
                self.assertRegex(read(english(path)), rf"\A# [^\n]+\n\n\[中文\]\({re.escape(here)}\)\n\n")

    def test_every_section_says_what_it_translates(self):
        for path in wanted(translated_pages()):
            with self.subTest(page=path):
                before, bare = "", []
                for _, line in lines_outside_fences(read(path)):
                    if re.match(r"###? ", line) and not TRANSLATES.fullmatch(before):
                        bare.append(line)
                    before = line or before
                self.assertEqual(bare, [], "have no comment in front")

    def test_code_and_formulas_are_the_same(self):
        def kept(text: str) -> list[str]:
            found = ["\n".join(lines) for info, _, lines in blocks(text) if info in ("cpp", "cuda", "diff", "math")]
            return [re.sub(r"\\text\{[^{}]*\}", r"\\text", block) for block in found]

        for path in wanted(translated_pages()):
            translation = parts(read(path))
            for section in sections(read(english(path))):
                with self.subTest(page=path, section=section.slug):
                    if section.slug in translation:
                        self.assertEqual(kept(translation[section.slug]), kept(section.text))

    def test_figures_are_those_of_the_english_page(self):
        for path in wanted(translated_pages()):
            translation = parts(read(path))
            for section in sections(read(english(path))):
                with self.subTest(page=path, section=section.slug):
                    text = re.sub(r"[\d.]+ ?[万亿]", "", translation.get(section.slug, ""))
                    self.assertEqual(sorted(figures(text) - figures(section.text)), [])

    def test_headings_of_stages_stay(self):
        for path in wanted(translated_pages()):
            found = {code for line in re.findall(r"(?m)^### (.*)$", read(path)) for code in re.findall(r"`[^`]+`", line)}
            there = {code for line in re.findall(r"(?m)^### (.*)$", read(english(path))) for code in re.findall(r"`[^`]+`", line)}
            self.assertEqual(found, there, path)

    def test_a_paragraph_is_one_line(self):
        """GitHub would show a line's end between two Chinese letters as a space."""
        han = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
        for path in wanted(translated_pages()):
            with self.subTest(page=path):
                found = [line for info, _, lines in blocks(read(path)) if info is None for line in lines]
                broken = [after for before, after in zip(found, found[1:]) if re.search(rf"{han}$", before) and re.match(rf" *{han}", after)]
                self.assertEqual([line for line in broken if not line.startswith("#")], [])

    def test_pictures_have_chinese_words_where_they_are_drawn(self):
        for path in wanted(translated_pages()):
            for mark, target in LINK.findall(read(path)):
                name = Path(posixpath.normpath(posixpath.join(posixpath.dirname(path), target)))
                if mark and name.parent in (Path("docs/pictures"), Path("docs/pictures/memory")):
                    self.assertTrue(name.name.endswith(".zh.svg"), f"{path}: {target}")


if __name__ == "__main__":
    while len(sys.argv) > 1 and re.match(r"\d\d", sys.argv[1]):
        PARTS.append(sys.argv.pop(1).rstrip("/"))
    unittest.main()
