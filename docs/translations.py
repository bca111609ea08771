#!/usr/bin/env python3
"""Whether the translated pages follow the English ones.

Usage: translations.py --check
       translations.py --accept FILE [SECTION ...]

--check lists each section that is stale (its English text has changed since), missing, superfluous or misplaced. The
status is 1 if one of the front page is among them, or of a chapter one whose introduction or heading is; others are
warnings. --accept writes into a translated page that it is up to date with the English one: all of it, or the sections
with these ids. docs/README.md says how a translated page is written.
"""

from pathlib import Path
import re
import sys

from book.repository import ROOT
from book.translated import INTRODUCTION, Finding, Section, accepted, english, findings, sections
from exercises import task

PAGES = ("README.zh.md", "[0-9][0-9]_*/README.zh.md", "docs/*.zh.md", "exercise/tasks/*.zh.md")


def translated_pages() -> list[Path]:
    return [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]


def original(path: Path) -> list[Section]:
    """The English sections of a translated page; an exercise has its task and its hints."""
    if path.parent == task.TASKS:
        one = task.read(english(path).with_suffix(".cu"))
        return [Section("statement", one.title, f"{one.title}\n{one.statement}"), Section("hints", "hints", "\n".join(one.hints))]
    return sections(english(path).read_text(encoding="utf-8"))


def is_error(name: str, found: Finding) -> bool:
    """Of the front page everything; of a chapter what a reader would get lost by."""
    if name == "README.zh.md":
        return True
    return bool(re.match(r"\d\d_", name)) and (found.what != "stale" or found.slug == INTRODUCTION)


def check() -> int:
    status = 0
    for path in translated_pages():
        name = str(path.relative_to(ROOT))
        for found in findings(original(path), path.read_text(encoding="utf-8")):
            kind = "error" if is_error(name, found) else "warning"
            status |= kind == "error"
            print(f"{name}: {kind}: {found.what}: {found.heading} ({found.slug})")
    return status


def accept(path: Path, slugs: list[str]) -> int:
    there = original(path)
    if unknown := [slug for slug in slugs if slug not in {section.slug for section in there}]:
        print(f"{english(path)} has no section {', '.join(unknown)}", file=sys.stderr)
        return 2
    path.write_text(accepted(there, path.read_text(encoding="utf-8"), slugs), encoding="utf-8")
    return 0


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        return check()
    if arguments[:1] == ["--accept"] and len(arguments) > 1:
        path = Path(arguments[1]).resolve()
        if path in translated_pages():
            return accept(path, arguments[2:])
        print(f"{arguments[1]} is no translated page", file=sys.stderr)
        return 2
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
