"""Timings as Markdown tables."""

from math import inf

from .groups import ALGORITHMS, OTHER_WORK, YARDSTICKS, Rows, algorithms, crossovers, find, operators
from .store import Timings, best_ms, is_gpu, label_of, limit_share, one_line

CHOICE_LIMIT = 1.03  # of a dispatch to the fastest that it could have chosen: more is not noise

GENERATED = "<!-- Written by ./tutorial compare from {}: do not edit. -->"


def figure(ms: float | None) -> str:
    """Milliseconds with three digits or more: 0.0123, 0.123, 1.23, 12.3, 123, 1234."""
    if ms is None:
        return ""
    if ms >= 100:
        return f"{ms:.0f}"
    digits = 4
    for power in (0.1, 1, 10):
        digits -= ms >= power
    return f"{ms:.{max(digits, 1)}f}"


def percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; the first column holds names, the others figures."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in [head, *rows]]
    lines = ["| " + " | ".join(row) + " |" for row in escaped]
    lines.insert(1, "| --- |" + " ---: |" * (len(head) - 1))
    return "\n".join(lines) + "\n"


def slug(title: str) -> str:
    """A title in a file's name."""
    return title.lower().replace(" ", "_")


def cell(timing: dict | None) -> str:
    """A timing in a table over L: its figure, or what became of it."""
    if timing is None:
        return ""
    if timing["outcome"] == "timed":
        return figure(best_ms(timing))
    return {"skipped": "-", "failed": "**failed**", "crashed": "**crashed**"}[timing["outcome"]]


def machine_lines(timings: Timings) -> str:
    """What they were measured on, in a sentence or two."""
    m, p = timings.machine, timings.problem
    parts = [m["gpu"] or "no GPU"]
    if m["driver"]:
        parts.append(f"driver {m['driver']}")
    if m["cuda"]:
        parts.append(f"CUDA {m['cuda']}")
    clocks = m["clocks_mhz"]
    if clocks.get("sm_max"):
        parts.append(f"clocks up to {clocks['sm_max']:.0f} MHz, memory {clocks['memory_max'] or 0:.0f} MHz")
    limits = m["limits"]
    measured = [
        f"{name} {limits[key] * factor:.3g} {unit}"
        for key, name, factor, unit in (
            ("copy_bandwidth_gb_s", "a copy in memory", 1e-3, "TB/s"),
            ("fp32_tflop_s", "fp32", 1, "TFLOP/s"),
            ("tensor_tflop_s", "bf16 on tensor cores", 1, "TFLOP/s"),
            ("ex2_tera_s", "exponentials", 1, "T/s"),
        )
        if key in limits
    ]
    text = f"Measured on {timings.date[:10]} at commit {timings.commit}: {', '.join(parts)}"
    text += f"; limits measured with it: {', '.join(measured)}" if measured else ""
    if m["cpu"]:
        text += f"; {m['cpu']}, {m['cpu_threads']} threads"
    return f"{text}. B={p['B']}, H={p['H']}, Dk=Dv={p['Dk']}" + ("" if p["Dk"] == p["Dv"] else f" and Dv={p['Dv']}") + "."


def over_length(rows: Rows, lengths: list[int]) -> str:
    """Each stage's time at each length."""
    body = []
    for name, by_length in rows.stages.items():
        first = next(iter(by_length.values()))
        on = "GPU" if is_gpu(first) else "CPU"
        body.append([f"`{name}`", on, first["dtype"], *(cell(by_length.get(L)) for L in lengths)])
    return table(["stage", "on", "type", *map(str, lengths)], body)


def sizes_line(rows: Rows) -> str:
    """The sizes of an operator that do not change with L, where a timing tells them."""
    for by_length in rows.stages.values():
        for timing in by_length.values():
            sizes = {k: v for k, v in timing["sizes"].items() if k not in ("L", "Lk", "P", "scale")}
            if sizes:
                return ", ".join(f"{symbol}={size:g}" for symbol, size in sizes.items())
    return ""


