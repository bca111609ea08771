"""The pictures of the pages' texts: a module for each chapter and one for the front page, each with its DRAWINGS."""

from importlib import import_module
from pathlib import Path

from svg import Picture


def all_drawings() -> list[Picture]:
    modules = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
    return [draw() for name in modules for draw in import_module(f"{__name__}.{name}").DRAWINGS]
