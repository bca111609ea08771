#!/usr/bin/env python3
"""Whether the table of mutants in common/emulator/README.md says what a run of them has counted.

Usage: mutant_counts.py LOG [--write]

LOG is what ctest writes in the preset emulator-races, build/emulator-races/Testing/Temporary/LastTest.log, behind a run of
`ctest --preset emulator-races --tests-regex NoticesEachMutant`. Only the rows of the chapters that have run are looked at;
--write puts them into the table. The status is 1 if a row is another one.
"""

from collections import defaultdict
from pathlib import Path
import re
import sys

PAGE = Path(__file__).resolve().parents[1] / "common/emulator/README.md"
CHAPTERS = {"chunkwise": "02", "gla": "03", "fused_chunk": "04", "deltanet_wy": "05", "scan": "06"}
TABLE = re.compile(r"(?<=\| chapter \| kernels \| mutants \| noticed \| harmless \|\n\| --- \| --: \| --: \| --: \| --: \|\n)(\|.*\|\n)+")
Row = tuple[int, int, int]  # kernels, mutants, and those of them that do no harm


def counted(log: str) -> dict[str, Row]:
    """The row of each chapter that has run."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    parts = re.split(r"(?m)^\d+/\d+ Test: (\w+)\.", log)
    for program, text in zip(parts[1::2], parts[2::2]):
        if counts := re.findall(r"(?m): (\d+) mutants$", text):
            row = rows[CHAPTERS[program]]
            row[0] += len(counts)
            row[1] += sum(map(int, counts))
            row[2] += len(re.findall(r" is harmless: ", text))
    return {chapter: tuple(row) for chapter, row in rows.items()}


def stated(page: str) -> dict[str, Row]:
    table = TABLE.search(page)
    assert table, f"{PAGE} has no table of mutants"
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()]
    return {name: (int(kernels), int(mutants), int(harmless)) for name, kernels, mutants, _, harmless in cells if name != "all"}


def table_of(rows: dict[str, Row]) -> str:
    whole = tuple(map(sum, zip(*rows.values())))
    lines = [
        f"| {name} | {kernels} | {mutants} | {mutants - harmless} | {harmless} |\n"
        for name, (kernels, mutants, harmless) in [*sorted(rows.items()), ("all", whole)]
    ]
    return "".join(lines)


def main() -> int:
    arguments = [word for word in sys.argv[1:] if word != "--write"]
    if len(arguments) != 1:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    found = counted(Path(arguments[0]).read_text(encoding="utf-8", errors="replace"))
    page = PAGE.read_text(encoding="utf-8")
    rows = stated(page)
    if not found:
        print(f"{arguments[0]} has no counts of mutants", file=sys.stderr)
        return 2
    right = table_of(rows | found)
    if "--write" in sys.argv:
        PAGE.write_text(TABLE.sub(lambda _: right, page), encoding="utf-8")
        return 0
    if TABLE.search(page)[0] == right:
        return 0
    print(f"{PAGE.name} of the emulator states other counts of mutants than a run has; tools/mutant_counts.py --write puts them there:\n{right}", end="")
    return 1


if __name__ == "__main__":
    sys.exit(main())