def dtype_of(timings: Timings, chapter: str, operator: str, stage: str) -> str:
    """The type of the numbers that a stage works on."""
    return next(t["dtype"] for t in find(timings, chapter, operator).stages[stage].values())


def of_algorithms(timings: Timings, title: str) -> str:
    """The algorithms for an operator side by side, a row a length, and where the fastest of them changes."""
    series = algorithms(timings, title)
    if not series:
        return ""
    names = [name for name, *_ in ALGORITHMS[title] if name in series]
    stages = {
        name: f"`{operator}` `{stage}` of chapter {chapter[:2]}, {dtype_of(timings, chapter, operator, stage)}"
        for name, chapter, operator, stage in ALGORITHMS[title]
        if name in series
    }
    lengths = sorted(set().union(*(by_length for by_length in series.values())))
    body = []
    for L in lengths:
        here = {name: series[name].get(L) for name in names}
        best = min((ms for ms in here.values() if ms is not None), default=None)
        body.append([str(L), *(f"**{figure(ms)}**" if ms == best else figure(ms) for ms in here.values())])
    text = f"### {title}\n\n" + "".join(f"- {name}: {stages[name]}\n" for name in names) + "\n"
    text += table(["L", *names], body)
    crossed = [f"from L ≈ {c.L:.0f} on (interpolated) {c.after} is faster than {c.before}" for c in crossovers(series)]
    if not crossed and len(names) > 1 and len(lengths) > 1:
        crossed = [f"{min(names, key=lambda name: series[name].get(lengths[0], inf))} is the fastest at every length"]
    said = "; ".join(crossed)
    return text + (f"\n{said[0].upper()}{said[1:]}.\n" if crossed else "")


def limits_table(timings: Timings, lengths: list[int]) -> str:
    """The share of the limit that each operator's last GPU stage reaches."""
    body = []
    for rows in operators(timings):
        if last := rows.last():
            by_length = rows.stages[last]
            shares = [percent(limit_share(by_length[L])) if L in by_length else "" for L in lengths]
            if any(shares):
                body.append([f"{rows.chapter[:2]} `{rows.label}` `{last}`", *shares])
    return table(["last GPU stage", *map(str, lengths)], body) if body else ""


def not_timed(timings: Timings) -> str:
    """Which stages have no time, and why: those of the same reason in one line, with their lengths."""
    reasons: dict[tuple, set[int]] = {}
    tried: dict[tuple, set[int]] = {}
    for timing in timings:
        label = f"{timing['chapter'][:2]} `{label_of(timing)}`"
        tried.setdefault((label, timing["stage"]), set()).add(timing["L"])
        if timing["outcome"] != "timed":
            reason = one_line(timing["reason"])
            if timing["outcome"] == "skipped" and timing["runs_on"] == "cpu" and " s a run" in reason:
                reason = "a run would take more than a second"
            reasons.setdefault((label, timing["stage"], f"{timing['outcome']}, {reason}"), set()).add(timing["L"])
    for (label, stage), lengths in tried.items():
        if left := set(timings.lengths()) - lengths:  # the sweep ended before
            reasons[label, stage, "not run yet"] = left
    lines = [
        f"- {label} `{stage}`, L = {', '.join(map(str, sorted(lengths)))}: {reason}"
        for (label, stage, reason), lengths in sorted(reasons.items(), key=lambda item: (item[0][:2], min(item[1])))
    ]
    return "\n".join(lines) + "\n" if lines else ""


def last_stages(timings: Timings, lengths: list[int]) -> str:
    """The time of each operator's last GPU stage."""
    body = []
    for rows in operators(timings):
        if last := rows.last():
            cells = [cell(rows.stages[last].get(L)) for L in lengths]
            body.append([f"{rows.chapter[:2]} `{rows.label}` `{last}`", *cells])
    return table(["last GPU stage", *map(str, lengths)], body) if body else ""


