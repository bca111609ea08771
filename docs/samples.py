#!/usr/bin/env python3
"""What our commands print, as the pages show it: writes the samples, or with --check says which are not what is printed.

Usage: samples.py [--check] [PAGE...]; without pages, all that have samples. A sample stands between two comments:

    <!-- sample of ./tutorial diff 1 lmha -->
    ```text
    ```
    <!-- end of sample -->

After the command may stand `, lines 3 to 12`, `, numbers differ` (times: only the words have to agree), and for an exercise
`, mistake 8` (the command checks a file with this planted mistake). What goes to standard error is left out.
"""

from functools import cache
import os
from pathlib import Path
import re
import subprocess
import sys
from textwrap import wrap

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from exercises import task  # noqa: E402

SAMPLE = re.compile(
    r"(?ms)^<!-- sample of (?P<command>[^\n]+?)(?:, lines (?P<first>\d+) to (?P<last>\d+))?(?:, mistake (?P<mistake>\d+))?"
    r"(?P<loose>, numbers differ)? -->\n```text\n(?P<text>.*?)```\n<!-- end of sample -->$"
)
COLUMNS = 96
PAGES = ("README*.md", "docs/*.md", "[0-9][0-9]_*/README*.md", "[0-9][0-9]_*/*/README.md", "exercise/README.md")


@cache
def output_of(command: str) -> str:
    """What it prints; a page and its translation show the same."""
    environment = os.environ | {"LC_ALL": "C.UTF-8"}  # in English
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{command} ends with status {done.returncode}:\n{done.stderr}")
    return done.stdout


def printed(sample: re.Match) -> str:
    """What the command of a sample prints, of it what the sample shows."""
    command = sample["command"]
    attempt = None
    if sample["mistake"]:
        number = command.split()[-1]
        one = next(t for t in task.find() if t.number == number)
        attempt = ROOT / "build/samples" / one.copy_name
        attempt.parent.mkdir(parents=True, exist_ok=True)
        attempt.write_text(one.wrongs[int(sample["mistake"]) - 1].text, encoding="utf-8")
        command += f" --check {attempt.relative_to(ROOT)}"
    text = output_of(command)
    if attempt:
        text = text.replace(str(attempt.relative_to(ROOT)), f"exercises/{attempt.name}")
    lines = [line.rstrip() for line in text.splitlines()]
    if sample["first"]:
        lines = lines[int(sample["first"]) - 1 : int(sample["last"])]
    return "\n".join(folded for line in lines for folded in fold(line)) + "\n"


def fold(line: str) -> list[str]:
    """A line in lines of at most 96 columns, the others under the first one's third word."""
    if len(line) <= COLUMNS:
        return [line]
    start = re.match(r"\s*(\S+\s+){0,2}", line)
    return wrap(line, COLUMNS, subsequent_indent=" " * len(start[0]), break_on_hyphens=False, drop_whitespace=True)


def masked(text: str) -> list[list[str]]:
    """The words of each line, without numbers, their units and lines that are drawn."""
    words = [re.sub(r"~?\d[\d.,]*(e[+-]\d+)?[x%]?", "0", line).split() for line in text.splitlines()]
    return [[w for w in line if w not in ("ns", "us", "ms", "s") and not re.fullmatch("-+", w)] for line in words]


def agree(sample: re.Match, text: str) -> bool:
    return masked(sample["text"]) == masked(text) if sample["loose"] else sample["text"] == text


def main() -> int:
    check = "--check" in sys.argv[1:]
    names = [name for name in sys.argv[1:] if name != "--check"]
    if any(name.startswith("-") for name in names):
        print(__doc__, file=sys.stderr)
        return 2
    status = 0
    for path in sorted({p for pattern in (names or PAGES) for p in ROOT.glob(pattern)}):
        text = path.read_text(encoding="utf-8")
        if len(re.findall(r"(?m)^<!-- sample of ", text)) != len(SAMPLE.findall(text)):
            print(f"{path.relative_to(ROOT)}: a comment of a sample is misspelt", file=sys.stderr)
            status = 1

        def written(sample: re.Match, path=path) -> str:
            nonlocal status
            now = printed(sample)
            if agree(sample, now):
                return sample[0]
            if check:
                status = 1
                print(f"{path.relative_to(ROOT)}: `{sample['command']}` prints\n{now}run docs/samples.py", file=sys.stderr)
            return sample[0].replace(f"```text\n{sample['text']}```", f"```text\n{now}```", 1)

        new = SAMPLE.sub(written, text)
        if not check and new != text:
            path.write_text(new, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
