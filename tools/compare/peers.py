"""What tools/compare_with_fla.py measured: our stages beside the operators that a user would pick instead.

    {"format": 1, "date", "commit", "gpu", "versions": {...}, "comparisons": [{
      "operator", "variant", "chapter", "stage", "peer", "problem": {"B", "H", "L", "Dk", "Dv"},
      "agrees": true | false | null, "error", "ours": times, "theirs": times, "call_ratio", "graph_ratio", "skipped"}]}

with times as a chapter's JSON has them. A ratio is the peer's time over ours: above 1 ours is faster.
"""

import json
from pathlib import Path

from .programs import options_of
from .store import StoreError
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


def ratios(comparison: dict | None) -> dict[tuple[str, int], float]:
    """By operator and length: the ratio in a graph to the fastest of the peers that agree with us."""
    best: dict[tuple[str, int], float] = {}
    for row in comparison["comparisons"] if comparison else ():
        if row["agrees"] and row["graph_ratio"] and row["variant"] is None:
            key = row["operator"], row["problem"]["L"]
            best[key] = min(best.get(key, float("inf")), row["graph_ratio"])
    return best


def label(row: dict) -> str:
    return " ".join([row["operator"], *options_of(row["variant"])])


def report(comparison: dict) -> str:
    """A Markdown table of all pairs."""
    body, notes = [], []
    pairs = sorted(comparison["comparisons"], key=lambda row: (row["chapter"], label(row), row["peer"], row["problem"]["L"]))
    for row in pairs:
        name, peer, L = f"{row['chapter'][:2]} `{label(row)}` `{row['stage']}`", f"`{row['peer']}`", row["problem"]["L"]
        if row["skipped"]:
            notes.append(f"- {peer} at L = {L}: skipped, {row['skipped']}")
            continue
        if not row["agrees"]:
            notes.append(f"- {peer} at L = {L}: **differs from {name} by {row['error']:.2g}**, so there is no ratio")
            continue
        ours, theirs = row["ours"], row["theirs"]
        cells = [figure(ours["graph"]), figure(theirs["graph"]), ratio_text(row["graph_ratio"])]
        cells += [figure(ours["median"]), figure(theirs["median"]), ratio_text(row["call_ratio"])]
        body.append([name, peer, str(L), *cells])
    versions = ", ".join(f"{program} {version}" for program, version in comparison["versions"].items())
    text = f"Measured on {comparison['date'][:10]} at commit {comparison['commit']} on {comparison['gpu']}: {versions}. "
    errors = [row["error"] for row in pairs if row["agrees"] and row["error"] is not None]
    text += "Milliseconds; the outputs of each pair agree"
    text += f" (largest relative error: {max(errors):.1g}). " if errors else ". "
    text += "A ratio is their time over ours: above 1 ours is faster. A call of theirs is one from Python, and takes the time of "
    text += "that, too; a graph does not.\n\n"
    head = ["ours", "theirs", "L", "graph: ours", "theirs", "ratio", "call: ours", "theirs", "ratio"]
    text += table(head, body) if body else "No pair was timed.\n"
    return text + ("\n" + "\n".join(notes) + "\n" if notes else "")


def ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
