"""New reading: what a reader meets in a stage for the first time.

That is what the stage changes in the one that it grows out of, and the files of the chapters and of common/tile that it
reaches and that no stage on the path before it reached. A stage reaches the headers that it includes, the sources beside
these headers (of walk.hpp: walk.cu), and what all of these reach in turn. Another stage that it reaches in this way is no
file to read here.

On the path before a stage are the stages of earlier chapters, those of its folder with a lower number, the one that it
grows out of, the one that this one grows out of, and so on. `dispatch` and the variants that it chooses from are no
stages and not on the path.
"""

from functools import cache
from pathlib import Path, PurePosixPath
import posixpath
import re
from typing import NamedTuple

from . import difference, source, stage
from .difference import Difference
from .stage import Stage

READ = re.compile(r"(?:\d\d_\w+|common/tile)/.*")  # what is not read on the path: the rest of common, fmt, CUDA
HEADERS = {".hpp", ".cuh", ".h"}
SOURCES = (".cpp", ".cu")


class File(NamedTuple):
    path: str  # below the project's root
    lines: int  # of code


class Step(NamedTuple):
    """A stage and its new reading."""

    stage: Stage
    code: Difference | None  # None where it grows out of nothing, or does not say of what
    own: int  # lines that it changes; all of its lines where it grows out of nothing
    files: list[File]  # read here for the first time

    @property
    def in_files(self) -> int:
        return sum(file.lines for file in self.files)

    @property
    def new(self) -> int:
        """Lines of new reading."""
        return self.own + self.in_files

    @property
    def grows(self) -> bool:
        """Whether it is a step of the lesson from one stage to another."""
        return self.code is not None


class Sources:
    """The files below a root, each of them read once."""

    def __init__(self, root: Path):
        self.root = root

    @cache
    def lines(self, path: str) -> int:
        """How many lines of code a file has."""
        return len(source.code(source.read(self.root / path)))

    @cache
    def next_to(self, path: str) -> list[str]:
        """The headers that a file includes, and of a header the sources beside it."""
        included = [line.text for line in source.includes(source.read(self.root / path))]
        found = [source.included_file(self.root, path, name) for name in included]
        if PurePosixPath(path).suffix in HEADERS:
            found += [str(PurePosixPath(path).with_suffix(suffix)) for suffix in SOURCES]
        return [one for one in found if (self.root / one).is_file()]

    @cache
    def reached(self, path: str) -> frozenset[str]:
        """The files to read that a stage reaches."""
        found: set[str] = set()
        todo = [path]
        while todo:
            new = set(self.next_to(todo.pop())) - found
            found |= new
            todo += new
        return frozenset(one for one in found if READ.fullmatch(one) and not stage.is_stage(one))


def ancestors(one: Stage, stages: dict[str, Stage]) -> list[Stage]:
    """What a stage grows out of, directly and by way of others."""
    found: list[Stage] = []
    while one.parent in stages and stages[one.parent] not in found:
        one = stages[one.parent]
        found.append(one)
    return found


def before(one: Stage, stages: dict[str, Stage]) -> list[Stage]:
    """The stages on the path before one."""

    def is_earlier(other: Stage) -> bool:
        is_beside = posixpath.dirname(other.path) == posixpath.dirname(one.path)
        return other.chapter < one.chapter or is_beside and other.number < one.number

    return [*filter(is_earlier, stages.values()), *ancestors(one, stages)]


def step(one: Stage, stages: dict[str, Stage], sources: Sources) -> Step:
    """A stage's new reading; `stages` are all of them."""
    known = set().union(*(sources.reached(other.path) for other in before(one, stages)))
    files = [File(path, sources.lines(path)) for path in sorted(sources.reached(one.path) - known)]
    if one.parent not in stages:
        return Step(one, None, sources.lines(one.path), files)
    code = difference.compare(source.read(sources.root / one.parent), source.read(sources.root / one.path))
    return Step(one, code, code.changed, files)


def steps(root: Path) -> list[Step]:
    """All stages in reading order, each with its new reading."""
    stages, sources = stage.find(root), Sources(root)
    return [step(one, stages, sources) for one in stages.values()]
