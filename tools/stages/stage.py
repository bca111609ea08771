"""Stage files, and the line of their opening comments that says where they come from:

    /// Grows out of: 6_tensor_core.cu                                   a stage of the same folder,
    /// Grows out of: 02_chunkwise/linear_attention/8_pipelined.cu       one of another folder,
    /// Grows out of: nothing                                            or none: the first stage of an operator
    /// Grows out of: 3_chunkwise.cpp; port to the GPU: why the step is larger than others

A mark and its reason may follow on further lines, up to a label (`/// Word words:`) or an empty line of the comment.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
import re

from . import source

PORT = "port to the GPU"  # from the CPU
MARKS = (PORT, "large step")

FILE = re.compile(r"(\d\d_\w+)/(?:(\w+)/)?(\d+)_(\w+)\.(?:cu|cpp)")
FIELD = re.compile(r"/// Grows out of:\s*(.*)")
LABEL = re.compile(r"/// ?[A-Z]\w*(?:,? \w+)*:(?!:)")


@dataclass(frozen=True)
class Mistake:
    """What is wrong at a line of a file, and what to do about it."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Stage:
    path: str  # below the project's root
    line: int  # of the field; 1 if it is missing
    said: str | None  # what the field says before `;`, None if it is missing
    mark: str | None
    reason: str
    mistakes: tuple[Mistake, ...]  # of the field alone

    @property
    def parent(self) -> str | None:
        """The path of the stage that this one grows out of."""
        if not self.said or self.said == "nothing":
            return None
        return self.said if "/" in self.said else str(PurePosixPath(self.path).parent / self.said)

    @property
    def chapter(self) -> str:
        return self.path.split("/")[0]

    @property
    def number(self) -> int:
        return int(FILE.fullmatch(self.path)[3])

    @property
    def name(self) -> str:
        """As the chapter's --list prints it."""
        return FILE.fullmatch(self.path)[4]

    @property
    def operator(self) -> str | None:
        """Its folder in the chapter; None where the stages stand in the chapter's own folder."""
        return FILE.fullmatch(self.path)[2]

    @property
    def full_name(self) -> str:
        """OPERATOR/STAGE, or the name alone."""
        return f"{self.operator}/{self.name}" if self.operator else self.name


def is_stage(path: str) -> bool:
    """Whether this is a stage file: NN_chapter/N_name.cu or NN_chapter/operator/N_name.cu, or .cpp."""
    return FILE.fullmatch(path) is not None


def fields(text: str) -> list[tuple[int, str]]:
    """(line, text on one line) of what a file grows out of. There should be one."""
    found: list[tuple[int, str]] = []
    goes_on = False
    for line in source.opening_comment(text):
        if match := FIELD.match(line.text):
            found.append((line.number, match[1]))
            goes_on = True
        elif line.text.strip() == "///" or LABEL.match(line.text):
            goes_on = False
        elif goes_on:
            number, said = found[-1]
            found[-1] = number, f"{said} {line.text.removeprefix('///').strip()}"
    return found


def parse(path: str, text: str) -> Stage:
    """What a stage file says about itself."""
    found = fields(text)
    if len(found) != 1:
        line, wrong = 1, "does not name the stage that it grows out of; add `/// Grows out of: FILE`, or `nothing`"
        if found:
            line, wrong = found[1][0], "names more than one stage that it grows out of; name one"
        return Stage(path, line, None, None, "", (Mistake(path, line, f"its opening comment {wrong}"),))
    line, said = found[0]
    parent, semicolon, rest = (part.strip() for part in said.partition(";"))
    mark, _, reason = (part.strip() for part in rest.partition(":"))
    mistakes = []
    if not parent:
        mistakes.append("`Grows out of:` names no stage; write a file's name or `nothing`")
    if semicolon and mark not in MARKS:
        mistakes.append(f"there is no mark `{mark}`; the marks are: {', '.join(MARKS)}")
    elif semicolon and not reason:
        mistakes.append(f"the mark `{mark}` needs its reason; write `; {mark}: REASON`")
    if semicolon and parent == "nothing":
        mistakes.append("a stage that grows out of nothing needs no mark; take it away")
    return Stage(path, line, parent, mark or None, reason, tuple(Mistake(path, line, text) for text in mistakes))


def place_in_main(root: Path, path: str) -> int | None:
    """Where the chapter's table of contents first names the operator of a stage, by its folder or its namespace."""
    main = root / path.split("/")[0] / "main.cpp"
    text = source.read(main) if main.exists() else ""
    space = re.search(r"^namespace tutorial::(\w+)", source.read(root / path), re.MULTILINE)
    for name in (PurePosixPath(path).parent.name, space[1] if space else ""):
        place = re.search(rf"\b(using namespace )?{name}(?(1);|::)", text) if name else None
        if place:
            return place.start()
    return None


def find(root: Path) -> dict[str, Stage]:
    """All stages by their paths, in reading order: chapters, operators as in main.cpp, numbers."""
    paths = [
        str(PurePosixPath(p.relative_to(root))) for folder in ("*", "*/*") for p in root.glob(f"[0-9][0-9]_*/{folder}")
    ]
    stages = [parse(path, source.read(root / path)) for path in paths if is_stage(path)]

    def key(stage: Stage):
        place = place_in_main(root, stage.path)
        return stage.chapter, place is None, place or 0, str(PurePosixPath(stage.path).parent), stage.number

    return {stage.path: stage for stage in sorted(stages, key=key)}
