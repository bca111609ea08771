"""What a stage changes in the one that it grows out of, for its page: a diff that unfolds."""

from html import escape

from stages.difference import Difference
from stages.show import counts

ID = "changes"  # of the diff on its page
CLASSES = {"-": "removed", "+": "added", " ": "same"}


def line(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text.rstrip(), quote=False) or " "}</span>'


def details(parent: str, code: Difference) -> str:
    """HTML for Doxygen, which leaves it as it is; `parent` is the file that the stage grows out of."""
    lines = []
    for heading, rows in code.hunks():
        lines.append(line("hunk", heading))
        for row in rows:
            if row.after_blank:
                lines.append(line("same", ""))
            lines.append(line(CLASSES[row.sign], row.sign + row.text))  # the sign tells what colours tell
    summary = f"What it changes in <code>{escape(parent)}</code>: {counts(code)}"
    return (
        f'\\htmlonly\n<details class="changes" id="{ID}"><summary>{summary}</summary>\n'
        f'<pre class="fragment"><code>{"".join(lines)}</code></pre>\n</details>\n\\endhtmlonly\n'
    )
