#!/usr/bin/env python3
"""Draws all pictures. With --check it draws nothing, and fails if a file is not what it would draw."""

from pathlib import Path
import sys

from drawings import all_drawings
from memory import all_memories

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    status = 0
    for picture in all_drawings() + all_memories():
        path = picture.path(FOLDER)
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != picture.svg():
                print(f"{path} is not what docs/pictures/draw.py draws", file=sys.stderr)
                status = 1
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(picture.svg(), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
