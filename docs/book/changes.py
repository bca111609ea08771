"""What a stage changes in the one that it grows out of, and the files that it brings, for its page."""

from collections.abc import Callable
from html import escape

from stages.difference import Difference
from stages.reading import File, Step
from stages.show import counts, lines_of_code

ID = "changes"  # of the diff on its page
CLASSES = {"-": "removed", "+": "added", " ": "same"}


def line(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text.rstrip(), quote=False) or " "}</span>'


def details(step: Step, shown: Difference) -> str:
    """The diff, open, as HTML for Doxygen, which leaves it as it is."""
    lines = []
    for heading, rows in shown.hunks():
        lines.append(line("hunk", heading))
        for row in rows:
            if row.after_blank:
                lines.append(line("same", ""))
            lines.append(line(CLASSES[row.sign], row.sign + row.text))  # the sign tells what colours tell
    summary = f"What it changes in <code>{escape(step.stage.said)}</code>: {counts(step)}"
    return (
        f'\\htmlonly\n<details class="changes" id="{ID}" open><summary>{summary}</summary>\n'
        f'<pre class="fragment diff"><code>{"".join(lines)}</code></pre>\n</details>\n\\endhtmlonly\n'
    )


def excerpt(lines: list[str]) -> list[str]:
    """A piece of a diff that stands in a README, with the colours of a stage's, as HTML that Doxygen leaves as it is."""
    rows = "".join(line("hunk" if row.startswith("@@") else CLASSES.get(row[:1], "same"), row) for row in lines)
    return [f'\\htmlonly[block]<pre class="fragment diff"><code>{rows}</code></pre>\\endhtmlonly', ""]


def first(step: Step) -> str:
    """How much there is to read in a stage that grows out of nothing."""
    return f"\n**New reading:** {counts(step)}.\n"


def files(found: list[File], resolve: Callable[[str], str]) -> str:
    """The files that are read for the first time at a stage, in Markdown; `resolve` tells where the site has them."""
    if not found:
        return ""
    rows = [f"- [`{file.path}`]({resolve(file.path)}): {lines_of_code(file.lines)}" for file in found]
    return "\n".join(["\nRead here for the first time:\n", *rows]) + "\n"
