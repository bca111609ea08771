"""The skeletons fail, the planted mistakes fail with the message that is meant for them, the solutions and other right
ways pass.

Usage: variants_test.py PROGRAM CHAPTER BACKEND SANITIZER
"""

from pathlib import Path
import re
import subprocess
import sys

from exercises import task


def says(program: Path, number: str, variant: str) -> tuple[int, str]:
    """The status of a variant's check and what it prints."""
    done = subprocess.run(
        [program, number, variant], capture_output=True, text=True, timeout=120, check=False, cwd=program.parent
    )
    return done.returncode, done.stdout + done.stderr


def lacks_row(one: task.Task, text: str) -> bool:
    """Whether a wrong element of an array that has rows, as the task says, is named without row and column."""
    name = re.search(r"FAILS  result .*?: (\w+)\[\d+\](?!, row)", text)
    return bool(name) and bool(re.search(rf"\b{name[1]}\b[^.\[]*\[[^\]\[]*,", one.statement))


def main() -> int:
    program, chapter, backend, sanitizer = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    failures = 0
    tasks = [one for one in task.find() if one.chapter == chapter]
    for one in tasks:
        solved = "^solved$"
        if backend == "cuda":  # it is timed, too
            solved = "^  not watched: addresses, order, writes, counts\n.*% of the limit\nsolved$"
        elif sanitizer in ("address", "thread"):
            solved = "^  not watched: order\n  not watched: writes\n(.*\n)*solved$"
        variants = [("solution", 0, solved)]
        # A sanitizer ends the program at the first mistake; without one the messages are the checker's.
        if backend == "emulator" and sanitizer == "none":
            variants.append(("skeleton", 1, "^not solved yet$"))
            variants += [(f"wrong {i}", 1, wrong.says) for i, wrong in enumerate(one.wrongs, 1)]
            variants += [(f"right {i}", 0, right.says) for i, right in enumerate(one.rights, 1)]
        for variant, status, pattern in variants:
            try:
                found, text = says(program, one.number, variant)
            except subprocess.TimeoutExpired:
                found, text = -1, "it does not end"
            if backend == "cuda" and found == 3:  # instructions that this GPU does not have
                print(text, end="")
                continue
            if found != status or not re.search(pattern, text, re.MULTILINE):
                failures += 1
                print(f"{one.number} {variant}: status {found}, {status} expected, and a text with '{pattern}':\n{text}")
            elif lacks_row(one, text):
                failures += 1
                print(f"{one.number} {variant}: an element of an array that has rows, without its row:\n{text}")
            elif backend == "cuda":
                print(one.number, *re.findall(r"^  holds  time +(.*)", text, re.MULTILINE))
    print(f"chapter {chapter}: {len(tasks)} exercises, {failures} failures")
    return 1 if failures or not tasks else 0


if __name__ == "__main__":
    sys.exit(main())
