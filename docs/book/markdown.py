"""The READMEs, which are written for GitHub, as Markdown that Doxygen reads: headings with ids, links, formulas."""

from pathlib import PurePosixPath
import posixpath
import re

from .changes import excerpt
from .comments import escape


# Formulas within a line, as GitHub takes them: $...$, and $`...`$ where Markdown would take a sign for its own. In code a
# dollar is a dollar.
FORMULA = re.compile(
    r"\$`(?P<quoted>[^`]+)`\$"
    r"|(?P<code>(?P<ticks>`+).+?(?P=ticks))"
    r"|(?<![\\\w$])\$(?P<plain>(?=[^\s$])[^$`]*?[^\s$\\])\$(?![\w$])",
    re.S,
)
TAGS = "img|a|br|b|em"  # HTML that stands in READMEs within text, and what bold() makes
# And around it: Doxygen would close what unfolds before its first table.
UNFOLDS = re.compile(r"(?m)^(?:<details>(?:\n<summary>.*</summary>)?|</details>)$")


# Before a section of a translated page: the id of the English section, and the hash of its text (docs/README.md).
TRANSLATES = re.compile(r"<!-- translates (?P<slug>[\w-]+)(?: (?P<digest>[0-9a-f]{10}))? -->")
# The link to the same page in the other language. The book has a switch in its head.
SWITCH = re.compile(r"(?m)^\[(?:中文|English)\]\([^()\s]+\)\n*")
HAN = r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"  # a Chinese letter or mark


# Words within a formula, in which GitHub's MathJax and ours treat an underscore differently.
WORDS = re.compile(r"\\(?:text|textit|textrm|texttt|mbox)\{[^{}]*\}")


def formula(text: str) -> str:
    """A formula for the site's MathJax: within words an underscore has no backslash, which would be shown."""
    return WORDS.sub(lambda match: match[0].replace(r"\_", "_"), text)


def slug(heading: str) -> str:
    """GitHub's id of a heading."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


class Slugs:
    """GitHub's ids of the headings of a text, one after the other: a heading that is there already gets a number."""

    def __init__(self):
        self.given: set[str] = set()

    def __call__(self, heading: str) -> str:
        first = slug(heading)
        found, number = first, 0
        while found in self.given:
            number += 1
            found = f"{first}-{number}"
        self.given.add(found)
        return found


def anchor(page: str, heading: str) -> str:
    """The site's id of a heading: Doxygen wants each only once on the whole site."""
    return f"{page}_{heading}"


def joined(lines: list[str]) -> list[str]:
    """Text without a line that only Doxygen takes for an item of a list: in a paragraph, one that begins with `64. `."""
    result: list[str] = []
    for line in lines:
        before = result[-1] if result else ""
        if re.match(r"(?!1\.)\d+\. ", line) and before.strip() and not re.match(r" *(\d+\.|-) |   ", before):
            result[-1] = f"{before} {line}"
        else:
            result.append(line)
    return result


def plain(heading: str) -> str:
    """A heading as Doxygen takes it, which shows all marks in it but those of code."""
    heading = re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^()\s]+\)", r"\1", heading)
    heading = FORMULA.sub(lambda m: m["code"] or f"`{m['quoted'] or m['plain']}`", heading)
    return re.sub(r"\*\*(.+?)\*\*", r"\1", heading)


def blocks(text: str):
    """Yields (fence's info or None, indentation, lines): fenced code, and what stands between."""
    lines: list[str] = []
    info = None
    indent = ""
    for line in text.splitlines():
        fence = re.match(r"( *)```(.*)", line)
        if fence and (info is None or fence[1] == indent):
            if lines or info is not None:
                yield info, indent, lines
            lines = []
            info, indent = (fence[2].strip(), fence[1]) if info is None else (None, "")
        else:
            lines.append(line[len(indent) :] if info is not None else line)
    if lines:
        yield info, indent, lines


def headings(text: str) -> list[tuple[int, str, str]]:
    """(level, heading, GitHub's id) of each heading of a README."""
    slugs = Slugs()
    found = [
        re.match(r"(#+) (.*)", line) for info, _, lines in blocks(text) if info is None for line in lines
    ]
    return [(len(match[1]), match[2], slugs(match[2])) for match in found if match]


def english_ids(text: str) -> dict[str, str]:
    """GitHub's id of each heading of a translated page that has a comment before it: the id of the English heading."""
    slugs = Slugs()
    result = {}
    pending = None
    for line in (line for info, _, lines in blocks(text) if info is None for line in lines):
        if match := TRANSLATES.fullmatch(line):
            pending = match["slug"]
        elif match := re.match(r"(#+) (.*)", line):
            slug = slugs(match[2])
            if pending and len(match[1]) > 1:
                result[slug] = pending
            pending = None
    return result


