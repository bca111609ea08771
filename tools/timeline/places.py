"""Names from the sources: of the function around a line, of what is loaded there, of barriers, of what stands between."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
import re

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = (".cu", ".cuh", ".hpp", ".cpp")

# Words before a parenthesis that are no calls worth a name, and the wrappers that have events of their own.
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "requires", "decltype", "static_cast", "reinterpret_cast",
            "int", "unsigned", "float", "const", "auto", "min", "max", "tiles_of", "panel", "lane_index"}
WRAPPERS = {"wait", "wait_cluster", "arrive", "arrive_expect", "arrive_at", "advance", "stage", "wgmma_fence", "wgmma_commit",
            "wgmma_wait", "fence_async_proxy", "__syncwarp", "__syncthreads", "load_tile", "store_tile", "commit_stores",
            "wait_stores", "wait_stores_read", "cp_async_commit", "cp_async_wait", "init", "fence_barrier_init", "decrease_registers", "increase_registers", "elect_one", "consumer", "producer"}


@dataclass(frozen=True)
class Place:
    """A line of a source. A file that is not of this project has its name only."""

    file: str  # from the project's root, or as it was given
    line: int

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"

    @property
    def short(self) -> str:
        return f":{self.line}"


def file_hash(path: str) -> int:
    """What device/trace.cuh makes of a path: 20 bits of FNV-1a."""
    value = 2166136261
    for byte in path.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return (value ^ value >> 20) & 0xFFFFF


@cache
def sources() -> dict[int, str]:
    """The project's sources by their hashes."""
    files = [path for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith((".", "build"))
             for path in folder.rglob("*") if path.suffix in SUFFIXES]
    return {file_hash(name): name for name in (str(path.relative_to(ROOT)) for path in files)}


@cache
def from_root(file: str) -> str:
    """A compiler's name of a file, relative to its build folder or whole, as one of the project."""
    parts = Path(file).parts
    for first in range(len(parts)):
        tail = Path(*parts[first:])
        if not tail.is_absolute() and ".." not in tail.parts and (ROOT / tail).is_file():
            return str(tail)
    return file


def find(file: str | int, line: int) -> Place:
    return Place(sources().get(file, f"file {file}") if isinstance(file, int) else from_root(file), line)


