"""Each solution without one of its synchronisations is found out, but for those that its TOML file calls harmless.

Usage: mutants_test.py PROGRAM CHAPTER
"""

from pathlib import Path
import subprocess
import sys

from exercises import mutants, task

# One that waits forever while other threads go on and on shows as a kernel that does not end, which the command tells.
TIME_LIMIT_S = 20


def verdict(program: Path, number: str, name: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            [program, number, name], capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False, cwd=program.parent
        )
    except subprocess.TimeoutExpired:
        return 1, "it does not end"
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    program, chapter = Path(sys.argv[1]), int(sys.argv[2])
    failures = count = 0
    for one in task.find():
        if one.chapter != chapter:
            continue
        names = list(mutants.mutants(one))
        for name in one.harmless:
            if name not in names:
                failures += 1
                print(f"{one.number}: there is no mutant '{name}'")
        for name in names:
            count += 1
            status, text = verdict(program, one.number, name)
            if (status == 0) == (name in one.harmless):
                continue
            failures += 1
            print(f"{one.number} {name}: {'a wrong kernel is solved' if status == 0 else 'right, but'}\n{text}")
    print(f"chapter {chapter}: {count} mutants, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