def emphasised(text: str) -> str:
    """*Emphasis* beside a Chinese letter as HTML: Doxygen wants a space there."""
    return re.sub(
        rf"(?s)(`[^`]*`|\\f\$.*?\\f\$)|(?<={HAN})\*(?=[^\s*])([^*\n]*)\*|(?<!\*)\*(?=[^\s*])([^*\n]*)\*(?={HAN})",
        lambda m: m[1] or f"<em>{m[2] or m[3]}</em>",
        text,
    )


def bold(text: str) -> str:
    """**Bold** as HTML: Doxygen leaves the stars where the bold text begins or ends with code."""
    return re.sub(
        r"(?s)(`[^`]*`)|\*\*(?=\S)((?:`[^`]*`|(?!\n\n|\*\*).)+)\*\*",
        lambda m: m[1] or f"<b>{m[2]}</b>",
        text,
    )


class Converter:
    """Makes a page of a README.

    resolve(path) gives the address on the site of a file of the repository, and for a README its page's name. `ids` is
    what ids of headings begin with: the page's name, but for a part of it that stands on another page, too, and there
    below a heading of level `below`. english(path) gives the ids of headings that are those of the English page, for the
    ids of a translated one.
    """

    def __init__(self, resolve, page: str, path: str, ids: str = "", below: int = 1, english=lambda path: {}):
        self.resolve = resolve
        self.english = english
        self.own_ids: dict[str, str] = {}
        self.page = page
        self.ids = ids or page
        self.levels = list(range(2, below + 1))  # of the headings that a heading stands below, as the README has them
        self.slugs = Slugs()
        self.folder = str(PurePosixPath(path).parent)

    def link(self, match: re.Match) -> str:
        """A link or a picture, its target on the site."""
        image, text, target = match[1], match[2], match[3]
        if re.match(r"\w+:", target):
            return match[0]
        path, _, heading = target.partition("#")
        if image:
            alternative = text.replace('"', "'")
            return f'<img src="{PurePosixPath(path).name}" alt="{alternative}"/>'
        if not path:
            return f"[{text}]({self.page}.html#{anchor(self.page, self.own_ids.get(heading, heading))})"
        path = posixpath.normpath(posixpath.join(self.folder, path))
        address = self.resolve(path)
        if heading:
            address += "#" + anchor(address.removesuffix(".html"), self.english(path).get(heading, heading))
        return f"[{text}]({address})"

    def prose(self, lines: list[str]) -> str:
        """What stands between fenced blocks."""
        text = "\n".join(joined(lines))
        text = re.sub(r"(?ms)^Contents: .*?\n\n", "", text)  # the site has its own
        text = re.sub(r"(?m)^<!-- .* -->\n*", "", text)

        def heading(match):
            while self.levels and self.levels[-1] >= len(match[1]):
                self.levels.pop()
            self.levels.append(len(match[1]))
            marks = "#" * (1 + len(self.levels))  # Doxygen wants no level left out
            slug = self.slugs(match[2])
            return f"{marks} {plain(match[2])} {{#{anchor(self.ids, self.own_ids.get(slug, slug))}}}"

        text = re.sub(r"(?m)^(##+) (.*)$", heading, text)
        text = re.sub(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)", self.link, text)
        text = bold(text)
        text = FORMULA.sub(lambda m: m["code"] or rf"\f${formula(m['quoted'] or m['plain'])}\f$", text)
        text = emphasised(text)
        text = UNFOLDS.sub(lambda m: rf"\htmlonly[block]{m[0]}\endhtmlonly", text)
        mark = r"\{#[\w\-]+\}(?=\n|\Z)"  # a heading's id
        return re.sub(
            rf"(?s)(\\f\$.*?\\f\$|\\htmlonly.*?\\endhtmlonly|</?(?:{TAGS})\b[^>]*>|{mark})"
            rf"|((?:(?!\\f\$|\\htmlonly|</?(?:{TAGS})\b|{mark}).)+)",
            lambda m: m[1] or escape(m[2]),
            text,
        )

    def convert(self, text: str) -> str:
        """All of it but the title, and comments for who edits it."""
        self.own_ids = english_ids(text)
        if title := re.match(r"(?:<!-- .* -->\n+)*# (.*)\n", text):
            self.slugs(title[1])
            text = SWITCH.sub("", text[title.end() :], count=1)
        result = []
        for info, indent, lines in blocks(text):
            if info is None:
                result.append(self.prose(lines))
            elif info == "math":
                result += ["", indent + r"\f[", *(indent + formula(l) for l in lines), indent + r"\f]", ""]
            elif info == "diff" and not indent:
                result += excerpt(lines)
            else:
                result += [f"{indent}```{{.{info or 'unparsed'}}}", *(indent + l for l in lines), f"{indent}```"]
        return "\n".join(result)


def section(text: str, heading: str) -> str:
    """The text below a heading `## ...`, up to the next of its level; empty if there is none."""
    match = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text)
    return match[1] if match else ""
