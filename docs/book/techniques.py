"""The index of techniques: techniques.toml names a file and a pattern for each place; here they become lines."""

from dataclasses import dataclass
import re
import tomllib

from .repository import ROOT, read


@dataclass(frozen=True)
class Place:
    path: str
    line: int


@dataclass(frozen=True)
class Technique:
    name: str
    what: str  # a sentence
    places: list[Place]
    said: str | None = None  # the stage in which it first appears, where that is not the first among its places

    @property
    def id(self) -> str:
        return re.sub(r"\W+", "_", self.name.lower()).strip("_")

    def first(self, stages: list[str]) -> str | None:
        """The stage in which it first appears; `stages` are all stages in the order in which they are read."""
        if self.said is not None:
            if self.said not in stages:
                raise SystemExit(f"docs/techniques.toml: {self.name}: {self.said} is no stage")
            return self.said
        return min((p.path for p in self.places if p.path in stages), key=stages.index, default=None)


def find(path: str, pattern: str) -> Place:
    """The first line of a file in which the pattern is found; there must be one."""
    for number, line in enumerate(read(path).splitlines(), 1):
        if re.search(pattern, line):
            return Place(path, number)
    raise SystemExit(f"docs/techniques.toml: no line of {path} matches '{pattern}'")


def load() -> list[Technique]:
    """All techniques, by name."""
    with open(ROOT / "docs/techniques.toml", "rb") as file:
        entries = tomllib.load(file)["technique"]
    found = [Technique(e["name"], e["what"], [find(p["file"], p["line"]) for p in e["at"]], e.get("first")) for e in entries]
    return sorted(found, key=lambda t: t.name.lower())
