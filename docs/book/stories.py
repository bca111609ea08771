"""Which page tells of a source: the README of a branch, or its chapter's.

A branch is a folder of a chapter that has a README.md of its own. Of which operators it tells, repository.story() says.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from . import markdown
from .repository import ROOT, Chapter, read, story, title


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


def stories(chapter: Chapter) -> list[Story]:
    """The chapter's own, then those of its branches: in the order of their first stages, without stages by name."""
    own = f"{chapter.folder}/README.md"
    branches = sorted(path.parent.name for path in (ROOT / chapter.folder).glob("*/README.md"))

    def told(readme: str, name: str) -> Story:
        def of(paths: list[str]) -> list[str]:
            return [path for path in paths if story(f"{chapter.folder}/{operator(path)}/x") == readme]

        return Story(readme, name, title(readme), of(chapter.stages), of(chapter.shared))

    found = [told(f"{chapter.folder}/{name}/README.md", f"branch_{chapter.number}_{name}") for name in branches]
    order = {path: place for place, path in enumerate(chapter.stages)}
    found.sort(key=lambda one: order[one.stages[0]] if one.stages else len(order))
    return [told(own, f"chapter_{chapter.number}"), *found]
