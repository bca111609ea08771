"""What a chapter may include: `common`, its own files, and of another chapter the headers that declare an operator.

Such a header lies directly in the other chapter's folder and declares the operator's arguments, a type ...Arguments.
The other chapter's operators.hpp, which describes its operators to the runner, may be included by main.cpp and
...operators.cpp: a chapter that takes up an operator of another one runs it on the same inputs, with the same checks.
"""

from pathlib import Path
import re

from . import source
from .stage import Mistake

SOURCES = {".cpp", ".hpp", ".cu", ".cuh", ".h"}
OF_A_CHAPTER = re.compile(r"(\d\d_\w+)/(.*)")
ARGUMENTS = re.compile(r"\bstruct \w*Arguments\b|\busing [\w:]*Arguments\b")
RUNNER = re.compile(r"main\.cpp|(?:\w+_)?operators\.cpp")


def declares_operator(header: Path) -> bool:
    return header.is_file() and any(ARGUMENTS.search(line.text) for line in source.code(source.read(header)))


def mistake(root: Path, path: str, included: str) -> str | None:
    """What is wrong with the line of a chapter's file that includes a header."""
    match = OF_A_CHAPTER.fullmatch(source.included_file(root, path, included))
    chapter, name = path.split("/", 1)
    if not match or match[1] == chapter:
        return None
    other, header = match.groups()
    if header == "operators.hpp":
        if RUNNER.fullmatch(name):
            return None
        return f"includes {other}/{header}, which is for the runner; only {chapter}/main.cpp and operators.cpp may"
    if re.fullmatch(r"\w+\.hpp", header) and declares_operator(root / other / header):
        return None
    return (
        f"includes {other}/{header}, a private header of that chapter; include the header of its operator instead, or "
        "move what both chapters need to common"
    )


def check(root: Path) -> list[Mistake]:
    """All lines of the chapters' files, tests too, that include what is another chapter's own."""
    found = []
    for file in sorted(root.glob("[0-9][0-9]_*/**/*")):
        if file.suffix in SOURCES:
            path = file.relative_to(root).as_posix()
            for line in source.includes(source.read(file)):
                if text := mistake(root, path, line.text):
                    found.append(Mistake(path, line.number, text))
    return found
