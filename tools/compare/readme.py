"""The figures of the READMEs, from the published timings: the top README's picture and table of chapters, and the tables of
stages on the pages of the chapters and of their branches.

Each stands between two comments, on translated pages (README.zh.md), too. A chapter's says which operator and, if not LENGTHS, which lengths:

    <!-- timings of gla at 512, 2048: written by ./tutorial compare --publish -->
    <!-- end of timings -->
"""

from pathlib import Path
import re
import tomllib

from .groups import HEADLINES, STAIRCASE_AT, Rows, find, stairs
from .peers import FLA, fastest, is_older, libraries, ratios
from .store import Timings, best_ms, is_gpu, limit_share
from .tables import cell, figure, percent, table
from .words import ENGLISH, Words, words_of

BEGIN = "<!-- timings: written by ./tutorial compare --publish -->"
END = "<!-- end of timings -->"
AT = 16384  # the length that the table is about
STAIRCASE = ("<!-- staircase: written by ./tutorial compare --publish -->", "<!-- end of staircase -->")
RATIOS = ("<!-- ratios: written by ./tutorial compare --publish -->", "<!-- end of ratios -->")
CHAPTER = re.compile(
    r"(?ms)^(<!-- timings of (?P<label>[\w -]+?)(?: at (?P<lengths>[\d, ]+))?: written by \./tutorial compare --publish -->\n)"
    r".*?^(<!-- end of timings -->)$"
)
# Tables of docs/timings/runs.toml: <!-- runs of NAME: written by ./tutorial compare --publish --> ... <!-- end of runs -->
RUNS = re.compile(
    r"(?ms)^(<!-- runs of (?P<name>[\w -]+?): written by \./tutorial compare --publish -->\n).*?^(<!-- end of runs -->)$"
)
LENGTHS = (128, 512, 2048, 16384)  # of a chapter's table
SHARES = (2048, 16384)  # the lengths at which it also says the share of the limit
NOT_MEASURED = "not measured"

# A row: the link to the chapter and what it teaches stay, the rest is written.
ROW = re.compile(r"^(\| \[[^\]]*\]\((?P<chapter>\d\d_\w+)/README(?:\.zh)?\.md\) \| [^|]*\|).*$", re.M)


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


def sentence(timings: Timings, chapter: str, found: dict, words: Words = ENGLISH) -> str:
    """What the last GPU stage of a chapter's main operator reaches."""
    operator = HEADLINES.get(chapter, "")
    rows = find(timings, chapter, operator)
    last = rows.last()
    if last is None or AT not in rows.ms(last):
        return words(NOT_MEASURED)
    timing = rows.stages[last][AT]
    facts = []
    if share := limit_share(timing):
        facts.append(words("{share} of the limit", share=percent(share)))
    if (operator, AT) in found:
        facts.append(ratio_in_words(found[operator, AT], "flash-linear-attention", words))
    said = words("{ms} ms", ms=figure(best_ms(timing)))
    return words("{time}: {facts}", time=said, facts=words.comma.join(facts)) if facts else said


def what_is_measured(timings: Timings, words: Words = ENGLISH) -> str:
    """The note below the table of chapters."""
    p = timings.problem
    parts = [
        words(
            "(The chapter's main operator for {B} sequences of {H} heads and {L} positions, {width} wide; fp32 in chapters 01 and "
            "06, else bf16.",
            B=p["B"], H=p["H"], L=AT, width=p["Dk"] if p["Dk"] == p["Dv"] else f"{p['Dk']}, {p['Dv']}",
        ),
        words("{gpu}, {date}.", gpu=timings.machine["gpu"], date=timings.date[:10]),
        words(
            "[The limit](docs/running.md#the-result-tables) is what a copy or the arithmetic of the same machine would allow."
        ),
        words("[All times](docs/timings/README.md), [how the ratios are made](docs/running.md#beside-other-libraries).)"),
    ]  # fmt: skip
    return words.paragraph(words.gap.join(parts))


def widths(p: dict) -> str:
    return f"Dk=Dv={p['Dk']}" if p["Dk"] == p["Dv"] else f"Dk={p['Dk']}, Dv={p['Dv']}"


def ratio_in_words(ratio: float, peer: str, words: Words = ENGLISH) -> str:
    """Ratio of the peer's time to ours: a win and a loss in the same words."""
    if ratio >= 1:
        return words("{ratio} times as fast as {peer}", ratio=f"{ratio:.2g}", peer=peer)
    return words("takes {ratio} times as long as {peer}", ratio=f"{1 / ratio:.2g}", peer=peer)


def dates(timings: Timings, comparison: dict | None, words: Words = ENGLISH) -> str:
    """When the peers were timed, if that was not when our stages were."""
    if not is_older(comparison, timings):
        return ""
    return words(
        "Its times are of {theirs}, ours of {ours}, both on the same model of GPU. (The page of all times has both as they "
        "were on {theirs}.)",
        theirs=comparison["date"][:10],
        ours=timings.date[:10],
    )


