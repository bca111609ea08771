"""What the repository holds: its chapters, their stages in the order of the table of contents, and their other sources."""

from dataclasses import dataclass
from pathlib import Path
import re

ROOT = Path(__file__).resolve().parents[2]

SOURCES = {".cpp", ".hpp", ".cu", ".cuh", ".h"}


@dataclass(frozen=True)
class Chapter:
    """A chapter's folder, its stage files in reading order, and the files that they share."""

    folder: str  # 01_linear_attention
    title: str  # the first heading of its README.md
    stages: list[str]  # paths below the root
    shared: list[str]

    @property
    def number(self) -> str:
        return self.folder[:2]


def read(path: str) -> str:
    """The text of a file, its path relative to the root."""
    return (ROOT / path).read_text(encoding="utf-8")


def sources(folder: str) -> list[str]:
    """The sources below a folder, without its tests."""
    found = (p.relative_to(ROOT) for p in (ROOT / folder).rglob("*") if p.suffix in SOURCES)
    return sorted(str(p) for p in found if "test" not in p.parts)


def stage_order(folder: str, stages: list[str]) -> list[str]:
    """Stages by number, and those of an operator together, in the order in which main.cpp names the operators."""
    main = read(f"{folder}/main.cpp")

    def key(path: str):
        space = re.search(r"^namespace tutorial::(\w+)", read(path), re.M)
        if not space:
            raise SystemExit(f"{path}: a stage without a namespace tutorial::OPERATOR")
        place = re.search(rf"\busing namespace {space[1]};", main)
        if not place:
            raise SystemExit(f"{folder}/main.cpp does not name the operator {space[1]} of {path}")
        return place.start(), int(Path(path).name.split("_")[0])

    return sorted(stages, key=key)


def chapters() -> list[Chapter]:
    """All chapters, in order."""
    result = []
    for readme in sorted(ROOT.glob("[0-9][0-9]_*/README.md")):
        folder = readme.parent.name
        files = sources(folder)
        stages = [f for f in files if re.match(r"\d+_", Path(f).name)]
        title = re.search(r"^# (.*)", readme.read_text(encoding="utf-8"), re.M)
        if not title:
            raise SystemExit(f"{folder}/README.md has no title")
        shared = [f for f in files if f not in stages]
        result.append(Chapter(folder, title[1], stage_order(folder, stages), shared))
    return result
