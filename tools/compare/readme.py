"""The figures of the READMEs, from the published timings: the top README's picture and table of chapters, and the tables of
stages on the pages of the chapters and of their branches.

Each stands between two comments. A chapter's says which operator and, if not LENGTHS, which lengths:

    <!-- timings of gla at 512, 2048: written by ./tutorial compare --publish -->
    <!-- end of timings -->
"""

from pathlib import Path
import re
from textwrap import wrap

from .groups import HEADLINES, STAIRCASE_AT, Rows, find, stairs
from .peers import FLA, fastest, is_older, libraries, ratios
from .store import Timings, best_ms, is_gpu, limit_share
from .tables import cell, figure, percent, table

BEGIN = "<!-- timings: written by ./tutorial compare --publish -->"
END = "<!-- end of timings -->"
AT = 16384  # the length that the table is about
STAIRCASE = ("<!-- staircase: written by ./tutorial compare --publish -->", "<!-- end of staircase -->")
RATIOS = ("<!-- ratios: written by ./tutorial compare --publish -->", "<!-- end of ratios -->")
CHAPTER = re.compile(
    r"(?ms)^(<!-- timings of (?P<label>[\w -]+?)(?: at (?P<lengths>[\d, ]+))?: written by \./tutorial compare --publish -->\n)"
    r".*?^(<!-- end of timings -->)$"
)
LENGTHS = (128, 512, 2048, 16384)  # of a chapter's table
SHARES = (2048, 16384)  # the lengths at which it also says the share of the limit
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
    last = rows.last()
    if last is None or AT not in rows.ms(last):
        return NOT_MEASURED
    timing = rows.stages[last][AT]
    facts = []
    if share := limit_share(timing):
        facts.append(f"{percent(share)} of the limit")
    if (operator, AT) in found:
        facts.append(ratio_in_words(found[operator, AT], "flash-linear-attention"))
    return f"{figure(best_ms(timing))} ms" + (": " + ", ".join(facts) if facts else "")


def what_is_measured(timings: Timings) -> str:
    """The note below the table of chapters."""
    p = timings.problem
    widths = f"{p['Dk']} wide" if p["Dk"] == p["Dv"] else f"{p['Dk']} wide, values {p['Dv']}"
    text = f"(The chapter's main operator for {p['B']} sequences of {p['H']} heads and {AT} positions, {widths}; fp32 in chapters "
    text += "01 and 06, else bf16. "
    text += f"{timings.machine['gpu']}, {timings.date[:10]}. [The limit](docs/running.md#the-result-tables) is what a copy or the "
    text += "arithmetic of the same machine would allow. [All times](docs/timings/README.md), "
    text += "[how the ratios are made](docs/running.md#beside-other-libraries).)"
    return "\n".join(wrap(text, 120, break_long_words=False, break_on_hyphens=False)) + "\n"


def ratio_in_words(ratio: float, peer: str) -> str:
    """Ratio of the peer's time to ours: a win and a loss in the same words."""
    if ratio >= 1:
        return f"{ratio:.2g} times as fast as {peer}"
    return f"takes {1 / ratio:.2g} times as long as {peer}"


def dates(timings: Timings, comparison: dict | None) -> str:
    """When the peers were timed, if that was not when our stages were."""
    if not is_older(comparison, timings):
        return ""
    return (
        f"Its times are of {comparison['date'][:10]}, ours of {timings.date[:10]}, both on the same model of GPU. (The page of "
        f"all times has both as they were on {comparison['date'][:10]}.) "
    )


def where_faster(found: dict[tuple[str, int], float]) -> str:
    """The lengths at which the peer is faster, by operator, with the factor in brackets."""
    slower: dict[str, list[str]] = {}
    for (operator, L), ratio in sorted(found.items()):
        if ratio < 1:
            slower.setdefault(operator, []).append(f"{L} ({1 / ratio:.3g})")
    return "; ".join(f"`{operator}` at L = {', '.join(at)}" for operator, at in slower.items())


