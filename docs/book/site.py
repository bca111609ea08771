"""What is done to the site when Doxygen has written it: links to lines, pictures, the index of the search."""

from html.parser import HTMLParser
import json
from pathlib import Path
import re
import shutil
import xml.etree.ElementTree as ElementTree

from . import tree
from .pages import translation_page
from .repository import ROOT

# What Doxygen and header.html write on every page, on Chinese ones.
CHINESE = {
    '<div id="projectname">Linear attention': '<div id="projectname">线性注意力',
    '<div id="projectbrief">How it is made fast</div>': '<div id="projectbrief">怎样让它变快</div>',
    'placeholder="Search" aria-label="Search the book"': 'placeholder="搜索" aria-label="搜索本书"',
    "<title>Linear attention: ": "<title>线性注意力：",
}


def source_pages(html: Path) -> dict[str, str]:
    """Doxygen's page with the lines of each source, by the source's path."""
    result = {}
    for page in html.glob("*_source.html"):
        title = re.search(r"<title>.*?: (\S+) Source File</title>", page.read_text(encoding="utf-8"))
        if title:
            result[title[1]] = page.name
    return result


def link_lines(text: str, lines_of: dict[str, str]) -> str:
    """Puts addresses in for source:PATH#LNUMBER."""

    def address(match: re.Match) -> str:
        path, line = match[1], match[2]
        if path not in lines_of:
            raise SystemExit(f"a page links to a line of {path}, which Doxygen has not read")
        return f'href="{lines_of[path]}' + (f'#l{int(line):05d}"' if line else '"')

    return re.sub(r'href="source:([^"#]+)(?:#L(\d+))?"', address, text)


def without_mathjax(text: str) -> str:
    """A page that has no formula needs no MathJax."""
    if 'class="formula' in text or r"\(" in text:  # on lines of its own, or within one
        return text
    return re.sub(
        r'<script type="text/x-mathjax-config">.*?</script>\s*<script[^>]*MathJax.js[^>]*></script>',
        "",
        text,
        flags=re.S,
    )


def put_pictures(text: str, pictures: dict[str, str], timings: set[str]) -> str:
    """Puts the pictures themselves in for images of them, so that they take the page's colours. Those of timings have
    colours for every page, and stay files."""

    def picture(match: re.Match) -> str:
        if match[1] in timings:
            return f'<div class="picture">{match[0]}</div>'
        if match[1] not in pictures:
            raise SystemExit(f"a page shows {match[1]}, which is not in docs/pictures")
        width = re.search(r'<svg [^>]*?\bwidth="(\d+)', pictures[match[1]])
        style = f' style="--natural-width: {width[1]}px"' if width else ""
        return f'<div class="picture"{style}>{pictures[match[1]]}</div>'

    return re.sub(r'<img src="([\w.\-]+\.svg)"[^>]*>', picture, text)


def without_dead_links(text: str) -> str:
    """Doxygen's summary of a page names sections that it leaves out where all in them is private."""

    def kept(match: re.Match) -> str:
        return match[0] if f'name="{match[1]}"' in text else ""

    def summary(match: re.Match) -> str:
        return re.sub(r'<a href="#([\w-]+)">[^<]*</a>(?: &#124;)?', kept, match[0])

    return re.sub(r'<div class="summary">.*?</div>', summary, text, flags=re.S)


def with_whole_numbers(text: str) -> str:
    """Keeps a browser from breaking 2.6e-3 at its hyphen."""
    return re.sub(r"(?<=[>\s(])(\d+(?:\.\d+)?e-\d+)(?=[<\s,.;:)])", r'<span class="number">\1</span>', text)


def with_marks_at_formulas(text: str) -> str:
    """Keeps a browser from breaking a line between a formula within it and a Chinese mark."""
    formula = r"\\\((?:(?!\\\)).)*\\\)"
    return re.sub(rf"[（“]{formula}[，。：；、？！”）]*|{formula}[，。：；、？！”）]+", r'<span class="whole">\g<0></span>', text)


def without_guessed_links(text: str) -> str:
    """In code Doxygen links a variable to any field of its name, somewhere. A name with its type in front is no guess."""

    def kept(match: re.Match) -> str:
        return match[0] if "::" in match[1] else match[1]

    return re.sub(r'<a class="code hl_variable"[^>]*>([^<]*)</a>', kept, text)


def with_foot(text: str) -> str:
    """Doxygen's foot, which says where one is, at the end of the text: outside of it, it would cover the text's last lines."""
    return re.sub(
        r'(</div><!-- doc-content -->)\n<!-- start footer part -->\n(<div id="nav-path".*?</div>\n)',
        r"\2\1\n",
        text,
        count=1,
        flags=re.S,
    )


def with_code_in_headings(text: str) -> str:
    """Doxygen shows the tags of code in headings, and in lists of them."""
    text = re.sub(r"<title>.*?</title>", lambda m: re.sub(r"&lt;/?tt&gt;", "", m[0]), text, flags=re.S)
    return re.sub(r"&lt;tt&gt;(.*?)&lt;/tt&gt;", r"<code>\1</code>", text)


