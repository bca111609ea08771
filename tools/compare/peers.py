"""What tools/compare_with_fla.py measured: our stages beside the operators that a user would pick instead.

    {"format": 1, "date", "commit", "gpu", "versions": {...}, "comparisons": [{
      "operator", "form", "chapter", "stage", "peer", "problem": {"B", "H", "L", "Dk", "Dv"},  (with heads of keys, "Hk", or "lengths" of packed sequences, if told so)
      "agrees": true | false | null, "error", "ours": times, "theirs": times, "call_ratio", "graph_ratio", "skipped",
      "as": the card that ours had to make do with | null, "gates": their kind | null: those that the chapters draw,
      "states": the type of those in a pool | null: there is none}]}

with times as a chapter's JSON has them. A ratio is the peer's time over ours: above 1 ours is faster.
"""

import json
from pathlib import Path

from .groups import find
from .programs import options_of
from .store import StoreError, Timings, best_ms
from .tables import figure, table

FORMAT = 1


def load(path: Path) -> dict:
    """Reads a comparison. Throws StoreError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise StoreError(f"{path} is of format {data['format']}, this program reads {FORMAT}")
        ratios(data), report(data)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path} holds no comparison of tools/compare_with_fla.py ({error})") from error
    return data


FLA = "flash-linear-attention"
# Peers of other libraries have these names in front.
LIBRARIES = {"flashinfer": "FlashInfer", "flash_qla": "FlashQLA", "cudnn": "cuDNN frontend"}


def library(row: dict) -> str:
    """The library that a pair's peer is from."""
    return LIBRARIES.get(row.get("peer", "").partition(".")[0], FLA)


def libraries(comparison: dict | None) -> list[str]:
    """Those of all peers, flash-linear-attention first."""
    found = {library(row) for row in comparison["comparisons"]} if comparison else set()
    return sorted(found, key=lambda name: (name != FLA, name))


def fastest(comparison: dict | None, operator: str, form: str | None = None, of: str = FLA) -> dict[int, dict]:
    """By length: the pair with the fastest of a library's peers that agree with us."""
    best: dict[int, dict] = {}
    for row in comparison["comparisons"] if comparison else ():
        same = (row["operator"], row["form"], library(row), row.get("as"), row.get("gates")) == (operator, form, of, None, None)
        if row["agrees"] and row["graph_ratio"] and same and not special(row):
            L = row["problem"]["L"]
            if L not in best or row["graph_ratio"] < best[L]["graph_ratio"]:
                best[L] = row
    return dict(sorted(best.items()))


def ratios(comparison: dict | None, timings: Timings | None = None, of: str = FLA) -> dict[tuple[str, int], float]:
    """By operator and length: the ratio in a graph to the fastest of a library's peers that agree with us.

    With timings of another commit, ours are those: the peers' times over the times that the tables show.
    """
    found: dict[tuple[str, int], float] = {}
    for operator in {row["operator"] for row in comparison["comparisons"]} if comparison else ():
        for L, row in fastest(comparison, operator, of=of).items():
            ours = ours_now(row, timings) if is_older(comparison, timings) else None
            found[operator, L] = row["theirs"]["graph"] / ours if ours else row["graph_ratio"]
    return found


def is_older(comparison: dict | None, timings: Timings | None) -> bool:
    """Whether the pairs were run at another commit than the timings."""
    commit = comparison.get("commit") if comparison else None
    return bool(commit and timings and commit != timings.commit)


def ours_now(row: dict, timings: Timings) -> float | None:
    """Our time for what a pair is of, of the last stage that the timings have."""
    same = all(row["problem"].get(symbol) == timings.problem.get(symbol) for symbol in ("B", "H", "Dk", "Dv"))
    by_length = find(timings, row["chapter"], label(row)).stages.get(row["stage"], {}) if same else {}
    timing = by_length.get(row["problem"]["L"])
    return best_ms(timing) if timing else None


def special(row: dict) -> list[str]:
    """What the problem has beside its sizes."""
    problem = row["problem"]
    shared = ["--key-heads", str(problem["Hk"])] if problem.get("Hk") else []
    return shared + (["--lengths"] if problem.get("lengths") else [])


def label(row: dict) -> str:
    card = ["--as", row["as"]] if row.get("as") else []
    gates = [f"({row['gates']} gates)"] if row.get("gates") else []
    states = [f"({row['states']} states)"] if row.get("states") else []
    return " ".join([row["operator"], *options_of(row["form"]), *special(row), *card, *gates, *states])


