"""Doxygen's tree of pages, which stands beside the text: a list of pages, without the sections inside of them.

A page's sections are listed on the page itself. Doxygen puts them into the tree, too, where they push the pages of a
chapter out of sight. The tree is in navtreedata.js and in a file for each node with many children. The way to an
address, a list of places, is in navtreeindex0.js and so on.
"""

import json
from pathlib import Path
import re

VARIABLE = re.compile(r"(?s)var (?P<name>\w+) =\n(?P<value>[\[{].*?\n[\]}]);")
Node = list  # [label, address or null, children: null, a list of nodes, or the name of the file that has them]


def variables(path: Path) -> dict[str, list | dict]:
    """The values that a file of Doxygen's tree defines."""
    return {match["name"]: json.loads(match["value"]) for match in VARIABLE.finditer(path.read_text(encoding="utf-8"))}


def write(path: Path, name: str, value: list | dict) -> None:
    """Puts a value in the place of the one that the file defines by this name."""

    def replaced(match: re.Match) -> str:
        if match["name"] != name:
            return match[0]
        return f"var {name} =\n{json.dumps(value, ensure_ascii=False, indent=0)};"

    path.write_text(VARIABLE.sub(replaced, path.read_text(encoding="utf-8")), encoding="utf-8")


class Tree:
    """The tree of a site; `pages` are the addresses of the pages whose sections it loses.

    `twins` are the addresses of translated pages, each with that of the page that it translates. They have no entry of their
    own: book.js shows their titles in the places of the others.
    """

    def __init__(self, html: Path, pages: set[str], twins: dict[str, str] | None = None):
        self.html = html
        self.pages = pages
        self.twins = twins or {}
        self.files: dict[str, list[Node]] = {}  # the children of a node, by the name of the file that has them

    def children(self, node: Node) -> list[Node]:
        below = node[2]
        if not isinstance(below, str):
            return below or []
        if below not in self.files:
            self.files[below] = next(iter(variables(self.html / f"{below}.js").values()))
        return self.files[below]

    def is_section(self, node: Node) -> bool:
        page, hash_, _ = (node[1] or "").partition("#")
        return bool(hash_) and page in self.pages

    def is_left_out(self, node: Node) -> bool:
        return self.is_section(node) or (node[1] or "").partition("#")[0] in self.twins

    def way(self, root: Node, places: list[int]) -> list[int]:
        """The way to a node once sections are gone; for a section, to its page."""
        result = []
        node = root
        for place in places:
            found = self.children(node)
            node = found[place]
            if self.is_section(node):
                break
            result.append(place - sum(self.is_left_out(one) for one in found[:place]))
        return result

    def without_sections(self, node: Node) -> None:
        kept = [one for one in self.children(node) if not self.is_left_out(one)]
        for one in kept:
            one[0] = re.sub("</?tt>", "", one[0]).removeprefix(f"{node[0]}: ")
            self.without_sections(one)
        if isinstance(node[2], str) and kept:
            write(self.html / f"{node[2]}.js", node[2].replace("-", "_"), kept)
        else:
            node[2] = kept or None

    def mend(self) -> None:
        data = self.html / "navtreedata.js"
        tree = variables(data)["NAVTREE"]
        indices = [(path, name, ways) for path in self.html.glob("navtreeindex*.js") for name, ways in variables(path).items()]
        mended = {address: self.way(tree[0], way) for _, _, ways in indices for address, way in ways.items()}
        for path, name, ways in indices:
            pages = {address: address.partition("#")[0] for address in ways}
            write(path, name, {address: mended[self.twins.get(page, address)] for address, page in pages.items()})
        self.without_sections(tree[0])
        write(data, "NAVTREE", tree)


def scripts(html: Path) -> None:
    """Changes what Doxygen's scripts do with the tree. They name variables after files, and 6_lmha would be no name: an n
    goes in front. And a page with others below it, such as a chapter's, shows them, as the first page does."""
    for script in html.glob("[0-9]*.js"):
        script.write_text(
            re.sub(r"^var (?=\d)", "var n", script.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8"
        )
    path = html / "navtree.js"
    text = path.read_text(encoding="utf-8")
    for place, addition in (
        ("return eval(n.replace(", "/^(?=\\d)/, 'n').replace("),
        ('if (rootBase=="index" || ', "/^(index_zh$|chapter_|branch_|timings$|handbook$|notebook$|workshop$)/.test(rootBase) || "),
    ):
        if text.count(place) != 1:
            raise SystemExit(f"Doxygen's navtree.js has no '{place}'")
        text = text.replace(place, place + addition)
    path.write_text(text, encoding="utf-8")
