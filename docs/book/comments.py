"""Comments of the sources as text: `///` lines to Markdown that Doxygen reads as it is meant.

A run of lines that are indented further and follow an empty line is an equation or a picture: it stays as it stands.
"""

import re

# How a stage's opening comment names its parts (CONTRIBUTING.md).
LABELS = (
    "Idea|Grows out of|Improves on|Unchanged|Equation|Shapes|Outputs|Thread mapping|Synchronization|Resources|Registers|"
    "Precision|Work|Bytes|Bound by|Requires|Fallback|Weakness|Sources?"
)

COMMANDS = {"file", "param", "tparam", "return", "returns", "brief", "ref", "throws"}


def escape(text: str) -> str:
    """Takes from prose what Doxygen would take for a tag, a command or a link; `code` stays."""

    def prose(part: str) -> str:
        part = part.replace("\\", "\\\\")
        part = re.sub(r"--(?=\w)", r"\\--", part)  # an option, and no dash
        part = re.sub(r"<(?=[A-Za-z/!])", "&lt;", part)
        part = re.sub(r"(?<![ <=\-])>(?=\S)|(?<=[a-z])>", "&gt;", part)
        part = re.sub(r"@(\w+)", lambda m: m[0] if m[1] in COMMANDS else f"@{m[0]}", part)
        part = re.sub(r"%(?=[^\x00-\x7f])", r"\%", part)  # Doxygen would take it for the mark of a word that is no link
        return re.sub(r"(?<!\S)#(?=\w)", r"\#", part)

    def code(part: str) -> str:
        return f"`{part}`" if "'" in part else part  # Doxygen takes `...' for a quotation

    # A shape at the start of a line, `[B, H]: what it is`, and no definition of a link. Doxygen knows no &#58;.
    text = re.sub(r"(?m)^( {0,3})(?=\[[^\]\n]*\]:)", r"\1&zwj;", text)
    return "".join(code(part) if i % 2 else prose(part) for i, part in enumerate(re.split(r"(`[^`]*`)", text)))


def is_picture(line: str, previous: str | None) -> bool:
    """Whether a picture or an equation begins here."""
    return bool(re.match(r" {2}", line)) and not (previous or "").strip()


def parts(lines: list[str]):
    """Yields (is a picture, its lines) for a comment's lines, which have lost their `/// `."""
    part: list[str] = []
    picture = False
    previous = None
    for line in lines:
        begins = is_picture(line, previous) if not picture else False
        ends = picture and line.strip() and not line.startswith("  ")
        if begins or ends:
            if part:
                yield picture, part
            part, picture = [], begins
        part.append(line)
        previous = line
    if part:
        yield picture, part


def dedent(lines: list[str]) -> list[str]:
    """Without empty lines around, and without what all lines are indented by."""
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    indent = min((len(l) - len(l.lstrip()) for l in lines if l.strip()), default=0)
    return [l[indent:] for l in lines]


def prose(lines: list[str]) -> str:
    """Paragraphs; one more at each label at a line's start, and labels in bold."""
    text = "\n".join(escape(line) for line in lines)
    text = re.sub(rf"(?m)^({LABELS})\b(?=[:, ])", r"\n\1", text)
    text = re.sub(rf"(?m)(^|[.;] )({LABELS})( [a-z0-9 =,]*)?:", r"\1**\2\3:**", text)
    text = re.sub(r"(?m)^@t?param (\w+)", r"\n`\1`:", text)
    text = re.sub(r"(?m)^@returns? ", "\nReturns ", text)
    text = re.sub(r"(?m)^  (\d+\. )", r"\n\1", text, count=1)  # a list
    text = re.sub(r"(?m)^  (\d+\. )", r"\1", text)
    return re.sub(r"([^\n])\n(- .*)", r"\1\n\n\2", text, count=1)


def markdown(lines: list[str]) -> str:
    """A comment as Markdown."""
    result = []
    for picture, part in parts(lines):
        if picture:
            result += ["```{.unparsed}", *dedent(part), "```", ""]
        else:
            result += [prose(part), ""]
    return "\n".join(result)
