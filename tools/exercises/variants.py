"""Writes the test's sources: of each exercise the skeleton, the planted mistakes and the solution in one file.

Usage: python -m exercises.variants FOLDER
"""

from pathlib import Path
import re
import sys

from . import task

INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)


def body(text: str, name: str) -> str:
    """The text in a namespace of its own; #include lines stay empty so that lines keep their numbers."""
    text = INCLUDE.sub("\n", text)
    return f'namespace {name} {{\n#line 1 "{{path}}"\n{text}}}  // namespace {name}\n'


def source(one: task.Task) -> str:
    """All variants of an exercise, each registered by its name."""
    variants = {"skeleton": one.skeleton, "solution": one.solution}
    for i, wrong in enumerate(one.wrongs, 1):
        variants[f"wrong {i}"] = wrong.text
    includes = sorted({line for text in variants.values() for line in INCLUDE.findall(text)})
    parts = ["".join(includes), '#include "exercise/test/variants.hpp"\n', "namespace {\n"]
    for name, text in variants.items():
        space = name.replace(" ", "_")
        # What a message names: a file that has this text.
        path = Path(f"{one.number}_{space}.cu")
        parts.append(body(text, space).replace("{path}", f"exercises/{path}"))
        parts.append(f'const exercise::Variant register_{space}("{one.number}", "{name}", {space}::run);\n')
    return "".join(parts) + "}  // namespace\n"


def main() -> int:
    folder = Path(sys.argv[1])
    for one in task.find():
        (folder / one.path.name).write_text(source(one), encoding="utf-8")
        (folder / "exercises").mkdir(exist_ok=True)
        texts = {"skeleton": one.skeleton, "solution": one.solution}
        texts |= {f"wrong_{i}": wrong.text for i, wrong in enumerate(one.wrongs, 1)}
        for name, text in texts.items():
            (folder / "exercises" / f"{one.number}_{name}.cu").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