def where_faster(found: dict[tuple[str, int], float], words: Words = ENGLISH) -> str:
    """The lengths at which the peer is faster, by operator, with the factor in brackets."""
    slower: dict[str, list[str]] = {}
    for (operator, L), ratio in sorted(found.items()):
        if ratio < 1:
            slower.setdefault(operator, []).append(words("{L} ({factor})", L=L, factor=f"{1 / ratio:.3g}"))
    return words("; ").join(
        words("`{operator}` at L = {lengths}", operator=operator, lengths=words(", ").join(at)) for operator, at in slower.items()
    )


def losses(
    found: dict[tuple[str, int], float], dated: str = "", others: dict[str, dict] | None = None, words: Words = ENGLISH
) -> str:
    """What the table's one length does not tell: every length at which a peer is faster. `others` are the ratios to
    libraries that the table does not name."""
    if not found:
        return ""
    lengths = words(", ").join(map(str, sorted({L for _, L in found})))
    parts = [
        words(
            "A ratio is the time of the fastest of flash-linear-attention's operators that compute the same function, divided "
            "by ours, both in a CUDA graph ([all of them](timings/README.md#against-flash-linear-attention))."
        ),
        dated,
    ]
    if where := where_faster(found, words):
        parts.append(
            words(
                "Of the lengths compared ({lengths}) flash-linear-attention is faster than ours at these, by the factor in "
                "brackets: {where}.",
                lengths=lengths,
                where=where,
            )
        )
    else:
        parts.append(
            words("flash-linear-attention is the faster one at none of the lengths compared ({lengths}).", lengths=lengths)
        )
    for name, ratios_to_it in (others or {}).items():
        compared = words(", ").join(f"`{operator}`" for operator in sorted({operator for operator, _ in ratios_to_it}))
        if where := where_faster(ratios_to_it, words):
            said = "{name}, compared for {operators}, is faster for {where}."
        else:
            said = "{name}, compared for {operators}, is faster nowhere."
        parts.append(words(said, name=name, operators=compared, **({"where": where} if where else {})))
    return words.paragraph(words.gap.join(part for part in parts if part))


def updated(text: str, timings: Timings, comparison: dict | None = None, words: Words = ENGLISH) -> str:
    """The top README with its table and the note below it, written anew."""
    before, inside, behind = block_of(text)
    found = ratios(comparison, timings)
    inside = inside[: inside.rindex("|\n") + 2] + "\n" + what_is_measured(timings, words) + "\n"
    written = ROW.sub(lambda row: f"{row[1]} {sentence(timings, row['chapter'], found, words)} |", inside)
    head = words("its fastest kernel, on {gpu}", gpu=machine(timings, words))
    written = re.sub(rf"(?m)^(\| {words('chapter')} \| [^|]* \|).*$", rf"\1 {head} |", written)
    return staircase_updated(before + written + behind, timings, words)


def ratios_updated(text: str, timings: Timings, comparison: dict | None = None, words: Words = ENGLISH) -> str:
    """The page on running with its paragraph on other libraries written anew."""
    begin, end = RATIOS
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise ReadmeError(f"docs/running.md needs the lines `{begin}` and `{end}`, once each")
    others = {name: r for name in libraries(comparison) if name != FLA and (r := ratios(comparison, timings, name))}
    said = losses(ratios(comparison, timings), dates(timings, comparison, words), others, words)
    return f"{text[: text.index(begin)]}{begin}\n\n{said or words('Not compared yet.') + chr(10)}\n{text[text.index(end) :]}"


def short(gpu: str) -> str:
    return gpu.removeprefix("NVIDIA ")


def article(gpu: str) -> str:
    return "an" if gpu[:1] in "AEFHLMNORSX8" else "a"


def machine(timings: Timings, words: Words) -> str:
    """The GPU's name as a sentence needs it."""
    gpu = short(timings.machine["gpu"])
    return f"{article(gpu)} {gpu}" if words is ENGLISH else gpu


def staircase_updated(text: str, timings: Timings, words: Words = ENGLISH) -> str:
    """The README with the picture of one operator's way, and a sentence that says what is seen."""
    begin, end = STAIRCASE
    steps = stairs(timings)
    if text.count(begin) != 1 or text.count(end) != 1 or len(steps) < 3:
        return text
    before, rest = text.split(begin)
    behind = rest.split(end)[1]
    first, last = steps[0], steps[-1]
    p = timings.problem
    said = words(
        "{L} positions, {heads} heads, {width} wide, on {gpu}: from {first} ms for a loop on one core of its CPU to {last} ms "
        "for `{stage}` of chapter {chapter}",
        L=STAIRCASE_AT, heads=p["B"] * p["H"], width=p["Dk"], gpu=machine(timings, words), first=figure(best_ms(first)),
        last=figure(best_ms(last)), stage=last["stage"], chapter=last["chapter"][:2],
    )  # fmt: skip
    if share := limit_share(last):
        said += words(", {share} of what the machine would allow", share=percent(share))
    said += words(". Each bar is one source file, whose first comment says which flaw of an earlier one it mends.")
    seen = words("Causal linear attention from the first loop to the last kernel: a bar for the time of each stage, and the limit.")
    inside = [f"![{seen}](docs/timings/first_to_last.svg)", words.paragraph(said).rstrip("\n")]
    return before + begin + "\n\n" + "\n\n".join(inside) + "\n\n" + end + behind


