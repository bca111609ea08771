"""A source as a page to read: each comment as text, then the code that it is about."""

import re

from .comments import markdown


def split(text: str) -> list[tuple[list[str], list[str]]]:
    """(comment, code) of each part of a source: a part begins at a `///` comment in the first column."""
    result: list[tuple[list[str], list[str]]] = []
    in_comment = False
    for line in text.splitlines():
        match = re.match(r"/// ?(.*)", line)
        if match:
            if not in_comment:
                result.append(([], []))
            result[-1][0].append(match[1])
        elif result:
            result[-1][1].append(line)
        in_comment = bool(match)
    return result


def annotated(text: str) -> tuple[str, str]:
    """(the opening comment, the rest in turn), both as Markdown; without an opening comment that is empty."""
    found = split(text)
    idea, code = [], []
    if found and "@file" in found[0][0]:
        idea, code = found[0][0][1:], found[0][1]
        found = found[1:]
    else:
        code = text[: text.find("\n///") + 1 or None].splitlines()
    result = []
    for comment, lines in [([], code), *found]:
        result.append(markdown(comment))
        lines = trim(lines)
        if lines:
            result += ["```{.cpp}", *lines, "```", ""]
    return markdown(idea), "\n".join(result)


def trim(code: list[str]) -> list[str]:
    """Without empty lines around."""
    while code and not code[0].strip():
        code = code[1:]
    while code and not code[-1].strip():
        code = code[:-1]
    return code
