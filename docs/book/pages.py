"""The pages of the book, in Markdown for Doxygen."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
import re

from exercises import task
from stages import difference, source
from stages.reading import steps

from . import annotate, changes, techniques
from .comments import escape
from .markdown import Converter, anchor, english_ids, plain, section, slug
from .repository import ROOT, Chapter, chapters, read, title
from .stories import Story, stories
from .techniques import Technique
from .translated import chinese

# Pages of Markdown files that do not get their names from their paths. The main page's name is Doxygen's.
NAMES = {
    "README.md": "index",
    "docs/timings/README.md": "measured",  # ./tutorial compare --publish writes it
    "docs/stages.md": "changes",  # ./tutorial diff --write writes its table
    "docs/cards.md": "cards",
    "docs/README.md": "book",
    "docs/terms_zh.md": "chinese_terms",
    "docs/notebook/README.md": "notebook",
    "common/README.md": "common",
    "common/emulator/README.md": "emulator",
    "golden/README.md": "golden",
    "CONTRIBUTING.md": "contributing",
    "tools/compare/README.md": "compare",
    "exercise/README.md": "exercise",
}

# How the project works, on pages below one of its own.
WORKSHOP = [
    "CONTRIBUTING.md",
    "common/README.md",
    "common/emulator/README.md",
    "exercise/README.md",
    "golden/README.md",
    "tools/compare/README.md",
    "docs/README.md",
]
NOTEBOOK = "docs/notebook"
HANDBOOK = ["docs/running.md", "docs/symbols.md", "docs/choosing.md"]  # what comes first of docs

Link = tuple[str, str]  # an address on the site, and a text

# What the book adds to a README.
WORDS = {
    "en": {
        "exercises": "Exercises that check themselves",
        "how": "`./tutorial exercise {number}` copies the first one's file to `exercises/`. The same command then checks what you have "
        "written, without a GPU.",
        "exercise": "Exercise {}: {}",
    },
    "zh": {
        "exercises": "自动检查的练习",
        "how": "`./tutorial exercise {number}` 把第一个练习的文件复制到 `exercises/`。之后再用同一条命令，就会检查你写的代码，不需要 GPU。",
        "exercise": "练习 {}：{}",
        "contents": "目录",
        "pages": "本书的页面",
        "sources": "逐个看源文件",
        "branches": "本章的支线：",
    },
}


def code_page(path: str) -> str:
    """The name of the page that shows a source."""
    return "code_" + re.sub(r"\W", "_", path)


def text_page(path: str) -> str:
    """The name of the page of a Markdown file."""
    if path.endswith(".zh.md"):
        return translation_page(text_page(path.replace(".zh.md", ".md")))
    return NAMES.get(path) or re.sub(r"\W", "_", path.removeprefix("docs/").removesuffix(".md").removesuffix("/README"))


def translation_page(name: str) -> str:
    """The name of a page's translation. book.js and site.py make it, too."""
    return f"{name}_zh"


def stage_name(path: str) -> str:
    """`gla 7: subchunk_tensor_core`, or `Stage 7: pipelined` where a chapter has one operator."""
    _, *operator, file = PurePosixPath(path).parts
    number, _, name = file.partition("_")
    return f"{' '.join(operator) or 'Stage'} {number}: {name.split('.')[0]}"


def texts(folder: str, pattern: str = "*.md") -> list[str]:
    """The Markdown files in a folder."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(pattern))


def unique(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The name of each page by its path; two paths with one name are an error."""
    result: dict[str, str] = {}
    owner: dict[str, str] = {}
    for path, name in names:
        if owner.setdefault(name, path) != path:
            raise SystemExit(f"{path} and {owner[name]} would both be the page {name}.html; rename one")
        result[path] = name
    return result


