"""Writes the test's sources: of each exercise the skeleton, the solution, mistakes and other right ways in one file.

Usage: python -m exercises.variants FOLDER [--solutions|--mutants|--parts]

With --solutions: the solutions of all exercises in one file, for a GPU's compiler. With --mutants: of each exercise our
solution with each synchronisation removed, weakened and moved. With --parts: those of them that racecheck may find, in
files for programs of their own.
"""

from pathlib import Path
import re
import sys

from . import mutants, task

INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)


def variants(one: task.Task) -> dict[str, str]:
    """The text of each variant of an exercise."""
    texts = {"skeleton": one.skeleton, "solution": one.solution}
    texts |= {f"wrong {i}": wrong.text for i, wrong in enumerate(one.wrongs, 1)}
    return texts | {f"right {i}": right.text for i, right in enumerate(one.rights, 1)}


def space(one: task.Task, name: str) -> str:
    """The namespace of a variant, and the name of its file: 1_2_wrong_3."""
    return f"{one.number.replace('.', '_')}_{name.replace(' ', '_')}"


def source(chosen: list[tuple[task.Task, str, str]]) -> str:
    """One file of variants, each in a namespace of its own and registered by its name."""
    includes = sorted({line for _, _, text in chosen for line in INCLUDE.findall(text)})
    parts = ["".join(includes), '#include "exercise/test/variants.hpp"\n', "namespace {\n"]
    for one, name, text in chosen:
        inner = f"variant_{space(one, name)}"
        # #include lines stay empty so that lines keep their numbers, those of a file that has this text.
        parts.append(f'namespace {inner} {{\n#line 1 "exercises/{space(one, name)}.cu"\n')
        parts.append(INCLUDE.sub("\n", text))
        parts.append(f"}}  // namespace {inner}\n")
        register = f'const exercise::Variant register_{inner}("{one.number}", "{name}", {inner}::run);\n'
        parts.append(register)
    return "".join(parts) + "}  // namespace\n"


def main() -> int:
    folder = Path(sys.argv[1])
    tasks = task.find()
    if "--solutions" in sys.argv:
        solutions = [(one, "solution", one.solution) for one in tasks]
        (folder / "solutions.cu").write_text(source(solutions), encoding="utf-8")
        return 0
    if "--parts" in sys.argv:
        folder.mkdir(exist_ok=True, parents=True)
        for i, part in enumerate(mutants.parts()):
            chosen = [(one, name, mutants.mutants(one)[name]) for one, name in part]
            (folder / f"part_{i}.cu").write_text(source(chosen), encoding="utf-8")
        return 0
    (folder / "exercises").mkdir(exist_ok=True, parents=True)
    for one in tasks:
        texts = mutants.mutants(one) if "--mutants" in sys.argv else variants(one)
        chosen = [(one, name, text) for name, text in texts.items()]
        (folder / one.path.name).write_text(source(chosen), encoding="utf-8")
        for name, text in texts.items():
            (folder / "exercises" / f"{space(one, name)}.cu").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