def shape(row: dict, comparison: dict) -> str:
    """What tells a row's problem from the others': its length, or B x H x L where these have other batches or heads."""
    problem = row["problem"]
    heads = {(other["problem"].get("B"), other["problem"].get("H")) for other in comparison["comparisons"]}
    return str(problem["L"]) if len(heads) == 1 else f"{problem['B']}x{problem['H']}x{problem['L']}"


def summary(comparison: dict) -> str:
    """How many times as fast as the fastest peer each operator is, by length or shape."""
    best: dict[tuple[str, str, str], dict[str, float]] = {}
    agreeing = [row for row in comparison["comparisons"] if row["agrees"] and row["graph_ratio"]]
    for row in agreeing:
        ratios_of = best.setdefault((row["chapter"], label(row), library(row)), {})
        at = shape(row, comparison)
        ratios_of[at] = min(row["graph_ratio"], ratios_of.get(at, row["graph_ratio"]))
    size = lambda row: [row["problem"].get(symbol, 0) for symbol in ("L", "B", "H")]  # noqa: E731
    shapes = list(dict.fromkeys(shape(row, comparison) for row in sorted(agreeing, key=size)))
    body = []
    for chapter, name, of in sorted(best):
        cells = [ratio_text(best[chapter, name, of].get(at)) for at in shapes]
        body.append([f"{chapter[:2]} `{name}`" + ("" if of == FLA else f", {of}"), *cells])
    return table(["theirs over ours, in a graph, at L =", *shapes], body) if shapes else ""


def report(comparison: dict, timings: Timings | None = None) -> str:
    """The ratios in a table, and below a line that unfolds a table of all pairs. `timings` are those of the page that it is for."""
    body, notes = [], []
    pairs = sorted(comparison["comparisons"], key=lambda row: (row["chapter"], label(row), row["peer"], row["problem"]["L"]))
    for row in pairs:
        name, peer, L = f"{row['chapter'][:2]} `{label(row)}` `{row['stage']}`", f"`{row['peer']}`", shape(row, comparison)
        if row["form"]:
            peer += f" for `{label(row)}`"
        if row["skipped"]:
            notes.append(f"- {peer} at L = {L}: skipped, {row['skipped']}")
            continue
        if not row["agrees"]:
            notes.append(f"- {peer} at L = {L}: **differs from {name} by {row['error']:.2g}**, so there is no ratio")
            continue
        ours, theirs = row["ours"], row["theirs"]
        cells = [figure(ours["graph"]), figure(theirs["graph"]), ratio_text(row["graph_ratio"])]
        cells += [figure(ours["median"]), figure(theirs["median"]), ratio_text(row["call_ratio"])]
        body.append([name, f"`{row['peer']}`", L, *cells])
    versions = ", ".join(f"{program} {version}" for program, version in comparison["versions"].items())
    text = f"Measured on {comparison['date'][:10]} at commit {comparison['commit']} on {comparison['gpu']}: {versions}. "
    errors = [row["error"] for row in pairs if row["agrees"] and row["error"] is not None]
    text += "Milliseconds; the outputs of each pair agree"
    text += f" (largest relative error: {max(errors):.1g}). " if errors else ". "
    text += "A ratio is their time over ours: above 1 ours is faster. A call of theirs is one from Python, and takes the time of "
    text += "that, too; a graph does not.\n\n"
    if is_older(comparison, timings):
        text += f"**Ours are the kernels of {comparison['date'][:10]} here**, not those of {timings.date[:10]}, which the other tables of "
        text += "this page show. [Running](../running.md#beside-other-libraries) says how their times compare with those of the later ones.\n\n"
    if not body:
        return text + "No pair was timed.\n" + ("\n" + "\n".join(notes) + "\n" if notes else "")
    text += "The fastest of their operators for the same at each length:\n\n" + summary(comparison)
    head = ["ours", "theirs", "L", "graph: ours", "theirs", "ratio", "call: ours", "theirs", "ratio"]
    text += f"\n<details>\n<summary>All {len(body)} pairs</summary>\n\n" + table(head, body)
    return text + ("\n" + "\n".join(notes) + "\n" if notes else "") + "\n</details>\n"


def ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
