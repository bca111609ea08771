"""The pages of the book, in Markdown for Doxygen."""

from pathlib import Path, PurePosixPath
import re

from exercises import task
from stages import difference, source
from stages.reading import steps

from . import annotate, changes, techniques
from .markdown import Converter, section
from .repository import ROOT, Chapter, chapters, read
from .techniques import Technique

# Pages that are a README: its path, and the page's name. The main page's is Doxygen's.
READMES = {
    "README.md": "index",
    "docs/timings/README.md": "measured",  # ./tutorial compare --publish writes it
    "docs/stages.md": "changes",  # ./tutorial diff --write writes its table
    "docs/cards.md": "cards",
    "docs/notebook/cards.md": "notebook_cards",
    "docs/notebook/dispatch.md": "notebook_dispatch",
    "common/README.md": "common",
    "common/emulator/README.md": "emulator",
    "golden/README.md": "golden",
    "CONTRIBUTING.md": "contributing",
    "docs/README.md": "book",
    "tools/compare/README.md": "compare",
    "exercise/README.md": "exercise",
}


def code_page(path: str) -> str:
    """The name of the page that shows a source."""
    return "code_" + re.sub(r"\W", "_", path)


def stage_name(path: str) -> str:
    """`gla 7: subchunk_tensor_core`, or `Stage 7: pipelined` where a chapter has one operator."""
    _, *operator, file = PurePosixPath(path).parts
    number, _, name = file.partition("_")
    return f"{' '.join(operator) or 'Stage'} {number}: {name.split('.')[0]}"


class Book:
    """Makes all pages: write() returns the names of those that it wrote, in reading order."""

    def __init__(self, output: Path):
        self.output = output
        self.chapters = chapters()
        self.readmes = {path: name for path, name in READMES.items() if (ROOT / path).exists()}
        for chapter in self.chapters:
            self.readmes[f"{chapter.folder}/README.md"] = f"chapter_{chapter.number}"
        self.code = {p: code_page(p) for c in self.chapters for p in c.stages + c.shared}
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

    def put(self, name: str, title: str, body: str, contents: bool = True) -> None:
        """Writes a page."""
        label = "mainpage" if name == "index" else name
        text = f"# {title} {{#{label}}}\n\n" + ("[TOC]\n\n" if contents else "") + body + "\n"
        (self.output / f"{name}.md").write_text(text, encoding="utf-8")
        self.written.append(name)

    @staticmethod
    def navigation(previous, up, following) -> str:
        """Links to neighbours: each a (page's name, text), or None."""
        cells = []
        for kind, mark, link in (
            ("previous", "&larr; {}", previous),
            ("up", "{}", up),
            ("next", "{} &rarr;", following),
        ):
            text = f'<a class="{kind}" href="{link[0]}.html">{mark.format(link[1])}</a>' if link else ""
            cells.append(f'<span class="{kind}">{text}</span>')
        return '\n<div class="neighbours">' + "".join(cells) + "</div>\n"

    def title(self, path: str) -> str:
        """The title of a README's page."""
        match = re.search(r"^# (.*)", read(path), re.M)
        if not match:
            raise SystemExit(f"{path} has no title")
        return match[1]

    def readme(self, path: str) -> str:
        """The text of a README's page."""
        return Converter(self.resolve, self.readmes[path], path).convert(read(path))

    # ---- Pages ----

    def main_page(self) -> None:
        following = [c for c in self.readmes.values() if c.startswith("chapter_")]
        pages = "".join(f"- @ref {name}\n" for name in following + ["techniques", "changes", "timings", "emulator"])
        body = self.readme("README.md") + "\n## Pages of this book {#index_pages}\n\n" + pages
        first = self.chapters[0]
        body += self.navigation(None, None, (f"chapter_{first.number}", first.title))
        self.put("index", self.title("README.md"), body)

    def chapter(self, chapter: Chapter, before, after) -> None:
        name = f"chapter_{chapter.number}"
        body = [self.readme(f"{chapter.folder}/README.md"), self.exercises(chapter)]
        body.append(f"\n## The sources, one by one {{#{name}_sources}}\n")
        body += [f"- @subpage {self.code[p]}" for p in chapter.stages]
        if chapter.shared:
            body.append("\nWhat they share, and what the program knows of them:\n")
            body += [f"- @subpage {self.code[p]}" for p in chapter.shared]
        first = (self.code[chapter.stages[0]], stage_name(chapter.stages[0])) if chapter.stages else None
        body.append('\n<div class="first-stage">The first stage: ')
        body.append(f'<a href="{first[0]}.html">{first[1]}</a></div>\n' if first else "</div>\n")
        body.append(self.navigation(before, ("index", "Contents"), after))
        self.put(name, chapter.title, "\n".join(body))
        self.sources(chapter, (name, chapter.title), after)

    def exercises(self, chapter: Chapter) -> str:
        """The tasks of the exercises that check themselves, without their solutions."""
        tasks = [one for one in self.tasks if one.chapter == int(chapter.number)]
        if not tasks:
            return ""
        text = [
            "\n## Exercises that check themselves\n",
            f"`./tutorial exercise {tasks[0].number}` copies the first one's file to `exercises/`. The same command then "
            "checks what you have written, without a GPU.\n",
        ]
        for one in tasks:
            text += [f"### Exercise {one.number}: {one.title}\n", one.statement + "\n"]
        path = f"{chapter.folder}/README.md"
        return Converter(self.resolve, self.readmes[path], path).convert("\n".join(text))

    def sources(self, chapter: Chapter, up, after) -> None:
        """A page for each stage, then for each shared file."""
        pages = [(self.code[p], stage_name(p)) for p in chapter.stages]
        for i, path in enumerate(chapter.stages):
            before = pages[i - 1] if i else up
            following = pages[i + 1] if i + 1 < len(pages) else after
            self.source(path, stage_name(path), self.navigation(before, up, following))
        for path in chapter.shared:
            self.source(path, str(PurePosixPath(*PurePosixPath(path).parts[1:])), self.navigation(None, up, None))

    def source(self, path: str, title: str, navigation: str) -> None:
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
        self.put(name, title, "\n".join(body), contents=False)

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
            return files
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
        body = ["What the chapters measured, collected from their pages, where each figure is explained.\n"]
        if measured := self.readmes.get("docs/timings/README.md"):
            body.append(f"Every stage's times over the length have [a page of their own]({measured}.html).\n")
        for chapter in self.chapters:
            path = f"{chapter.folder}/README.md"
            found = section(read(path), "Measured")
            page = self.readmes[path]
            body.append(f"\n## {chapter.title} {{#timings_{chapter.number}}}\n\n")
            body.append(f"From [the chapter]({page}.html#{page}_measured).\n")
            body.append(Converter(self.resolve, page, path).convert(found))
        self.put("timings", "Timings", "\n".join(body))

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
        pages = [(f"chapter_{c.number}", c.title) for c in self.chapters]
        for i, chapter in enumerate(self.chapters):
            before = pages[i - 1] if i else ("index", "Contents")
            after = pages[i + 1] if i + 1 < len(pages) else ("techniques", "Index of techniques")
            self.chapter(chapter, before, after)
        self.techniques()
        self.timings()
        for path in [path for path in READMES if path in self.readmes][1:]:
            self.put(self.readmes[path], self.title(path), self.readme(path))
        self.others()
        return self.written