@cache
def text(file: str) -> list[str]:
    try:
        return (ROOT / file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def code(place: Place) -> str:
    """The line, without its comment, and what continues it."""
    lines = text(place.file)
    if not 0 < place.line <= len(lines):
        return ""
    result = ""
    for line in lines[place.line - 1 : place.line + 3]:
        result += re.sub(r"//.*", "", line).strip() + " "
        if result.count("(") <= result.count(")"):
            break
    return result.strip()


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


LAMBDA = re.compile(r"(\w+) = \[[^]]*\](?:<[^>]*>)?(?:\(|\s*\{)")
NO_FUNCTIONS = {"__launch_bounds__", "__align__", "requires"}


def head_of_function(lines: list[str], i: int) -> str:
    """The name of the function whose definition begins in line i; nothing if none does there."""
    before = lines[i - 1] if i else ""
    if not re.search(r"__device__|__global__|\bvoid\b", before + lines[i]) or lines[i].lstrip().startswith(("return", "}")):
        return ""
    names = re.findall(r"(\w+)\(", " ".join(lines[i : i + 3]).split("{")[0])
    return next((name for name in names if name not in NO_FUNCTIONS), "")


@cache
def function(place: Place) -> str:
    """The function or the named lambda that the line stands in: going up, the first definition that is indented less."""
    lines = text(place.file)
    if not 0 < place.line <= len(lines):
        return ""
    depth = indent(lines[place.line - 1]) + 1
    for i in range(place.line - 1, -1, -1):
        line = lines[i]
        if not line.strip() or line.lstrip().startswith(("//", "#")) or indent(line) >= depth:
            continue
        depth = max(indent(line), 1)
        if found := LAMBDA.search(line):
            return found[1]
        if name := head_of_function(lines, i):
            return name
    return ""


def arguments(call: str) -> list[str]:
    """Of a call: f(a, b(c, d)) has a and b(c, d)."""
    start = call.find("(")
    parts, depth, word = [], 0, ""
    for letter in call[start + 1 :]:
        depth += letter in "([{<"
        if letter in ")]}>":
            depth -= 1
            if depth < 0:
                break
        if letter == "," and depth == 0:
            parts.append(word.strip())
            word = ""
        else:
            word += letter
    return [*parts, word.strip()] if word.strip() else parts


def last_name(expression: str) -> str:
    """tiles.Q is Q, full[ring.stage()] is full, full_ + operand * kSlots is full."""
    expression = re.sub(r"\[.*\]|\(.*\)", "", expression).split("+")[0]
    names = re.findall(r"\w+", expression)
    return names[-1].rstrip("_") if names else expression


@cache
def tile(place: Place) -> str:
    """What a load brings, by the name that its line has for it."""
    line = code(place)
    if found := re.search(r"\b(load_panels|load_tile|load_tile_multicast|push_shared|store_tile|\w*load\w*|\w*push\w*)(<[^;]*?>)?\(.*", line):
        given = arguments(line[found.start() :])
        is_map_first = found[1] in ("load_tile", "load_tile_multicast", "store_tile")
        if is_map_first and len(given) > 1:
            return last_name(given[0]) if last_name(given[1]) == "data" else last_name(given[1])
        if given:
            name = last_name(given[0])
            return function(place) if name in ("tile", "") else name
    return function(place)


@cache
def barrier(place: Place) -> str:
    """The barrier that a line initialises, waits for, or arrives at."""
    line = code(place)
    if found := re.search(r"for \(.*?[&\s]\w+ ?: ?(\w+)\)", line):
        return found[1].rstrip("_")
    if found := re.search(r"(\w+)(?:\[[^;]*?\])?(?:\.|->)(?:init|arrive\w*)\(", line):
        return found[1].rstrip("_")
    if found := re.search(r"\.wait\w*\((.*)\)", line):
        return last_name(arguments("(" + found[1] + ")")[0]) if arguments("(" + found[1] + ")") else function(place)
    if found := re.search(r"(\w+)(?:\[[^;]*?\])?\.wait", line):
        return found[1].rstrip("_")
    return function(place)


@cache
def products(commit: Place) -> str:
    """The functions that start the products of a group, between the commit and the fence or the commit before it."""
    names: list[str] = []
    for line in reversed(text(commit.file)[max(0, commit.line - 40) : commit.line - 1]):
        if re.search(r"\bwgmma_(fence|commit)\(", line):
            break
        names = re.findall(r"\b(start_\w+)(?:<[^;()]*>)?\(", re.sub(r"//.*", "", line)) + names
    return ", ".join(dict.fromkeys(names)) or function(commit)


def calls(file: str, first: int, last: int) -> list[str]:
    """The functions that are called in these lines, but for those that have events of their own."""
    found = []
    for n in range(first, last + 1):
        found += re.findall(r"\b(\w+)(?:<[^;()]*>)?\(", code(Place(file, n)))
    return [name for name in dict.fromkeys(found) if len(name) > 2 and name not in KEYWORDS | WRAPPERS and not name.startswith("start_")]


@cache
def between(first: Place, last: Place) -> str:
    """What a warp does between two lines: a function that is called there, or the one around them."""
    if first.file != last.file:
        return function(last)
    end = last.line
    if last.line <= first.line:  # once more around a loop: to the end of its body
        lines = text(first.file)
        end = first.line
        while end < min(len(lines), first.line + 20) and (not lines[end].strip() or indent(lines[end]) >= indent(lines[first.line - 1])):
            end += 1
    names = calls(first.file, first.line, end) if 0 <= end - first.line < 40 else []
    return names[0] if names else function(first)


@cache
def kernel(place: Place) -> str:
    """The kernel that a launch starts."""
    lines = text(place.file)[place.line - 1 : place.line + 12]
    # Of two forms of a kernel, one of which is chosen here, the first.
    found = re.search(r"\blaunch\(\s*(?:[\w.]+ \? )?([\w:]+)", " ".join(lines))
    if not found:
        return str(place)
    name = found[1].rsplit("::", 1)[-1]
    before = " ".join(text(place.file)[max(0, place.line - 25) : place.line])
    if chosen := re.findall(rf"\b{name} = [^;]*?(\w*kernel\w*)\b", before):  # of several shapes
        return chosen[-1]
    return place.file.rsplit("/", 1)[-1] if name == "kernel" else name
