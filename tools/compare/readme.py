"""The README's top table: what each chapter's last stage reaches, from the published timings."""

from pathlib import Path
import re
from textwrap import wrap

from .groups import HEADLINES, find
from .peers import ratios
from .store import Timings, best_ms, limit_share
from .tables import figure, percent

BEGIN = "<!-- timings: written by ./tutorial compare --publish -->"
END = "<!-- end of timings -->"
AT = 16384  # the length that the table is about
NOT_MEASURED = "not measured"

# A row: the link to the chapter and what it teaches stay, the rest is written.
ROW = re.compile(r"^(\| \[[^\]]*\]\((?P<chapter>\d\d_\w+)/README\.md\) \| [^|]*\|).*$", re.M)


class ReadmeError(Exception):
    """A README without the table."""


def block_of(text: str) -> tuple[str, str, str]:
    """What is before, between and behind the markers."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ReadmeError(f"README.md needs the lines `{BEGIN}` and `{END}` around its table of chapters, once each")
    before, rest = text.split(BEGIN)
    inside, behind = rest.split(END)
    return before + BEGIN, inside, END + behind


def is_measured(timings: Timings, chapter: str) -> bool:
    """Whether the table has something to say of a chapter."""
    return sentence(timings, chapter, {}) != NOT_MEASURED


def sentence(timings: Timings, chapter: str, found: dict) -> str:
    """What the last GPU stage of a chapter's main operator reaches."""
    operator = HEADLINES.get(chapter, "")
    rows = find(timings, chapter, operator)
    stages = [stage for stage in rows.on_gpu() if AT in rows.ms(stage)]
    if not stages:
        return NOT_MEASURED
    timing = rows.stages[stages[-1]][AT]
    ms = best_ms(timing)
    sizes = timing["sizes"]
    shape = ", ".join(f"{symbol}={sizes[symbol]}" for symbol in ("B", "H", "L", "D") if symbol in sizes)
    if "Dk" in sizes:
        shape += f", Dk=Dv={sizes['Dk']}" if sizes["Dk"] == sizes["Dv"] else f", Dk={sizes['Dk']}, Dv={sizes['Dv']}"
    text = f"{figure(ms)} ms for {timing['dtype']} `{operator}` at {shape}"
    facts = []
    if (operator, AT) in found:
        facts.append(ratio_in_words(found[operator, AT], "flash-linear-attention"))
    if share := limit_share(timing):
        facts.append(f"{percent(share)} of the limit")
    return text + (": " + ", ".join(facts) if facts else "")


def ratio_in_words(ratio: float, peer: str) -> str:
    """Ratio of the peer's time to ours: a win and a loss in the same words."""
    if ratio >= 1:
        return f"{ratio:.2g} times as fast as {peer}"
    return f"takes {1 / ratio:.2g} times as long as {peer}"


def losses(found: dict[tuple[str, int], float]) -> str:
    """What the table's one length does not tell: every length at which the peer is faster."""
    slower: dict[str, list[str]] = {}
    for (operator, L), ratio in sorted(found.items()):
        if ratio < 1:
            slower.setdefault(operator, []).append(f"{L} ({1 / ratio:.3g})")
    if not found:
        return ""
    lengths = ", ".join(map(str, sorted({L for _, L in found})))
    text = "Ratios are to the fastest of flash-linear-attention's operators for the same, run beside ours on the same tensors, in a "
    text += "CUDA graph ([all of them](docs/timings/README.md#against-flash-linear-attention)). "
    if slower:
        where = "; ".join(f"`{operator}` at L = {', '.join(at)}" for operator, at in slower.items())
        text += f"Of the lengths compared ({lengths}) it is faster than ours at these, by the factor in brackets: {where}."
    else:
        text += f"It is the faster one at none of the lengths compared ({lengths})."
    return "\n".join(wrap(text, 120, break_long_words=False, break_on_hyphens=False)) + "\n"


def updated(text: str, timings: Timings, comparison: dict | None = None) -> str:
    """The README with its table, and the paragraph below it, written anew."""
    before, inside, behind = block_of(text)
    found = ratios(comparison)
    inside = inside[: inside.rindex("|\n") + 2] + "\n"
    if below := losses(found):
        inside += below + "\n"
    written = ROW.sub(lambda row: f"{row[1]} {sentence(timings, row['chapter'], found)} |", inside)
    gpu = short(timings.machine["gpu"])
    head = f"the last stage, on {article(gpu)} {gpu} ([all timings](docs/timings/README.md))"
    written = re.sub(r"^(\| chapter \| teaches \|).*$", rf"\1 {head} |", written, flags=re.M)
    return before + written + behind


def short(gpu: str) -> str:
    return gpu.removeprefix("NVIDIA ")


def article(gpu: str) -> str:
    return "an" if gpu[:1] in "AEFHLMNORSX8" else "a"


def update(path: Path, timings: Timings, comparison: dict | None = None) -> None:
    path.write_text(updated(path.read_text(encoding="utf-8"), timings, comparison), encoding="utf-8")
