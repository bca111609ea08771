"""An exercise: its file with our solution, its hints, mistakes that are planted in it, and other ways to be right."""

from dataclasses import dataclass, replace
from pathlib import Path
import re
import tomllib

ROOT = Path(__file__).resolve().parents[2]
TASKS = ROOT / "exercise/tasks"

SOLUTION = re.compile(r"^( *)// solution\n(.*?)^ *// end\n", re.MULTILINE | re.DOTALL)
# Title and statement, then hints, in another language; docs/translations.py writes the hashes.
TRANSLATION = re.compile(
    r"<!-- translates statement[^>]*-->\n\n# (?P<title>.+)\n\n(?P<statement>(?s:.+))\n\n<!-- translates hints[^>]*-->\n\n(?P<hints>(?s:.+))"
)
NAME = re.compile(r"(\d)\.(\d+)_(\w+)\.cu")


class TaskError(Exception):
    """A file of an exercise that is not as it should be, in a line."""


@dataclass(frozen=True)
class Planted:
    """Another text than our solution, and what the checker is to say about it (a regular expression)."""

    why: str
    text: str
    says: str


@dataclass(frozen=True)
class Task:
    path: Path
    number: str  # 1.2
    title: str
    statement: str  # Markdown
    text: str  # the file
    hints: list[str]
    wrongs: list[Planted]  # mistakes that one expects
    rights: list[Planted]  # other ways to be right
    harmless: dict[str, str]  # mutants of our solution that are right, and why: see mutants.py

    @property
    def chapter(self) -> int:
        return int(self.number.split(".")[0])

    @property
    def copy_name(self) -> str:
        """The name of the reader's file."""
        chapter, place = self.number.split(".")
        return f"{int(chapter):02}_{place}.cu"

    @property
    def skeleton(self) -> str:
        """The file with blanks in place of our solution."""

        def blank(match: re.Match[str]) -> str:
            indent, lines = match[1], match[2].count("\n")
            return f"{indent}// Write this: ours takes {lines} line{'s' if lines > 1 else ''}.\n"

        return SOLUTION.sub(blank, self.text)

    @property
    def solution(self) -> str:
        """The file as we would write it, without the marks."""
        return SOLUTION.sub(lambda match: match[2], self.text)

    @property
    def solution_lines(self) -> tuple[int, int]:
        """The first of our solution's lines in `solution`, and the one after the last; both count from 0."""
        match = SOLUTION.search(self.text)
        first = self.text[: match.start()].count("\n")
        return first, first + match[2].count("\n")


def planted(path: Path, text: str, solution: str, entry: dict, kind: str) -> Planted:
    """A [[wrong]] or [[right]] of the TOML file: another solution, or ours with a text in the place of another."""
    keys = ("why", "solution", "says") if "solution" in entry else ("why", "replace", "with", "says")
    missing = [key for key in keys if not isinstance(entry.get(key), str)]
    if missing:
        raise TaskError(f"{path}: a [[{kind}]] lacks '{missing[0]}'")
    if "solution" in entry:
        match = SOLUTION.search(text)
        rest = SOLUTION.sub(lambda other: other[2], text[match.end() :])
        return Planted(entry["why"], text[: match.start()] + entry["solution"] + rest, entry["says"])
    start = solution.index("#include")  # the statement above may name the same
    code = solution[start:]
    if (count := code.count(entry["replace"])) != 1:
        raise TaskError(f"{path}: '{entry['why']}' replaces a text that stands {count} times in the solution, not once")
    return Planted(entry["why"], solution[:start] + code.replace(entry["replace"], entry["with"]), entry["says"])


def read(path: Path) -> Task:
    """The exercise of a .cu file. Raises TaskError if it lacks something."""
    name = NAME.fullmatch(path.name)
    if not name:
        raise TaskError(f"{path}: its name is not CHAPTER.NUMBER_NAME.cu")
    number = f"{name[1]}.{name[2]}"
    text = path.read_text(encoding="utf-8")
    comment = []
    for line in text.splitlines():
        if not line.startswith("///"):
            break
        comment.append(line[3:].removeprefix(" "))
    title = re.fullmatch(r"Exercise (\d\.\d+): (.+)", comment[0] if comment else "")
    if not title or title[1] != number:
        raise TaskError(f"{path}:1: the file does not begin with '/// Exercise {number}: TITLE'")
    if not SOLUTION.search(text):
        raise TaskError(f"{path}: nothing stands between '// solution' and '// end'")
    plants = path.with_suffix(".toml")
    entries = tomllib.loads(plants.read_text(encoding="utf-8"))
    hints = [" ".join(hint.split()) for hint in entries.get("hints", [])]
    if not hints:
        raise TaskError(f"{plants}: there are no hints")
    solution = SOLUTION.sub(lambda match: match[2], text)
    wrongs = [planted(plants, text, solution, entry, "wrong") for entry in entries.get("wrong", [])]
    rights = [planted(plants, text, solution, {"says": "^solved$"} | entry, "right") for entry in entries.get("right", [])]
    if not wrongs:
        raise TaskError(f"{plants}: no mistake is planted")
    harmless = {}
    for entry in entries.get("harmless", []):
        harmless |= dict.fromkeys(entry["mutants"], entry["why"])
    return Task(path, number, title[2], "\n".join(comment[1:]).strip(), text, hints, wrongs, rights, harmless)


def translation(one: Task, language: str) -> Path:
    return one.path.with_suffix(f".{language}.md")


def translated(one: Task, language: str) -> Task:
    """The exercise with title, statement and hints in another language; as it is where they are not translated."""
    path = translation(one, language)
    if not path.exists():
        return one
    text = TRANSLATION.fullmatch(path.read_text(encoding="utf-8"))
    hints = re.findall(r"(?m)^\d+\. (.+)$", text["hints"]) if text else []
    if len(hints) != len(one.hints):
        raise TaskError(f"{path}: it has not a title, a statement and {len(one.hints)} hints")
    return replace(one, title=text["title"], statement=text["statement"], hints=hints)


def find(folder: Path = TASKS) -> list[Task]:
    """All exercises, in order."""
    tasks = [read(path) for path in folder.glob("*.cu")]
    return sorted(tasks, key=lambda task: [int(part) for part in task.number.split(".")])
