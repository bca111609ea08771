"""Translated pages: which section of the English page each of their sections translates, and whether it still does.

A comment before each section of a translated page has the id of the English section and the hash of its text, as the
translator saw it (docs/README.md).
"""

from dataclasses import dataclass
import hashlib
from pathlib import Path
import re

from .markdown import SWITCH, TRANSLATES, Slugs

INTRODUCTION = "introduction"  # the title and what stands before the first section
# What commands write between markers. Of a row that begins with a link, people write the link and what follows it.
GENERATED = re.compile(r"(?ms)^<!-- (timings|runs|staircase|stages|sample|ratios)\b[^\n]*-->$.*?^<!-- end of \1[^\n]*-->$")
WRITTEN = re.compile(r"(?m)^\| \[[^\]]*\]\([^)]*\) \| [^|]* \|")


@dataclass(frozen=True)
class Section:
    """A piece of an English page that is translated as a whole."""

    slug: str
    heading: str
    text: str

    @property
    def digest(self) -> str:
        """The first digits of the hash of what people have written in it, however its lines break."""
        text = GENERATED.sub(lambda match: "\n".join(WRITTEN.findall(match[0])), SWITCH.sub("", self.text))
        return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Finding:
    """A section that does not agree with the other language; `what` is stale, missing, superfluous or misplaced."""

    what: str
    slug: str
    heading: str


def english(path: Path) -> Path:
    """The English page of a translated one."""
    return path.with_name(path.name.removesuffix(".zh.md") + ".md")


def chinese(path: str) -> str:
    """The path of a page's translation, which may not be there."""
    return path.removesuffix(".md") + ".zh.md"


def lines_outside_fences(text: str):
    """(the line's place in the text, line) of all lines but those of fenced blocks."""
    place, fence = 0, None
    for line in text.splitlines(keepends=True):
        mark = re.match(r" *```", line)
        if mark and (fence is None or line.strip() == "```"):
            fence = mark[0] if fence is None else None
        elif fence is None:
            yield place, line.rstrip("\n")
        place += len(line)


def sections(text: str) -> list[Section]:
    """The introduction of an English page, then its sections of the levels 2 and 3."""
    slugs = Slugs()
    begins: list[tuple[int, str, str]] = []
    for place, line in lines_outside_fences(text):
        if match := re.match(r"(#+) (.*)", line):
            slug = slugs(match[2])
            if not begins:
                begins.append((0, INTRODUCTION, match[2]))
            elif len(match[1]) in (2, 3):
                begins.append((place, slug, match[2]))
    ends = [place for place, _, _ in begins[1:]] + [len(text)]
    return [Section(slug, heading, text[place:end]) for (place, slug, heading), end in zip(begins, ends)]


def comments(text: str) -> list[re.Match]:
    """The comments of a translated page before its sections."""
    return [match for _, line in lines_outside_fences(text) if (match := TRANSLATES.fullmatch(line))]


def findings(there: list[Section], translation: str) -> list[Finding]:
    """What a translation has to be looked at for, in the order of the English sections, then of its own."""
    digests = {match["slug"]: match["digest"] for match in comments(translation)}
    known = {section.slug: section for section in there}
    result = []
    for section in there:
        if section.slug not in digests:
            result.append(Finding("missing", section.slug, section.heading))
        elif digests[section.slug] != section.digest:
            result.append(Finding("stale", section.slug, section.heading))
    result += [Finding("superfluous", slug, slug) for slug in digests if slug not in known]
    common = [slug for slug in digests if slug in known]
    order = [section.slug for section in there if section.slug in digests]
    result += [Finding("misplaced", slug, known[slug].heading) for slug, expected in zip(common, order) if slug != expected][:1]
    return result


def accepted(there: list[Section], translation: str, slugs: list[str]) -> str:
    """The translation with the hashes of the English sections as they are now; of some of them, if `slugs` names any."""
    digests = {section.slug: section.digest for section in there}

    def written(match: re.Match) -> str:
        slug = match["slug"]
        chosen = slug in digests and (not slugs or slug in slugs)
        return f"<!-- translates {slug} {digests[slug]} -->" if chosen else match[0]

    return re.sub(rf"(?m)^{TRANSLATES.pattern}$", written, translation)
