#!/usr/bin/env python3
"""Builds the book: pages from READMEs and sources, a site from them with Doxygen, then what Doxygen leaves open.

Usage: build.py OUTPUT. The site is OUTPUT/html. A new book is made beside an old one, in OUTPUT.new, and takes its place
when it is complete. The status is 1 if Doxygen had a warning or a page a mistake, 2 if a file could not be written.
"""

from pathlib import Path
import shutil
import signal
import subprocess
import sys

from book.pages import Book
from book.repository import ROOT
from book.site import finish

MATHJAX = Path("/usr/share/javascript/mathjax")
THEME = Path("/usr/share/doxygen-awesome-css")

# What a page needs of MathJax: TeX in, SVG out. The package has seven times as much.
MATHJAX_PARTS = ["MathJax.js", "extensions", "jax/input/TeX", "jax/element", "jax/output/SVG"]


def fill(template: str, values: dict[str, str]) -> str:
    """The template with its @NAMES@ replaced."""
    for name, value in values.items():
        template = template.replace(f"@{name}@", value)
    return template


def quoted(paths) -> str:
    """A list of paths as Doxygen reads it."""
    return " ".join(f'"{path}"' for path in paths)


def header(output: Path) -> Path:
    """Doxygen's own header, with our scripts and the search in it, and a place for the switch of languages."""
    path = output / "header.html"
    subprocess.run(
        ["doxygen", "-w", "html", str(path), str(output / "footer.html"), str(output / "doxygen.css")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    text = path.read_text(encoding="utf-8")
    addition = (ROOT / "docs/header.html").read_text(encoding="utf-8")
    head, search = addition.split("<!-- search -->\n")
    brief = '<!--BEGIN PROJECT_BRIEF--><div id="projectbrief">'
    for place, part in (("</head>", head), (" </tbody>", search), (brief, "<!-- language -->")):
        if text.count(place) != 1:
            raise SystemExit(f"Doxygen's header has no place '{place}' for docs/header.html")
        text = text.replace(place, part + place)
    path.write_text(text, encoding="utf-8")
    return path


def build(output: Path) -> int:
    """The book in a folder; 1 if Doxygen had warnings."""
    html = output / "html"
    pages = output / "pages"
    book = Book(pages)
    names = book.write()

    doxyfile = output / "Doxyfile"
    values = {
        "ROOT": str(ROOT),
        "OUTPUT": str(output),
        "PAGES": quoted(pages / f"{name}.md" for name in names),
        "PAGES_FOLDER": str(pages),
        "SOURCES": quoted(ROOT / f for f in [*(c.folder for c in book.chapters), "common"]),
        "HEADER": str(header(output)),
        "THEME": str(THEME),
    }
    doxyfile.write_text(fill((ROOT / "docs/Doxyfile.in").read_text(encoding="utf-8"), values), encoding="utf-8")
    if subprocess.run(["doxygen", str(doxyfile)], check=False, cwd=ROOT).returncode:
        print("doxygen had warnings, which are errors here; they are above", file=sys.stderr)
        return 1
    for part in MATHJAX_PARTS:
        target = html / "mathjax" / part
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (MATHJAX / part).is_dir() else shutil.copy)(MATHJAX / part, target)
    finish(html, output / "book.tag", names, book.translated_titles())
    return 0


def replace(output: Path, new: Path) -> None:
    """The new folder takes the place of the old one, if there is one."""
    old = output.with_name(f"{output.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if output.exists():
        output.rename(old)
    new.rename(output)
    shutil.rmtree(old, ignore_errors=True)


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    output = Path(sys.argv[1]).resolve()
    new = output.with_name(f"{output.name}.new")
    try:
        if output.exists() and not output.is_dir():
            print(f"{output} is a file, and the book is a folder", file=sys.stderr)
            return 2
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        status = build(new)
        if status == 0:
            replace(output, new)
        return status
    except KeyboardInterrupt:
        print("interrupted; a book that was there before still is", file=sys.stderr)
        return 130
    except (OSError, subprocess.SubprocessError) as error:
        print(f"the book could not be built: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
