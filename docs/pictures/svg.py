"""A picture as SVG that takes the colours of the page: the site's where it stands in one, else the system's."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
import re

LIGHT = {
    "ink": "#2f4153",
    "soft": "#8a97a5",
    "a": "#cfe3f5",
    "b": "#f6dfb8",
    "c": "#d5ebcf",
    "d": "#ecd3e4",
    "paper": "#fff",
}
DARK = {
    "ink": "#d8dee6",
    "soft": "#8793a0",
    "a": "#21405c",
    "b": "#5a4416",
    "c": "#264a2b",
    "d": "#53304a",
    "paper": "#1c1d1f",
}


def style() -> str:
    """Colours as variables, which book.css sets on the site."""

    def variables(colours):
        return "".join(f"--{name}:var(--picture-{name},{colour});" for name, colour in colours.items())

    return (
        f".pic{{{variables(LIGHT)}}}@media(prefers-color-scheme:dark){{.pic{{{variables(DARK)}}}}}"
        ".pic text{fill:var(--ink);font:14px sans-serif}"
        ".pic .small{font-size:12px}.pic .mono{font-family:monospace}.pic .middle{text-anchor:middle}"
        ".pic .end{text-anchor:end}.pic .bold{font-weight:bold}.pic .soft{fill:var(--soft)}"
        ".pic .line{stroke:var(--ink);stroke-width:1.3;fill:none}.pic .dashed{stroke-dasharray:4 3}"
        ".pic .faint{stroke:var(--soft);stroke-width:1;fill:none}.pic .head{fill:var(--ink)}"
        + "".join(
            f".pic .{n}{{fill:var(--{n});stroke:var(--ink);stroke-width:1}}" for n in ("a", "b", "c", "d", "paper")
        )
    )


# The same as attributes, for viewers that do not know CSS variables. Where style() counts, it counts more than these.
ROOT = f'fill="{LIGHT["ink"]}" font-family="sans-serif" font-size="14"'
ATTRIBUTES = {
    **{kind: f'fill="{LIGHT[kind]}" stroke="{LIGHT["ink"]}"' for kind in ("a", "b", "c", "d", "paper")},
    "line": f'fill="none" stroke="{LIGHT["ink"]}" stroke-width="1.3"',
    "faint": f'fill="none" stroke="{LIGHT["soft"]}"',
    "dashed": 'stroke-dasharray="4 3"',
    "small": 'font-size="12"',
    "mono": 'font-family="monospace"',
    "middle": 'text-anchor="middle"',
    "end": 'text-anchor="end"',
    "bold": 'font-weight="bold"',
    "soft": f'fill="{LIGHT["soft"]}"',
}


def with_attributes(part: str) -> str:
    """A shape with the attributes that its classes stand for."""

    def attributes(match: re.Match) -> str:
        return " ".join([match[0], *(ATTRIBUTES[kind] for kind in match[1].split() if kind in ATTRIBUTES)])

    return re.sub(r'class="([^"]*)"', attributes, part)


@dataclass(frozen=True)
class Text:
    """A line of text; `turn` in degrees."""

    x: float
    y: float
    words: str
    kind: str
    turn: int = 0

    def svg(self, words: str) -> str:
        place = f'x="{self.x:g}" y="{self.y:g}"'
        if self.turn:
            place = f'transform="translate({self.x:g} {self.y:g}) rotate({self.turn})"'
        return f'<text class="{self.kind}" {place}>{escape(words)}</text>'


class Picture:
    """Shapes, and what they show in words: `title` in a line, `words` for who cannot see it."""

    def __init__(self, name: str, width: int, height: int, title: str, words: str):
        self.name, self.width, self.height = name, width, height
        self.title, self.words = title, words
        self.parts: list[str | Text] = []

    def add(self, part: str) -> None:
        self.parts.append(part)

    def box(self, x, y, width, height, kind="paper", corner=4) -> None:
        self.add(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner}"/>')

    def text(self, x, y, words: str, kind="middle", turn=0) -> None:
        self.parts.append(Text(x, y, words, kind, turn))

    def texts(self) -> list[Text]:
        return [part for part in self.parts if isinstance(part, Text)]

    def lines(self, x, y, lines, kind="middle small", step=16) -> None:
        for i, line in enumerate(lines):
            self.text(x, y + i * step, line, kind)

    def polygon(self, points, kind) -> None:
        self.add(f'<polygon class="{kind}" points="' + " ".join(f"{x:g},{y:g}" for x, y in points) + '"/>')

    def line(self, x1, y1, x2, y2, kind="line") -> None:
        self.add(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')

    def arrow(self, *points, kind="line") -> None:
        """A line through the points, a head at the last."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.add(f'<polyline class="{kind}" points="{path}"/>')
        (x1, y1), (x2, y2) = points[-2:]
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        base = (x2 - 8 * dx, y2 - 8 * dy)
        self.add(
            f'<polygon class="head" points="{x2:.1f},{y2:.1f} {base[0] - 3.5 * dy:.1f},{base[1] + 3.5 * dx:.1f} '
            f'{base[0] + 3.5 * dy:.1f},{base[1] - 3.5 * dx:.1f}"/>'
        )

    def labelled(self, x, y, width, height, lines, kind="paper", style="middle small") -> None:
        """A box with lines of text in its middle."""
        self.box(x, y, width, height, kind)
        top = y + height / 2 - 8 * (len(lines) - 1) + 4.5
        self.lines(x + width / 2, top, lines, style)

    def svg(self, say: Callable[[str], str] = lambda words: words, language: str = "") -> str:
        """The file's text. `say` puts its words into another language."""
        ident = self.name.replace("/", "-")
        parts = [part.svg(say(part.words)) if isinstance(part, Text) else part for part in self.parts]
        spoken = f' xml:lang="{language}"' if language else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="pic" role="img" aria-labelledby="{ident}-t {ident}-d"{spoken} '
            f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" {ROOT}>\n'
            f'<title id="{ident}-t">{escape(say(self.title))}</title>\n<desc id="{ident}-d">{escape(say(self.words))}</desc>\n'
            f"<style>{style()}</style>\n" + "\n".join(map(with_attributes, parts)) + "\n</svg>\n"
        )

    def path(self, folder: Path, suffix: str = "svg") -> Path:
        return folder / f"{self.name}.{suffix}"