def chapter_table(
    timings: Timings,
    chapter: str,
    label: str,
    lengths: tuple[int, ...],
    comparison: dict | None,
    depth: int = 1,
    words: Words = ENGLISH,
) -> str:
    """An operator's stages, a row each, with their times at some lengths and their shares of the limit; its peers; a note.

    `depth` is how many folders the page is below the root."""
    rows = find(timings, chapter, label)
    if not rows.stages:
        return words("Not measured yet.") + "\n"
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
    head = [words("stage"), words("on"), words("type"), *(f"L = {L}" for L in lengths)]
    head += [words("of the limit, {L}", L=L) for L in shares]
    form = options[0] if len(options) == 1 else ""
    page = f"{form}.md" if all(timing["form"] for timing in timings) else "README.md"
    note = words(
        "{gpu}, {date}, commit {commit}; {sizes}; milliseconds per call, on the GPU in a CUDA graph; `-`: not run. [All "
        "lengths]({page}).",
        gpu=timings.machine["gpu"], date=timings.date[:10], commit=timings.commit, sizes=sizes_of(rows, timings.problem),
        page="../" * depth + f"docs/timings/{page}",
    )  # fmt: skip
    if named:
        said = "{names}: the fastest of its operators for the same" if len(named) == 1 else "{names}: the fastest of their operators for the same"
        note += words.gap + words(said, names=words(" and ").join(named))
        note += words(", of {date}.", date=comparison["date"][:10]) if is_older(comparison, timings) else words(".")
    return table(head, body) + "\n" + words.paragraph(words("({note})", note=note))


def sizes_of(rows: Rows, problem: dict) -> str:
    """The sizes that an operator was timed with: those of the problem, or its own where its states are D numbers."""
    for timing in (timing for by_length in rows.stages.values() for timing in by_length.values()):
        sizes = timing["sizes"]
        if "D" in sizes and "Dk" not in sizes:
            return ", ".join(f"{symbol}={sizes[symbol]}" for symbol in ("B", "H", "D") if symbol in sizes)
    return f"B={problem['B']}, H={problem['H']}, {widths(problem)}"


def chapter_of(comparison: dict | None, operator: str) -> str | None:
    """The chapter whose operator was compared with peers."""
    found = (row["chapter"] for row in comparison["comparisons"] if row["operator"] == operator) if comparison else ()
    return next(iter(found), None)


def chapter_updated(
    text: str,
    chapter: str,
    published: list[Timings],
    comparison: dict | None = None,
    depth: int = 1,
    words: Words = ENGLISH,
) -> str:
    """A page of a chapter with its tables written anew, each from the first of the timings that have its operator."""

    def written(block: re.Match) -> str:
        lengths = tuple(int(L) for L in block["lengths"].split(",")) if block["lengths"] else LENGTHS
        label = block["label"]
        timings = next((t for t in published if find(t, chapter, label).stages), published[0])
        return f"{block[1]}\n{chapter_table(timings, chapter, label, lengths, comparison, depth, words)}\n{block[4]}"

    return CHAPTER.sub(written, text)


def load_runs(path: Path) -> dict[str, dict]:
    """What was measured outside of a sweep: docs/timings/runs.toml."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def runs_updated(text: str, runs: dict[str, dict]) -> str:
    """A page with its tables of runs written anew."""

    def written(block: re.Match) -> str:
        if block["name"] not in runs:
            raise ReadmeError(f"docs/timings/runs.toml has no runs of {block['name']}")
        run = runs[block["name"]]
        return f"{block[1]}\n{table(run['columns'], run['rows'])}\n({run['gpu']}, {run['date']}.)\n\n{block[3]}"

    return RUNS.sub(written, text)


def pages(root: Path) -> list[tuple[Path, str, int]]:
    """The pages of the chapters and of their branches: each with its chapter, and how many folders it is below the root."""
    found = [path for pattern in ("README.md", "README.zh.md", "*/README.md") for path in sorted(root.glob(f"[0-9][0-9]_*/{pattern}"))]
    return [(path, (parts := path.relative_to(root).parts)[0], len(parts) - 1) for path in found]


def update(root: Path, timings: Timings, comparison: dict | None = None) -> None:
    """The top README and the page on running, and their translations."""
    for name, writes in (("README.md", updated), ("docs/running.md", ratios_updated)):
        english = root / name
        for path in (english, english.with_suffix(".zh.md")):
            if path.exists():
                path.write_text(writes(path.read_text(encoding="utf-8"), timings, comparison, words_of(path)), encoding="utf-8")


def update_chapters(root: Path, published: list[Timings], comparison: dict | None = None) -> None:
    """The tables of all pages of the chapters and of their branches."""
    written_down = root / "docs/timings/runs.toml"
    runs = load_runs(written_down) if written_down.exists() else {}
    for path, chapter, depth in pages(root):
        text = chapter_updated(
            path.read_text(encoding="utf-8"), chapter, published, comparison, depth, words_of(path)
        )
        path.write_text(runs_updated(text, runs), encoding="utf-8")