def choices(timings: Timings, lengths: list[int]) -> str:
    """How far each dispatch is from the fastest of its operator's stages and variants: times its time, and which it is."""
    body = []
    for rows in operators(timings):
        others = [stage for stage in rows.on_gpu() if stage not in ("dispatch", *YARDSTICKS, *OTHER_WORK)]
        if rows.last() != "dispatch" or not others:
            continue
        cells = []
        for L in lengths:
            known = {stage: rows.ms(stage)[L] for stage in others if L in rows.ms(stage)}
            chosen = rows.ms("dispatch").get(L)
            if chosen is None or not known:
                cells.append("")
                continue
            best = min(known, key=known.get)
            ratio = chosen / known[best]
            text = f"{ratio:.2f}"
            cells.append(text if ratio <= CHOICE_LIMIT else f"**{text}** `{best}`")
        body.append([f"{rows.chapter[:2]} `{rows.label}`", *cells])
    return table(["dispatch", *map(str, lengths)], body) if body else ""


def picture(pictures: dict[str, str], name: str) -> list[str]:
    """A picture where it belongs, if it was drawn; it is taken out of those that are left."""
    words = pictures.pop(name, None)
    return [f"![{words}]({name})\n"] if words else []


def report(
    timings: Timings,
    source: str,
    pictures: list[tuple[str, str]] = (),
    against_peers: str = "",
    title: str = "Timings over the length",
    forms: list[str] = (),
) -> str:
    """All of it as one page. Pictures are (file name, what it shows); `against_peers` is what peers.report() gives; `forms` have
    pages of their own beside this one."""
    lengths = timings.lengths()
    left = dict(pictures)
    parts = [
        GENERATED.format(source) + f"\n\n# {title}\n",
        machine_lines(timings) + "\n",
        "All times are in milliseconds. GPU: a call, averaged over many in a CUDA graph; where a stage cannot be captured, the "
        "median of single calls. CPU: the median of 3 single calls without a warm-up, which another program on the machine "
        "may have disturbed. `-`: not run; the reasons are [below](#not-timed). Of single calls, each with a cold cache, median, "
        f"minimum, maximum and number are in `{source}`.\n",
    ]
    if forms:
        links = ", ".join(f"[`--{form}`]({form}.md)" for form in forms)
        parts.append(f"The times with an option that changes the operator (`--backward`: its gradients) have a page of their own: {links}.\n")
    parts += picture(left, "first_to_last.svg")
    if last := last_stages(timings, lengths):
        parts += ["## The last stages\n", last]
    if limits := limits_table(timings, lengths):
        parts += ["## Of the limit\n", *picture(left, "limit.svg"), limits]
        parts.append("Initial and final states count neither as time nor as bytes here: a call in a graph leaves them out.\n")
        if any((limit_share(timing) or 0) > 1 for timing in timings if is_gpu(timing)):
            parts.append(
                "More than 100 % is no mistake: in a graph a small problem stays in the L2 cache, and the limit is memory's.\n"
            )
    if chosen := choices(timings, lengths):
        parts += [
            "## What dispatch chooses\n",
            "The time of each `dispatch`, as a multiple of that of the fastest of its operator's stages and variants that were "
            "timed with it. Where it is more than 3 % slower, the table names that one. Variants are timed with `--variants`.\n",
            chosen,
        ]
    if against_peers:
        parts += ["## Against flash-linear-attention\n", against_peers]
    algorithm_tables = {title: text for title in ALGORITHMS if (text := of_algorithms(timings, title))}
    if algorithm_tables:
        parts.append("## Algorithms\n")
        for title, text in algorithm_tables.items():
            heading, _, rest = text.partition("\n\n")
            parts += [heading + "\n", *picture(left, f"length_{slug(title)}.svg"), rest]
    parts.append("## Stages\n")
    chapter = None
    for rows in operators(timings):
        if rows.chapter != chapter:
            chapter = rows.chapter
            parts += picture(left, f"staircase_{chapter}.svg")
        parts.append(f"### {rows.chapter} {rows.label}\n")  # headings without code: they become entries of contents
        if sizes := sizes_line(rows):
            parts.append(sizes + "\n")
        parts.append(over_length(rows, lengths))
    parts += [f"![{words}]({name})\n" for name, words in left.items()]
    parts += ["## Not timed\n", not_timed(timings) or "Everything was.\n"]
    return "\n".join(parts)
