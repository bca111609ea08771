#!/usr/bin/env python3
"""Doxygen's view of a source: what readers see in its comments, said in Doxygen's way. Keeps every line's number.

- Pictures and equations in comments stay as they stand.
- A field or a getter without a comment is one whose name and type say all.
- Of a source that is no header only the opening comment counts: what it defines is documented in a header.
- A comment `//` above a run of declarations is about all of them; one `///` about the first and its overloads.
  One of two names is about both.
"""

from pathlib import Path
import re
import sys

from book.comments import escape, is_picture

# A declaration of one line, with what documents it behind it.
DECLARATION = re.compile(
    r"(\s*)((?!return\b|using namespace\b|#|\}|public|private|namespace\b)[\w:~\[].*?[;}])\s*(//.*)?$"
)
# One of several names: type, names.
# A field, or a variable.
FIELD = re.compile(
    r"(?!using|friend|typedef|return|delete|throw|break|continue|goto|static_assert)[^(){}]*(\{[^{}]*\})?( = [^;]*)?;$"
)
NAMES = re.compile(r"((?:[\w:<>]+ )+)(\w+(?:\[\w+\])?(?: = [^,;]+)?(?:, \w+(?:\[\w+\])?(?: = [^,;]+)?)+);$")
# A getter, whose name says what it gets.
GETTER = re.compile(r"[^()]*\(\) (?:const )?\{ return \w+(?:\.get\(\))?; \}$")


def said(text: str) -> str:
    """Text as Doxygen reads it. It takes the dot of `./tutorial` for the end of a comment's first sentence, so that the
    reference has to do without it."""
    return re.sub(r"`\./(?=\w)", "`", escape(text))


def comments(lines: list[str]) -> None:
    """Pictures and equations between @verbatim and @endverbatim, the rest escaped."""
    previous = None  # the comment's line before, None outside of comments
    picture = False
    for i, line in enumerate(lines):
        match = re.match(r"(\s*///)(?!<) ?(.*)", line)
        if not match:
            if picture:
                lines[i - 1] += " @endverbatim"
            previous, picture = None, False
            continue
        start, comment = match[1], match[2]
        if not picture and previous is not None and is_picture(comment, previous):
            picture = True
            lines[i - 1] = re.match(r"\s*///", lines[i - 1])[0] + " @verbatim"
        elif picture and comment.strip() and not comment.startswith("  "):
            picture = False
            lines[i - 1] += " @endverbatim"
        if not picture:
            lines[i] = f"{start} {said(comment)}".rstrip()
        previous = comment


def declarations(lines: list[str]) -> None:
    """Repeats a comment for each of the declarations that it is about."""
    heading: list[str] = []  # the comment above the run
    fresh = False  # nothing declared since the comment
    first_name = None  # of the first declaration since then
    for i, line in enumerate(lines):
        comment = re.match(r"\s*(///?)(?!<) ?(.*)", line)
        if comment:
            if not fresh:
                heading = []
            heading.append(comment[2])
            first_is_doxygen = comment[1] == "///"
            fresh = True
            continue
        match = None if "= delete" in line else DECLARATION.match(line)
        if not match:
            if "= delete" in line or not line.strip() or line.rstrip().endswith(("{", "}", "};", ":")):
                heading, fresh = [], False
            elif heading and fresh and not first_is_doxygen and re.match(r"\s*[\w:]", line):
                lines[i] = documented(line, heading)  # the first line of a longer declaration
                fresh = False
            continue
        indent, code, own = match.groups()
        name = re.search(r"(\w+)\s*\(|$", code)[1]
        if fresh:
            first_name = name
        elif heading and first_is_doxygen and name != first_name:
            heading = []
        text = [own.lstrip("/<").strip()] if own else heading
        if not text and (FIELD.match(re.sub(r"<.*>", "", code)) or GETTER.match(code)):
            text = ["&zwj;"]
        if text and "@file" not in text[0]:
            names = NAMES.match(code)
            one_each = [f"{names[1]}{n};" for n in names[2].split(", ")] if names else [code]
            covered = fresh and heading and first_is_doxygen and not own
            lines[i] = indent + " ".join(
                c if covered and not k else documented(c, text) for k, c in enumerate(one_each)
            )
        fresh = False


def documented(code: str, text: list[str]) -> str:
    """The code with its comment in front, on one line."""
    words = " ".join(text).replace("*/", "").strip()
    return f"/** {said(words)} */ {code}" if words and "@verbatim" not in words else code


def filtered(text: str, path: Path) -> str:
    """The source as Doxygen needs it."""
    header = path.suffix in (".hpp", ".cuh", ".h")
    lines = text.splitlines()
    if header:
        declarations(lines)
    comments(lines)
    if "/// @file" not in text and lines:
        lines[0] = "/** @file */ " + lines[0]  # else Doxygen links to a page of the file, and makes none
    if not header and "" in lines:
        lines[lines.index("")] = "/** @cond */"
        lines.append("/** @endcond */")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    sys.stdout.write(filtered(path.read_text(encoding="utf-8"), path))
