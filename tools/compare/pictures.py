"""Timings as pictures: SVG without a background, in colours and a grey that read on light and on dark pages."""

from html import escape
from io import StringIO
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.patheffects import withStroke  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator, PercentFormatter  # noqa: E402

from .groups import ALGORITHMS, HEADLINES, STAIRCASE_AT, algorithms, crossovers, find, operators, stairs  # noqa: E402
from .store import Timings, best_ms, is_gpu, limit_ms, limit_share  # noqa: E402
from .tables import figure, slug  # noqa: E402

GREY = "#77818d"  # 4 to 1 against white, and against a dark page
DARK = "#2b323b"
EDGE = [withStroke(linewidth=4.5, foreground="#f3f5f7")]  # a dark line in a light one is seen on bars and on either page
COLOURS = ("#3b8ad9", "#d9822b", "#2f9e62", "#c2569b", "#8a6fd1", "#a98032", "#1f9aa5")
MARKERS = "osD^vPX"
STAIRS = (2048, 16384)  # the lengths of a staircase, where they were timed

STYLE = {
    "svg.fonttype": "none",  # text stays text: it is searched, read aloud, and in the page's fonts
    "svg.hashsalt": "tutorial",  # the same file for the same timings
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": GREY,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def milliseconds(axis) -> None:
    """A logarithmic axis in milliseconds that says 0.01, 0.1, 1, 10."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def lengths_along(axes, lengths) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(sorted(lengths)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.tick_params(axis="x", labelrotation=45)
    axes.set_xlabel("L")


def svg(figure_, title: str, words: str) -> str:
    """The picture as text, with a title and a description for those who cannot see it."""
    text = StringIO()
    figure_.savefig(text, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None, "Creator": None})
    pyplot.close(figure_)
    head, start, rest = text.getvalue().partition("<svg ")
    attributes, end, body = rest.partition(">")
    about = f"\n <title>{escape(title)}</title>\n <desc>{escape(words)}</desc>"
    lines = (start + 'role="img" ' + attributes + end + about + body).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def stairs_of(timings: Timings) -> tuple[int, ...]:
    """The lengths of a staircase: STAIRS, or the longest two where one of these is missing."""
    lengths = timings.lengths()
    return STAIRS if set(STAIRS) <= set(lengths) else tuple(lengths[-2:])


def staircase(timings: Timings, chapter: str) -> tuple[str, str] | None:
    """The stages of a chapter in order, each with its times at two lengths and its limit: the picture, and its words."""
    stairs = stairs_of(timings)
    rows = []  # (stage or None for an operator's name, text)
    for group in operators(timings):
        if group.chapter != chapter:
            continue
        stages = [s for s in group.stages if any(L in group.ms(s) for L in stairs)]
        if stages:
            rows.append((None, group.label))
            rows += [(group.stages[stage], stage) for stage in stages]
    if not rows:
        return None
    with matplotlib.rc_context(STYLE):
        drawing, axes = pyplot.subplots(figsize=(8, 0.6 + 0.36 * len(rows)))
        axes.set_xscale("log")
        timed = [best_ms(by[L]) for by, _ in rows if by for L in stairs if L in by and best_ms(by[L])]
        limits = [limit_ms(by[L]) for by, _ in rows if by for L in stairs if L in by and limit_ms(by[L])]
        left, right = min(timed + limits) / 2, max(timed) * 6
        for y, (by_length, _) in enumerate(rows):
            for i, L in enumerate(stairs if by_length else ()):
                timing = by_length.get(L)
                ms = best_ms(timing) if timing else None
                if ms is None:
                    continue
                at = y + 0.36 * (i - 0.5)
                axes.barh(at, ms - left, 0.32, left=left, color=COLOURS[i], label=f"L = {L}")
                end = max(ms, limit_ms(timing) or 0)
                axes.text(end * 1.12, at, figure(ms), va="center", fontsize=8)
                if limit_ms(timing):
                    ends = [limit_ms(timing)] * 2, [at - 0.16, at + 0.16]
                    axes.plot(*ends, color=DARK, lw=2, solid_capstyle="butt", path_effects=EDGE, label="limit")
        axes.set_yticks(range(len(rows)), [text for _, text in rows])
        for tick, (by_length, _) in zip(axes.get_yticklabels(), rows):
            tick.set_fontweight("normal" if by_length else "bold")
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(left, right)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        milliseconds(axes.xaxis)
        axes.set_xlabel("milliseconds")
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        axes.set_title(chapter, pad=30)
        handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
        order = [name for name in (*(f"L = {L}" for L in stairs), "limit") if name in handles]
        axes.legend([handles[n] for n in order], order, loc="lower center", bbox_to_anchor=(0.5, 1), ncol=3)
        words = f"The stages of chapter {chapter} in order: a bar for the time of each at " + " and ".join(
            f"L = {L}" for L in stairs
        )
        words += ", logarithmic, and a mark at what the machine would allow."
        return svg(drawing, f"Chapter {chapter}: the time of each stage", words), words


KINDS = {(False, "fp32"): "CPU, fp32", (True, "fp32"): "GPU, fp32", (True, "bf16"): "GPU, bf16 on tensor cores"}


def first_to_last(timings: Timings) -> tuple[str, str] | None:
    """One operator from the first loop to the last kernel, and the limit of the last: the picture of the README."""
    steps = stairs(timings)
    if len(steps) < 3:
        return None
    limit = limit_ms(steps[-1])
    with matplotlib.rc_context(STYLE):
        drawing, axes = pyplot.subplots(figsize=(8, 0.9 + 0.3 * len(steps)))
        axes.set_xscale("log")
        left = (limit or best_ms(steps[-1])) / 2
        for y, timing in enumerate(steps):
            ms = best_ms(timing)
            kind = KINDS.get((is_gpu(timing), timing["dtype"]), timing["dtype"])
            colour = COLOURS[[*KINDS.values(), timing["dtype"]].index(kind)]
            axes.barh(y, ms - left, 0.72, left=left, color=colour, label=kind)
            axes.text(ms * 1.1, y, figure(ms), va="center", fontsize=9)
        if limit:
            axes.axvline(limit, color=DARK, lw=2, path_effects=EDGE, label="limit of the last")
        names = [f"{t['chapter'][:2]} {t['stage']}" for t in steps]
        axes.set_yticks(range(len(steps)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(left, best_ms(steps[0]) * 3)
        axes.set_ylim(len(steps) - 0.4, -0.6)
        milliseconds(axes.xaxis)
        axes.set_xlabel(f"milliseconds, L = {STAIRCASE_AT}")
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        handles = dict(zip(*reversed(axes.get_legend_handles_labels())))
        axes.legend(handles.values(), handles, loc="lower center", bbox_to_anchor=(0.5, 1), ncol=4)
        words = "Causal linear attention, a bar for the time of each stage, logarithmic: " + ", ".join(
            f"{name} {figure(best_ms(t))}" for name, t in zip(names, steps)
        )
        words += f" milliseconds; the machine would allow {figure(limit)}." if limit else " milliseconds."
        return svg(drawing, "From the first loop to the last kernel", words), words


def over_length(timings: Timings, title: str) -> tuple[str, str] | None:
    """The time of the algorithms for an operator over L, with a mark where another becomes the fastest."""
    series = algorithms(timings, title)
    lengths = sorted(set().union(*(by_length for by_length in series.values())))
    if len(lengths) < 2:
        return None
    with matplotlib.rc_context(STYLE):
        drawing, axes = pyplot.subplots(figsize=(7, 4.2))
        colour = {name: i for i, (name, *_) in enumerate(ALGORITHMS[title])}
        for name, by_length in series.items():
            i = colour[name]
            axes.plot([*by_length], [*by_length.values()], color=COLOURS[i], marker=MARKERS[i], ms=5, label=name)
        axes.set_yscale("log")
        axes.set_ylim(bottom=min(min(by_length.values()) for by_length in series.values()) / 2)  # room for text
        crossed = crossovers(series)
        for c in crossed:
            axes.plot(c.L, c.ms, "o", ms=13, mfc="none", mec=GREY, mew=1.5)
            axes.annotate(f"L ≈ {c.L:.0f}", (c.L, c.ms), (0, -20), textcoords="offset points", ha="center", fontsize=9)
        lengths_along(axes, lengths)
        milliseconds(axes.yaxis)
        axes.set_ylabel("milliseconds")
        axes.set_title(title)
        axes.grid()
        axes.legend()
        words = f"{title}: the time of {', '.join(series)} over the length L"
        words += "".join(f"; from L = {c.L:.0f} on {c.after} is faster than {c.before}" for c in crossed) + "."
        return svg(drawing, f"{title}: time over length", words), words


def of_the_limit(timings: Timings) -> tuple[str, str] | None:
    """The share of the limit that the last stage of each chapter's main operator reaches, over L."""
    lines = {}
    for chapter, label in HEADLINES.items():
        rows = find(timings, chapter, label)
        if last := rows.last():
            by_length = rows.stages[last]
            shares = {L: share for L in sorted(by_length) if (share := limit_share(by_length[L]))}
            if shares:
                lines[f"{chapter[:2]} {label}"] = shares
    lengths = sorted(set().union(*lines.values()))
    if len(lengths) < 2:
        return None
    with matplotlib.rc_context(STYLE):
        drawing, axes = pyplot.subplots(figsize=(7, 4.2))
        for i, (name, shares) in enumerate(lines.items()):
            axes.plot([*shares], [*shares.values()], color=COLOURS[i], marker=MARKERS[i], ms=5, label=name)
        lengths_along(axes, lengths)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.set_ylim(bottom=0)
        axes.set_ylabel("of the limit")
        axes.grid()
        axes.legend()
        words = "The share of the machine's limit that the last stage of each chapter's main operator reaches, over the length."
        return svg(drawing, "Fraction of the limit", words), words


def draw(timings: Timings) -> dict[str, tuple[str, str]]:
    """All pictures that these timings are enough for: by file name the SVG, and what it shows."""
    made = {"first_to_last.svg": first_to_last(timings)}
    for chapter in sorted({timing["chapter"] for timing in timings}):
        made[f"staircase_{chapter}.svg"] = staircase(timings, chapter)
    for title in ALGORITHMS:
        made[f"length_{slug(title)}.svg"] = over_length(timings, title)
    made["limit.svg"] = of_the_limit(timings)
    return {name: picture for name, picture in made.items() if picture}


def write(timings: Timings, folder: Path) -> list[tuple[str, str]]:
    """Draws them into a folder; returns their names and what they show."""
    pictures = draw(timings)
    folder.mkdir(parents=True, exist_ok=True)
    for name, (text, _) in pictures.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [(name, words) for name, (_, words) in pictures.items()]