def losses(found: dict[tuple[str, int], float], dated: str = "", others: dict[str, dict] | None = None) -> str:
    """What the table's one length does not tell: every length at which a peer is faster. `others` are the ratios to
    libraries that the table does not name."""
    if not found:
        return ""
    lengths = ", ".join(map(str, sorted({L for _, L in found})))
    text = "A ratio is the time of the fastest of flash-linear-attention's operators that compute the same function, divided by "
    text += f"ours, both in a CUDA graph ([all of them](timings/README.md#against-flash-linear-attention)). {dated}"
    if where := where_faster(found):
        text += f"Of the lengths compared ({lengths}) flash-linear-attention is faster than ours at these, by the factor in brackets: {where}."
    else:
        text += f"flash-linear-attention is the faster one at none of the lengths compared ({lengths})."
    for name, ratios_to_it in (others or {}).items():
        compared = ", ".join(f"`{operator}`" for operator in sorted({operator for operator, _ in ratios_to_it}))
        where = where_faster(ratios_to_it)
        text += f" {name}, compared for {compared}, is " + (f"faster for {where}." if where else "faster nowhere.")
    return "\n".join(wrap(text, 120, break_long_words=False, break_on_hyphens=False)) + "\n"


def updated(text: str, timings: Timings, comparison: dict | None = None) -> str:
    """The top README with its table and the note below it, written anew."""
    before, inside, behind = block_of(text)
    found = ratios(comparison, timings)
    inside = inside[: inside.rindex("|\n") + 2] + "\n" + what_is_measured(timings) + "\n"
    written = ROW.sub(lambda row: f"{row[1]} {sentence(timings, row['chapter'], found)} |", inside)
    gpu = short(timings.machine["gpu"])
    written = re.sub(r"^(\| chapter \| [^|]* \|).*$", rf"\1 its fastest kernel, on {article(gpu)} {gpu} |", written, flags=re.M)
    return staircase_updated(before + written + behind, timings)


def ratios_updated(text: str, timings: Timings, comparison: dict | None = None) -> str:
    """The page on running with its paragraph on other libraries written anew."""
    begin, end = RATIOS
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ReadmeError(f"docs/running.md needs the lines `{begin}` and `{end}`, once each")
    others = {name: r for name in libraries(comparison) if name != FLA and (r := ratios(comparison, timings, name))}
    said = losses(ratios(comparison, timings), dates(timings, comparison), others) or "Not compared yet.\n"
    return f"{text[: text.index(begin)]}{begin}\n\n{said}\n{text[text.index(end) :]}"


def short(gpu: str) -> str:
    return gpu.removeprefix("NVIDIA ")


def article(gpu: str) -> str:
    return "an" if gpu[:1] in "AEFHLMNORSX8" else "a"


def staircase_updated(text: str, timings: Timings) -> str:
    """The README with the picture of one operator's way, and a sentence that says what is seen."""
    begin, end = STAIRCASE
    steps = stairs(timings)
    if text.count(begin) != 1 or text.count(end) != 1 or len(steps) < 3:
        return text
    before, rest = text.split(begin)
    behind = rest.split(end)[1]
    first, last = steps[0], steps[-1]
    p = timings.problem
    gpu = short(timings.machine["gpu"])
    said = f"{STAIRCASE_AT} positions, {p['B'] * p['H']} heads, {p['Dk']} wide, on {article(gpu)} {gpu}: from {figure(best_ms(first))} ms "
    said += f"for a loop on one core of its CPU to {figure(best_ms(last))} ms for `{last['stage']}` of chapter {last['chapter'][:2]}"
    if share := limit_share(last):
        said += f", {percent(share)} of what the machine would allow"
    said += ". Each bar is one source file, whose first comment says which flaw of an earlier one it mends."
    words = "Causal linear attention from the first loop to the last kernel: a bar for the time of each stage, and the limit."
    inside = [f"![{words}](docs/timings/first_to_last.svg)", "\n".join(wrap(said, 120, break_on_hyphens=False))]
    return before + begin + "\n\n" + "\n\n".join(inside) + "\n\n" + end + behind