class Book:
    """Makes all pages: write() returns the names of those that it wrote, in reading order."""

    def __init__(self, output: Path):
        self.output = output
        self.chapters = chapters()
        self.stories = {chapter.number: stories(chapter) for chapter in self.chapters}
        self.notebook = texts(NOTEBOOK, "**/*.md")
        found = [path for path in texts("docs") if path != "docs/README.md" and not path.endswith(".zh.md")]
        self.handbook = sorted(found, key=lambda path: HANDBOOK.index(path) if path in HANDBOOK else len(HANDBOOK))
        told = [(one.readme, one.name) for found in self.stories.values() for one in found]
        other = [path for path in dict.fromkeys([*NAMES, *self.notebook, *self.handbook]) if (ROOT / path).exists()]
        english = unique([*told, *((path, text_page(path)) for path in other)])
        self.translations = {
            chinese(path): translation_page(name) for path, name in english.items() if (ROOT / chinese(path)).exists()
        }
        self.readmes = english | self.translations
        self.code = unique((p, code_page(p)) for c in self.chapters for p in c.stages + c.shared)
        self.steps = {step.stage.path: step for step in steps(ROOT)}
        self.tasks = task.find()
        self.wanted: list[str] = []  # other files that pages link to
        self.written: list[str] = []

    # ---- Addresses ----

    def resolve(self, path: str) -> str:
        """Where a file or folder of the repository is on the site."""
        if not (ROOT / path).exists():
            raise SystemExit(f"a page links to {path}, which does not exist")
        readme = path if path.endswith("README.md") or path in self.readmes else f"{path}/README.md"
        if readme in self.readmes:
            return self.readmes[readme] + ".html"
        if path == NOTEBOOK or path.startswith(f"{NOTEBOOK}/"):  # a folder without a page
            return "notebook.html"
        if (ROOT / path).is_dir():
            return "files.html"
        if path in self.code:
            return self.code[path] + ".html"
        if path.startswith("common/") and not path.startswith("common/emulator/") and "/test/" not in path:
            return f"source:{path}"  # Doxygen's page of the source; its name is known when Doxygen has run
        if path not in self.wanted:
            self.wanted.append(path)
        return code_page(path) + ".html"

    # ---- Parts of pages ----

    def put(self, name: str, heading: str, body: str, contents: bool = True) -> None:
        """Writes a page."""
        label = "mainpage" if name == "index" else name
        text = f"# {escape(plain(heading))} {{#{label}}}\n\n" + ("[TOC]\n\n" if contents else "") + body + "\n"
        (self.output / f"{name}.md").write_text(text, encoding="utf-8")
        self.written.append(name)

    @staticmethod
    def navigation(previous: Link | None, up: Link | None, following: Link | None) -> str:
        """Links to neighbours."""
        cells = []
        for kind, mark, link in (
            ("previous", "&larr; {}", previous),
            ("up", "{}", up),
            ("next", "{} &rarr;", following),
        ):
            text = f'<a class="{kind}" href="{link[0]}">{mark.format(link[1])}</a>' if link else ""
            cells.append(f'<span class="{kind}">{text}</span>')
        return '\n<div class="neighbours">' + "".join(cells) + "</div>\n"

    def readme(self, path: str) -> str:
        """The text of a README's page."""
        return Converter(self.resolve, self.readmes[path], path, english=self.english_ids).convert(read(path))

    def english_ids(self, path: str) -> dict[str, str]:
        """The English ids of the headings of a translated page; empty for others."""
        return english_ids(read(path)) if path in self.translations else {}

    def subpages(self, paths: list[str]) -> list[str]:
        """A list of sources, for Doxygen to put their pages below this one."""
        return [f"- @subpage {self.code[path]}" for path in paths]

    # ---- Pages ----

    def main_page(self) -> None:
        pages = []
        for own, *branches in self.stories.values():
            pages.append(f"- @ref {own.name}\n")
            pages += [f"  - @ref {branch.name}\n" for branch in branches]
        pages += [f"- @ref {name}\n" for name in ("techniques", "changes", "timings", "emulator", "notebook")]
        body = self.readme("README.md") + "\n## Pages of this book {#index_pages}\n\n" + "".join(pages)
        body += self.navigation(None, None, self.link(self.stories[self.chapters[0].number][0]))
        self.put("index", title("README.md"), body)

    @staticmethod
    def link(story: Story) -> Link:
        return f"{story.name}.html", story.title

    def chapter(self, chapter: Chapter, before: Link, after: Link) -> None:
        """The pages of a chapter, of its branches and of their sources."""
        own, *branches = self.stories[chapter.number]
        listed = self.subpages(own.stages)
        if branches:
            listed += ["\nBranches of this chapter:\n", *(f"- @subpage {branch.name}" for branch in branches)]
        contents = ("index.html", "Contents")
        self.story(own, [self.exercises(chapter)], listed, self.navigation(before, contents, after), after)
        for i, branch in enumerate(branches):
            previous = self.link(branches[i - 1] if i else own)
            following = self.link(branches[i + 1]) if i + 1 < len(branches) else after
            beside = self.navigation(previous, self.link(own), following)
            self.story(branch, [], self.subpages(branch.stages), beside, following)

    def story(self, story: Story, more: list[str], listed: list[str], beside: str, after: Link) -> None:
        """The page of a README that tells of sources, and their pages."""
        body = [self.readme(story.readme), *more]
        if listed or story.shared:
            body += [f"\n## The sources, one by one {{#{story.name}_sources}}\n", *listed]
        files = f"{story.name}_files"
        if story.shared:
            body.append(f"\nWhat they share, and what the program knows of them: @subpage {files}\n")
        if story.stages:
            first = story.stages[0]
            body.append('\n<div class="first-stage">The first stage: ')
            body.append(f'<a href="{self.code[first]}.html">{stage_name(first)}</a></div>\n')
        self.put(story.name, story.title, "\n".join([*body, beside]))
        self.sources(story, after)
        if story.shared:
            listed = "\n".join(self.subpages(story.shared))
            about = PurePosixPath(story.readme).parent.name
            self.put(files, f"Other files of {about}", listed + self.navigation(None, self.link(story), None), contents=False)

    def exercises(self, chapter: Chapter, language: str = "en") -> str:
        """The tasks of the exercises that check themselves, without their solutions."""
        tasks = [one for one in self.tasks if one.chapter == int(chapter.number)]
        if not tasks:
            return ""
        words = WORDS[language]
        text = []

        def heading(marks: str, said: str, english: str) -> None:
            """Its id is that of the English one."""
            if language != "en":
                text.append(f"<!-- translates {slug(english)} -->")
            text.append(f"{marks} {said}\n")

        heading("##", words["exercises"], WORDS["en"]["exercises"])
        text.append(words["how"].format(number=tasks[0].number) + "\n")
        for one in tasks:
            said = task.translated(one, language)
            heading("###", words["exercise"].format(one.number, said.title), WORDS["en"]["exercise"].format(one.number, one.title))
            text.append(said.statement + "\n")
        path = f"{chapter.folder}/README.md"
        page = self.readmes[path if language == "en" else chinese(path)]
        return Converter(self.resolve, page, path, ids=f"{page}_checked").convert("\n" + "\n".join(text))

    # ---- Translations ----

    def beside(self, path: str) -> Link:
        """The address and the title of a page's translation, or of the page where there is none."""
        path = chinese(path) if chinese(path) in self.translations else path
        return f"{self.readmes[path]}.html", title(path)

    def translated_pages(self) -> None:
        """The Chinese pages. They have the sections of the English ones, and their links lead to Chinese pages where there
        are such; the sources stay below the English pages."""
        paths = ["README.md", *(self.stories[chapter.number][0].readme for chapter in self.chapters)]
        links = [self.beside(path) for path in paths]
        words = WORDS["zh"]
        for i, path in enumerate(paths):
            if chinese(path) not in self.translations:
                continue
            before = links[i - 1] if i else None
            following = links[i + 1] if i + 1 < len(paths) else ("techniques.html", "Index of techniques")
            if i == 0:
                body, beside = self.translated_list(), self.navigation(None, None, following)
            else:
                body = self.translated_sources(self.chapters[i - 1])
                beside = self.navigation(before, (links[0][0], words["contents"]), following)
            name = self.translations[chinese(path)]
            self.put(name, title(chinese(path)), self.readme(chinese(path)) + body + beside)
        for path, name in self.translations.items():
            if name not in self.written:
                self.put(name, title(path), self.readme(path) + self.navigation(None, (links[0][0], words["contents"]), None))

    def translated_titles(self) -> dict[str, str]:
        """The Chinese title of each page that is translated, by the name of the English page."""
        return {self.readmes[path]: title(chinese(path)) for path in self.readmes if chinese(path) in self.translations}

    def translated_list(self) -> str:
        """The pages of the book, for the Chinese front page."""
        rows = [f"\n## {WORDS['zh']['pages']} {{#index_zh_pages}}\n"]
        for own, *branches in self.stories.values():
            address, said = self.beside(own.readme)
            rows.append(f"- [{said}]({address})")
            rows += [f"  - [{branch.title}]({branch.name}.html)" for branch in branches]
        return "\n".join(rows) + "\n"

    def translated_sources(self, chapter: Chapter) -> str:
        """What stands below a chapter's text: exercises, and links to the pages of branches and sources."""
        own, *branches = self.stories[chapter.number]
        words = WORDS["zh"]
        rows = [self.exercises(chapter, "zh"), f"\n## {words['sources']} {{#{translation_page(own.name)}_sources}}\n"]
        rows += [f"- [{stage_name(path)}]({self.code[path]}.html)" for path in own.stages]
        if branches:
            rows += [f"\n{words['branches']}\n", *(f"- [{branch.title}]({branch.name}.html)" for branch in branches)]
        return "\n".join(rows) + "\n"

    def sources(self, story: Story, after: Link) -> None:
        """A page for each stage, then for each shared file."""
        pages = [(f"{self.code[p]}.html", stage_name(p)) for p in story.stages]
        top = self.link(story)
        for i, path in enumerate(story.stages):
            place = story.section(path)
            up = (top[0] + (f"#{anchor(story.name, place)}" if place else ""), story.title)
            before = pages[i - 1] if i else top
            following = pages[i + 1] if i + 1 < len(pages) else after
            self.source(path, stage_name(path), self.navigation(before, up, following))
        for path in story.shared:
            self.source(path, str(PurePosixPath(*PurePosixPath(path).parts[1:])), self.navigation(None, top, None))

    def source(self, path: str, heading: str, navigation: str) -> None:
        """A source's idea and the source, in turn."""
        name = code_page(path)
        idea, code = annotate.annotated(read(path))
        picture = ROOT / "docs/pictures/memory" / f"{name.removeprefix('code_')}.svg"
        body = [navigation, self.linked(path, idea), self.changes(path)]
        if picture.exists():
            alt = re.search(r"<desc[^>]*>(.*?)</desc>", picture.read_text(encoding="utf-8"), re.S)
            body.append(f"\n## What lies where {{#{name}_memory}}\n")
            body.append(f'<img src="{picture.name}" alt="{alt[1] if alt else ""}"/>\n')
        body.append(f"\n## The source {{#{name}_source}}\n")
        body.append(f"[`{path}`](source:{path}) with line numbers\n" if path in self.code else f"`{path}`\n")
        body += [code, navigation]
        self.put(name, heading, "\n".join(body), contents=False)

    def linked(self, path: str, idea: str) -> str:
        """A stage's opening comment; the stage that it grows out of is a link."""
        if not self.has_changes(path):
            return idea
        stage = self.steps[path].stage
        name = "**Grows out of:** "
        return idea.replace(name + stage.said, f"{name}[`{stage.said}`]({code_page(stage.parent)}.html)", 1)

    def changes(self, path: str) -> str:
        """What a stage changes in the one that it grows out of, and the files that are read for the first time."""
        if path not in self.steps:
            return ""
        step = self.steps[path]
        files = changes.files(step.files, self.resolve)
        if step.code is None:
            return changes.first(step) + files
        shown = difference.compare(read(step.stage.parent), read(path), source.below_opening)
        return changes.details(step, shown) + files

    def has_changes(self, path: str) -> bool:
        return path in self.steps and self.steps[path].code is not None

    def techniques(self) -> None:
        rows = ["Where to find what. Each link leads to the line, and the first of a technique to the diff of the stage that brings it.\n"]
        for technique in techniques.load():
            rows.append(f"\n## {technique.name} {{#techniques_{technique.id}}}\n\n{technique.what}\n")
            rows += self.first_appearance(technique)
            for place in technique.places:
                line = f"[line {place.line}](source:{place.path}#L{place.line})"
                rows.append(f"- [`{place.path}`]({self.resolve(place.path)}), {line}")
        self.put("techniques", "Index of techniques", "\n".join(rows))

    def first_appearance(self, technique: Technique) -> list[str]:
        """A link to the diff of the stage in which a technique first appears."""
        path = technique.first(list(self.steps))
        if path is None:
            return []
        chapter, *operator, _ = PurePosixPath(path).parts
        name = f"`{PurePosixPath(path).stem.partition('_')[2]}`"
        where = f"chapter {chapter[:2]}" + (f", `{operator[-1]}`" if operator else "")
        diff = f"[what it changes]({code_page(path)}.html#{changes.ID})" if self.has_changes(path) else "the first of its operator"
        return [f"First in [{name}]({self.resolve(path)}) ({where}): {diff}.\n"]

    def timings(self) -> None:
        """The sections `Measured` of chapters and branches, and below them the page that compares all stages."""
        body = ["What was measured, collected from the pages where each figure is explained.\n"]
        measured = self.readmes.get("docs/timings/README.md")
        if measured:
            body.append(f"All stages, at all lengths: @subpage {measured}\n")
        for story in (one for found in self.stories.values() for one in found):
            found = section(read(story.readme), "Measured")
            if not found:
                continue
            ids = f"timings_{story.name.partition('_')[2]}"
            body.append(f"\n## {story.title} {{#{ids}}}\n")
            body.append(f"From [its page]({story.name}.html#{story.name}_measured).\n")
            body.append(Converter(self.resolve, story.name, story.readme, ids=ids, below=2).convert(found))
        self.put("timings", "Timings", "\n".join(body))
        if measured:
            text = self.readme("docs/timings/README.md")
            self.put(measured, "Every stage over the length", text + self.navigation(None, ("timings.html", "Timings"), None))

    def collection(self, name: str, heading: str, text: str, paths: list[str]) -> None:
        """A page that lists others below it, and these pages, one after the other."""
        listed = "\n".join(f"- @subpage {self.readmes[path]}" for path in paths)
        self.put(name, heading, f"{text}\n\n{listed}\n", contents=False)
        links = [(f"{self.readmes[path]}.html", title(path)) for path in paths]
        for i, path in enumerate(paths):
            following = links[i + 1] if i + 1 < len(links) else None
            beside = self.navigation(links[i - 1] if i else None, (f"{name}.html", heading), following)
            self.put(self.readmes[path], title(path), self.readme(path) + beside)

    def collections(self) -> None:
        """All other Markdown files."""
        text = "How everything is run, what the letters mean, which kernel and which card fits, and what each stage brings."
        self.collection("handbook", "Running it and looking things up", text, self.handbook)
        first = f"{NOTEBOOK}/README.md"
        heading, text = "Notebook", "What was measured and tried, with dates. Nothing of it is needed to read the chapters."
        if first in self.readmes:
            heading, text = title(first), self.readme(first) + "\n\n## All pages {#notebook_pages}"
        self.collection("notebook", heading, text, [path for path in self.notebook if path != first])
        text = "How the project works: what all chapters share, how it is checked, and how it is added to."
        found = [path for path in WORKSHOP if path in self.readmes]
        self.collection("workshop", "How the project works", text, found)

    def others(self) -> None:
        """Files that pages link to and that have no page yet."""
        listed = sorted(self.wanted)
        body = "Files that the chapters speak of.\n\n" + "".join(f"- @subpage {code_page(p)}\n" for p in listed)
        self.put("other", "Tests and other files", body, contents=False)
        for path in listed:
            if re.match(r"(#pragma once\n)?/// @file", read(path)):
                self.source(path, path, "")
            else:
                self.put(code_page(path), path, "\n".join(["```{.unparsed}", read(path), "```"]), contents=False)

    def write(self) -> list[str]:
        self.output.mkdir(parents=True, exist_ok=True)
        for old in self.output.glob("*.md"):
            old.unlink()
        self.main_page()
        pages = [self.link(self.stories[c.number][0]) for c in self.chapters]
        for i, chapter in enumerate(self.chapters):
            before = pages[i - 1] if i else ("index.html", "Contents")
            after = pages[i + 1] if i + 1 < len(pages) else ("techniques.html", "Index of techniques")
            self.chapter(chapter, before, after)
        self.techniques()
        self.timings()
        self.collections()
        self.translated_pages()
        self.others()
        twice = {name for name in self.written if self.written.count(name) > 1}
        if twice:
            raise SystemExit(f"pages that were written twice: {', '.join(sorted(twice))}")
        return self.written