class Text(HTMLParser):
    """The text of a page's contents by its headings: a list of [id, heading, text]."""

    SKIPPED = {"script", "style", "svg", "details"}  # details repeat the source

    def __init__(self):
        super().__init__()
        self.parts = [["", "", ""]]
        self.depth = 0  # of div in div.contents; 0 outside
        self.skipped = 0
        self.heading = None

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "div":
            if self.depth or attributes.get("class") == "contents":
                self.depth += 1
            if self.depth and attributes.get("class") in ("toc", "neighbours"):
                self.skipped, self.toc = self.skipped + 1, self.depth
        if not self.depth:
            return
        if tag in self.SKIPPED:
            self.skipped += 1
        if tag in ("h1", "h2", "h3"):
            self.parts.append(["", "", ""])
            self.heading = tag
        if self.heading and attributes.get("id") and not self.parts[-1][0]:
            self.parts[-1][0] = attributes["id"]

    def handle_endtag(self, tag):
        if tag == "div" and self.depth:
            if self.skipped and getattr(self, "toc", None) == self.depth:
                self.skipped, self.toc = self.skipped - 1, None
            self.depth -= 1
        if not self.depth:
            return
        if tag in self.SKIPPED:
            self.skipped -= 1
        if tag == self.heading:
            self.heading = None

    def handle_data(self, data):
        if self.depth and not self.skipped:
            self.parts[-1][1 if self.heading else 2] += data


def search_index(html: Path, names: list[str], tags: ElementTree.Element | None = None) -> list[list[str]]:
    """[address, title, heading, text] of each section of the book's pages, then of each name in the reference."""
    index = []
    for name in names:
        page = html / f"{name}.html"
        text = page.read_text(encoding="utf-8")
        title = re.search(r'<div class="title">(.*?)</div>', text, re.S)
        reader = Text()
        reader.feed(text)
        for anchor, heading, body in reader.parts:
            body = " ".join(body.split())
            if body or heading:
                address = page.name + (f"#{anchor}" if anchor else "")
                index.append(
                    [address, re.sub(r"<[^>]*>", "", title[1]).strip() if title else name, heading.strip(), body]
                )
    for member in tags.iterfind("compound/member") if tags is not None else ():
        name, file = member.findtext("name", ""), member.findtext("anchorfile", "")
        if file and name:
            index.append(
                [
                    f"{file}#{member.findtext('anchor', '')}",
                    name,
                    member.get("kind", ""),
                    member.findtext("arglist", ""),
                ]
            )
    return index


def with_languages(text: str, page: str, translated: set[str]) -> str:
    """A page that says its language, and leads to the same page in the other one from its head. `translated` are the names
    of the English pages that have a Chinese one."""
    english = next((name for name in translated if translation_page(name) == page), page)
    chinese = translation_page(english)
    choices = {
        english: ('<b lang="en">English</b>', f'<a href="{english}.html" lang="en">English</a>'),
        chinese: ('<b lang="zh-CN">中文</b>', f'<a href="{chinese}.html" lang="zh-CN">中文</a>'),
    }
    shown = {name: one[name != page] for name, one in choices.items()}
    if english not in translated:
        shown[chinese] = '<i lang="zh-CN" title="这一页只有英文">中文</i>'
    text = text.replace("<!-- language -->", f'<span id="book-language">{shown[chinese]} / {shown[english]}</span>', 1)
    text = text.replace("<html ", f'<html lang="{"zh-CN" if page == chinese else "en"}" ', 1)
    for said, translation in CHINESE.items() if page == chinese else ():
        if said not in text:
            raise SystemExit(f"{page}.html has no '{said}' to translate")
        text = text.replace(said, translation, 1)
    return text


def finish(html: Path, tagfile: Path, names: list[str], translated: dict[str, str]) -> None:
    """Completes the pages in place and writes the indices of the search. `translated` has the Chinese titles of the English
    pages that are translated, by their names."""
    tags = ElementTree.parse(tagfile).getroot()
    lines_of = source_pages(html)
    pictures = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "docs/pictures").rglob("*.svg")}
    timings = sorted((ROOT / "docs/timings").glob("*.svg"))
    for path in timings:
        shutil.copy(path, html)
    plotted = {path.name for path in timings}
    for page in html.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        done = put_pictures(link_lines(text, lines_of), pictures, plotted)
        done = with_whole_numbers(without_dead_links(without_mathjax(done)))
        done = with_foot(with_code_in_headings(without_guessed_links(done)))
        done = with_marks_at_formulas(done)
        done = with_languages(done, page.stem, set(translated))
        if done != text:
            page.write_text(done, encoding="utf-8")
    twins = {translation_page(name): name for name in translated}
    addresses = {f"{chinese}.html": f"{english}.html" for chinese, english in twins.items()}
    tree.Tree(html, {f"{name}.html" for name in names}, addresses).mend()
    tree.scripts(html)
    (html / "languages.js").write_text(f"const bookTranslated = {json.dumps(translated, ensure_ascii=False)};\n", encoding="utf-8")
    write_index(html / "search-index.js", search_index(html, [name for name in names if name not in twins], tags))
    write_index(html / "search-index_zh.js", search_index(html, [name for name in names if name in twins]))


def write_index(path: Path, index: list[list[str]]) -> None:
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    path.write_text(f"bookIndex({text});\n", encoding="utf-8")
