"""The READMEs, which are written for GitHub, as Markdown that Doxygen reads: headings with ids, links, formulas."""

from pathlib import PurePosixPath
import posixpath
import re

from .comments import escape


# Formulas within a line, as GitHub takes them: $...$, and $`...`$ where Markdown would take a sign for its own. In code a
# dollar is a dollar.
FORMULA = re.compile(
    r"\$`(?P<quoted>[^`]+)`\$"
    r"|(?P<code>(?P<ticks>`+).+?(?P=ticks))"
    r"|(?<![\\\w$])\$(?P<plain>(?=[^\s$])[^$`]*?[^\s$\\])\$(?![\w$])",
    re.S,
)
TAGS = "img|a|br|b"  # HTML that stands in READMEs within text, and what bold() makes
# And around it: Doxygen would close what unfolds before its first table.
UNFOLDS = re.compile(r"(?m)^(?:<details>(?:\n<summary>.*</summary>)?|</details>)$")


def slug(heading: str) -> str:
    """GitHub's id of a heading."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchor(page: str, heading: str) -> str:
    """The site's id of a heading: Doxygen wants each only once on the whole site."""
    return f"{page}_{heading}"


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


def bold(text: str) -> str:
    """**Bold** as HTML: Doxygen leaves the stars where the bold text begins or ends with code."""
    return re.sub(
        r"(?s)(`[^`]*`)|\*\*(?=\S)((?:`[^`]*`|(?!\n\n|\*\*).)+)\*\*",
        lambda m: m[1] or f"<b>{m[2]}</b>",
        text,
    )


class Converter:
    """Makes a page of a README.

    resolve(path) gives the address on the site of a file of the repository, and for a README its page's name.
    """

    def __init__(self, resolve, page: str, path: str):
        self.resolve = resolve
        self.page = page
        self.folder = str(PurePosixPath(path).parent)

    def link(self, match: re.Match) -> str:
        """A link or a picture, its target on the site."""
        image, text, target = match[1], match[2], match[3]
        if re.match(r"\w+:", target):
            return match[0]
        path, _, heading = target.partition("#")
        if image:
            return f'<img src="{PurePosixPath(path).name}" alt="{text}"/>'
        if not path:
            return f"[{text}]({self.page}.html#{anchor(self.page, heading)})"
        path = posixpath.normpath(posixpath.join(self.folder, path))
        address = self.resolve(path)
        if heading:
            address += "#" + anchor(address.removesuffix(".html"), heading)
        return f"[{text}]({address})"

    def prose(self, lines: list[str]) -> str:
        """What stands between fenced blocks."""
        text = "\n".join(lines)
        text = re.sub(r"(?ms)^Contents: .*?\n\n", "", text)  # the site has its own
        text = re.sub(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)", self.link, text)

        def heading(match):
            return f"{match[1]} {match[2]} {{#{anchor(self.page, slug(match[2]))}}}"

        text = re.sub(r"(?m)^(##+) (.*)$", heading, text)
        text = bold(text)
        text = FORMULA.sub(lambda m: m["code"] or rf"\f${m['quoted'] or m['plain']}\f$", text)
        text = UNFOLDS.sub(lambda m: rf"\htmlonly[block]{m[0]}\endhtmlonly", text)
        return re.sub(
            rf"(?s)(\\f\$.*?\\f\$|\\htmlonly.*?\\endhtmlonly|</?(?:{TAGS})\b[^>]*>)"
            rf"|((?:(?!\\f\$|\\htmlonly|</?(?:{TAGS})\b).)+)",
            lambda m: m[1] or escape(m[2]),
            text,
        )

    def convert(self, text: str) -> str:
        """All of it but the title, and comments for who edits it."""
        text = re.sub(r"(?m)^<!-- .* -->\n+", "", text)
        text = re.sub(r"\A# .*\n", "", text)
        result = []
        for info, indent, lines in blocks(text):
            if info is None:
                result.append(self.prose(lines))
            elif info == "math":
                result += ["", indent + r"\f[", *(indent + l for l in lines), indent + r"\f]", ""]
            else:
                result += [f"{indent}```{{.{info or 'unparsed'}}}", *(indent + l for l in lines), f"{indent}```"]
        return "\n".join(result)


def section(text: str, heading: str) -> str:
    """The text below a heading `## ...`, up to the next of its level; empty if there is none."""
    match = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text)
    return match[1] if match else ""
