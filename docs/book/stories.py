"""Which page tells of a source: the README of a branch, or its chapter's.

A branch is a folder of a chapter that has a README.md of its own. It tells of the operator of that name, and of the
operator's gradients where these have no README. An operator whose stages only a branch links to belongs to that branch.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath
import posixpath
import re

from . import markdown
from .repository import ROOT, Chapter, read, title


@dataclass(frozen=True)
class Story:
    """A README, and the sources that it tells of."""

    readme: str  # its path below the root
    name: str  # of its page
    title: str
    stages: list[str]  # paths below the root, in reading order
    shared: list[str]

    def section(self, path: str) -> str | None:
        """GitHub's id of the section about a stage: one with the stage's name as code in its heading."""
        _, *operator, file = PurePosixPath(path).parts
        stage = PurePosixPath(file).stem.partition("_")[2]
        above, found = "", []  # the heading of the second level
        for level, heading, slug in markdown.headings(read(self.readme)):
            above = heading if level == 2 else above
            if level > 1 and f"`{stage}`" in heading:
                found.append((bool(operator) and f"`{operator[-1]}`" in above + heading, slug))
        return max(found, key=lambda one: one[0])[1] if found else None  # of several, one of the operator's


def operator(path: str) -> str:
    """The operator that a source of a chapter is about: its folder, or what a header of the chapter declares."""
    _, *folders, file = PurePosixPath(path).parts
    return folders[0] if folders else PurePosixPath(file).stem


def linked(readme: str) -> set[str]:
    """The operators with a stage that a README links to."""
    targets = re.findall(r"\]\(([^()\s#]+)", read(readme))
    paths = [posixpath.normpath(posixpath.join(posixpath.dirname(readme), target)) for target in targets]
    return {operator(path) for path in paths if re.fullmatch(r"\d\d_\w+/\w+/\d+_\w+\.\w+", path)}


def stories(chapter: Chapter) -> list[Story]:
    """The chapter's own, then those of its branches: in the order of their first stages, without stages by name."""
    own = f"{chapter.folder}/README.md"
    branches = sorted(path.parent.name for path in (ROOT / chapter.folder).glob("*/README.md"))
    links = {name: linked(f"{chapter.folder}/{name}/README.md") for name in branches}
    told_by_chapter = linked(own) if branches else set()

    def branch(path: str) -> str | None:
        about = operator(path)
        for name in (about, about.removesuffix("_backward")):
            if name in branches:
                return name
        return next((n for n in branches if about in links[n] and about not in told_by_chapter), None)

    def story(readme: str, name: str, of: str | None) -> Story:
        stages = [path for path in chapter.stages if branch(path) == of]
        shared = [path for path in chapter.shared if branch(path) == of]
        return Story(readme, name, title(readme), stages, shared)

    found = [story(f"{chapter.folder}/{name}/README.md", f"branch_{chapter.number}_{name}", name) for name in branches]
    order = {path: place for place, path in enumerate(chapter.stages)}
    found.sort(key=lambda one: order[one.stages[0]] if one.stages else len(order))
    return [story(own, f"chapter_{chapter.number}", None), *found]
