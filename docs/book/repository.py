"""What the repository holds: its chapters, their stages in the order of main.cpp, and their other sources."""

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
        number, operator = int(Path(path).name.split("_")[0]), Path(path).parent.name
        space = re.search(r"^namespace tutorial::(\w+)", read(path), re.M)
        for name in (operator, space[1] if space else ""):
            place = re.search(rf"\b(using namespace )?{name}(?(1);|::)", main) if name else None
            if place:
                return place.start(), number
        raise SystemExit(f"{folder}/main.cpp does not name the operator of {path}")

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