def chapter_table(
    timings: Timings, chapter: str, label: str, lengths: tuple[int, ...], comparison: dict | None, depth: int = 1
) -> str:
    """An operator's stages, a row each, with their times at some lengths and their shares of the limit; its peers; a note.

    `depth` is how many folders the page is below the root."""
    rows = find(timings, chapter, label)
    if not rows.stages:
        return "Not measured yet.\n"
    shares = [L for L in SHARES if L in lengths]
    body = []
    for name, by_length in rows.stages.items():
        if not any(L in by_length for L in lengths):
            continue
        some = next(iter(by_length.values()))
        reached = [percent(limit_share(by_length[L])) if L in by_length else "" for L in shares]
        cells = [cell(by_length.get(L)) for L in lengths]
        body.append([f"`{name}`", "GPU" if is_gpu(some) else "CPU", some["dtype"], *cells, *reached])
    operator, *options = label.split(" --")
    named = []
    for name in libraries(comparison) if chapter == chapter_of(comparison, operator) else ():
        peers = fastest(comparison, operator, "+".join(options) or None, name)
        if any(L in peers for L in lengths):
            theirs = [figure(peers[L]["theirs"]["graph"]) if L in peers else "" for L in lengths]
            body.append([name, "GPU", "bf16", *theirs, *("" for _ in shares)])
            named.append(name)
    head = ["stage", "on", "type", *(f"L = {L}" for L in lengths), *(f"of the limit, {L}" for L in shares)]
    note = f"{timings.machine['gpu']}, {timings.date[:10]}, commit {timings.commit}; {sizes_of(rows, timings.problem)}; "
    note += "milliseconds per call, on the GPU in a "
    form = options[0] if len(options) == 1 else ""
    page = f"{form}.md" if all(timing["form"] for timing in timings) else "README.md"
    note += "CUDA graph; `-`: not run. [All lengths](" + "../" * depth + f"docs/timings/{page})."
    if named:
        note += f" {' and '.join(named)}: the fastest of {'its' if len(named) == 1 else 'their'} operators for the same"
        note += f", of {comparison['date'][:10]}." if is_older(comparison, timings) else "."
    return table(head, body) + "\n" + "\n".join(wrap(f"({note})", 120, break_long_words=False, break_on_hyphens=False)) + "\n"


def sizes_of(rows: Rows, problem: dict) -> str:
    """The sizes that an operator was timed with: those of the problem, or its own where its states are D numbers."""
    for timing in (timing for by_length in rows.stages.values() for timing in by_length.values()):
        sizes = timing["sizes"]
        if "D" in sizes and "Dk" not in sizes:
            return ", ".join(f"{symbol}={sizes[symbol]}" for symbol in ("B", "H", "D") if symbol in sizes)
    p = problem
    return f"B={p['B']}, H={p['H']}, " + (f"Dk=Dv={p['Dk']}" if p["Dk"] == p["Dv"] else f"Dk={p['Dk']}, Dv={p['Dv']}")


def chapter_of(comparison: dict | None, operator: str) -> str | None:
    """The chapter whose operator was compared with peers."""
    found = (row["chapter"] for row in comparison["comparisons"] if row["operator"] == operator) if comparison else ()
    return next(iter(found), None)


def chapter_updated(
    text: str, chapter: str, published: list[Timings], comparison: dict | None = None, depth: int = 1
) -> str:
    """A page of a chapter with its tables written anew, each from the first of the timings that have its operator."""

    def written(block: re.Match) -> str:
        lengths = tuple(int(L) for L in block["lengths"].split(",")) if block["lengths"] else LENGTHS
        label = block["label"]
        timings = next((t for t in published if find(t, chapter, label).stages), published[0])
        return f"{block[1]}\n{chapter_table(timings, chapter, label, lengths, comparison, depth)}\n{block[4]}"

    return CHAPTER.sub(written, text)


def pages(root: Path) -> list[tuple[Path, str, int]]:
    """The pages of the chapters and of their branches: each with its chapter, and how many folders it is below the root."""
    found = sorted(root.glob("[0-9][0-9]_*/README.md")) + sorted(root.glob("[0-9][0-9]_*/*/README.md"))
    return [(path, (parts := path.relative_to(root).parts)[0], len(parts) - 1) for path in found]


def update(root: Path, timings: Timings, comparison: dict | None = None) -> None:
    """The top README and the page on running."""
    for name, writes in (("README.md", updated), ("docs/running.md", ratios_updated)):
        path = root / name
        path.write_text(writes(path.read_text(encoding="utf-8"), timings, comparison), encoding="utf-8")


def update_chapters(root: Path, published: list[Timings], comparison: dict | None = None) -> None:
    """The tables of all pages of the chapters and of their branches."""
    for path, chapter, depth in pages(root):
        text = path.read_text(encoding="utf-8")
        path.write_text(chapter_updated(text, chapter, published, comparison, depth), encoding="utf-8")
