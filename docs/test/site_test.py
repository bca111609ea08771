#!/usr/bin/python3
"""The book in a browser: site_test.py SITE [unittest's options]. SITE is the folder that ./tutorial docs has filled.

Debian's Python, which has Debian's python3-selenium. Chromium reaches nothing but the site.
"""

from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
import re
import shutil
import subprocess
import sys
from threading import Thread
import unittest
from urllib.parse import unquote, urldefrag

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

sys.path += [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "tools")]

from book.pages import NAMES, Book, code_page, text_page, texts, translation_page  # noqa: E402
from book.repository import ROOT, chapters  # noqa: E402
from book.stories import stories  # noqa: E402
from stages.reading import steps  # noqa: E402

SITE = Path()
TELEPHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
TABLET = {"width": 1024, "height": 768, "deviceScaleFactor": 1, "mobile": False}
DESK = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}

# What a page is like whatever the screen: errors of formulas and pictures, and how many there are.
LOOK = r"""
const all = selector => [...document.querySelectorAll(selector)];
const wrong = [];
const check = (good, what) => { if (!good) wrong.push(what); };
// Doxygen marks formulas on lines of their own; those within a line are \\( ... \\) in the text.
check(all('.formulaDsp').length === all('script[type="math/tex; mode=display"]').length, 'a formula on lines of its own');
const formulas = all('script[type^="math/tex"]').length;
check(formulas === all('.MathJax_SVG svg').length, 'a formula that is not typeset');
// What MathJax does not understand it typesets, too, as an error message, and in words it shows backslashes.
const bad = node => node && (node.type === 'merror' || node.type === 'chars' && node.data.join('').includes('\\') ||
    (node.data ?? []).some(bad));
for (const one of (window.MathJax?.Hub.getAllJax() ?? []).filter(j => bad(j.root))) wrong.push('formula: ' + one.originalText);
const text = document.querySelector('.contents, body').innerText;
for (const mark of ['\\(', '\\[', '\\begin{', '$`', '</tt>']) check(!text.includes(mark), 'literally ' + mark);
check(!/&(#\d+|lt|gt|amp|quot|nbsp|zwj);/.test(text), 'literally ' + text.match(/.{0,20}&[#\w]+;/));
for (const svg of all('svg.pic')) {
  check(svg.querySelector('title')?.textContent && svg.querySelector('desc')?.textContent, 'a picture without words');
}
for (const entry of performance.getEntriesByType('resource')) {
  check(entry.name.startsWith(location.origin) || entry.name.startsWith('data:'), 'from elsewhere: ' + entry.name);
}
const diff = document.querySelector('details.changes pre');
check(diff === null || diff.checkVisibility(), 'a diff that is closed');
return [wrong, formulas, all('div.picture svg.pic').length];
"""

# What is wider than its column on this screen, or cut off, or scrolls without a sign of it.
LAYOUT = r"""
const [done] = [...arguments].slice(-1);
requestAnimationFrame(() => requestAnimationFrame(() => {
  const wrong = [];
  const name = e => e.tagName + '.' + (e.getAttribute('class') ?? '') + ' ' + e.textContent.trim().slice(0, 40);
  for (const selector of ['html', 'body', '#doc-content', '#nav-tree']) {
    const e = document.querySelector(selector);
    if (e?.clientWidth && e.scrollWidth > e.clientWidth) wrong.push(`${selector} is ${e.scrollWidth} wide, not ${e.clientWidth}`);
  }
  const page = document.querySelector('#doc-content');
  const left = page.getBoundingClientRect().left;
  const visit = (e, from, to) => {
    const { left, right, width, height } = e.getBoundingClientRect();
    const { overflowX, position } = getComputedStyle(e);
    const seen = width > 0 && height > 0 && e.checkVisibility();
    if (seen && (left < from - 1 || right > to + 1)) {
      wrong.push(`${left} to ${right}, not ${from} to ${to}: ${name(e)}`);
      return;
    }
    const hidden = e.scrollWidth - e.clientWidth;
    if (overflowX === 'auto' || overflowX === 'scroll') {
      if (seen && hidden > 1 && !e.matches('.more-left, .more-right')) wrong.push(`scrolls without a sign: ${name(e)}`);
      return;
    }
    if (seen && hidden > 1 && e.clientWidth && overflowX !== 'visible') wrong.push(`is cut off by ${hidden}: ${name(e)}`);
    if (e instanceof SVGElement) return;
    // Where the list of sections stands beside the text, the text has a column of its own.
    if (innerWidth > 767 && e.matches('.textblock')) [from, to] = [left, right];
    for (const child of e.children) visit(child, from, to);
  };
  for (const contents of page.querySelectorAll('.header, .contents')) visit(contents, left, left + page.clientWidth);
  for (const number of document.querySelectorAll('.number')) {
    if (number.getClientRects().length > 1) wrong.push(`a number on two lines: ${name(number)}`);
  }
  done(wrong);
}));
"""

# Of some long paragraphs: the letters of a full line, on average, where that is most; and of the longest line of all.
LINES = r"""
let mean = 0, longest = 0;
const long = [...document.querySelectorAll('.textblock p')].filter(p => p.innerText.length > 180 && !p.querySelector('svg'));
for (const paragraph of long.slice(0, 15)) {
  const lines = new Map();
  const walker = document.createTreeWalker(paragraph, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    // By pieces of words: a line may end after a hyphen, too, and after a Chinese letter, which is as wide as two others.
    for (const word of node.data.matchAll(/\w+[^\w\p{Script=Han}]*|\p{Script=Han}[^\w\p{Script=Han}]*|[^\w\p{Script=Han}]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + 1);
      const place = range.getClientRects()[0];
      if (place === undefined) continue; // spaces where a line ends
      const line = Math.round(place.bottom / 12); // code stands a little higher
      const width = word[0].length + (word[0].match(/[\u3000-\u9fff\uff00-\uffef]/g) ?? []).length;
      lines.set(line, (lines.get(line) ?? 0) + width);
    }
  }
  const full = [...lines.values()].slice(0, -1);
  if (full.length > 1) mean = Math.max(mean, full.reduce((a, b) => a + b) / full.length);
  longest = Math.max(longest, ...full);
}
return [mean, longest];
"""


class Page(HTMLParser):
    """A page's links, its ids, and its images without an alternative."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.bare: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids.update(attributes[a] for a in ("id", "name") if attributes.get(a))
        if tag in ("a", "link", "script", "img", "object"):
            for name in ("href", "src", "data"):
                if attributes.get(name):
                    self.links.append(attributes[name])
        if tag == "img" and not attributes.get("alt"):
            self.bare.append(attributes.get("src", "?"))


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection for many files

    def log_message(self, *_):
        pass


class Files(unittest.TestCase):
    """What needs no browser."""

    @classmethod
    def setUpClass(cls):
        cls.pages = {p.name: Page(p) for p in sorted(SITE.glob("*.html"))}
        cls.stories = [story for chapter in chapters() for story in stories(chapter)]

    def test_there_are_pages(self):
        for name in ("index", "techniques", "timings", "handbook", "notebook", "workshop"):
            self.assertIn(f"{name}.html", self.pages)
        for path in [*texts("docs"), *texts("docs/notebook", "**/*.md"), *(path for path in NAMES if (ROOT / path).exists())]:
            self.assertIn(f"{text_page(path)}.html", self.pages, path)

    def test_a_stage_leads_to_the_page_that_tells_its_story(self):
        for story in self.stories:
            for path in story.stages:
                links = self.pages[f"{code_page(path)}.html"].links
                self.assertIn(f"{story.name}.html", [link.partition("#")[0] for link in links], path)
                self.assertIn(f"{code_page(path)}.html", self.pages[f"{story.name}.html"].links, path)

    def test_a_chapter_leads_to_its_branches(self):
        for chapter in chapters():
            own, *branches = stories(chapter)
            for branch in branches:
                self.assertIn(f"{branch.name}.html", self.pages[f"{own.name}.html"].links)
                self.assertIn(f"{own.name}.html", self.pages[f"{branch.name}.html"].links)

    def test_no_entity_is_left_as_text(self):
        literal = re.compile(r".{0,30}&amp;(?:#\d+|lt|gt|amp|quot|nbsp|zwj|[lr]arr);|.{0,30}&lt;/?tt&gt;")
        found = [(p.name, hit[0]) for p in SITE.glob("*.html") if (hit := literal.search(p.read_text(encoding="utf-8")))]
        self.assertEqual(found, [])

    def test_no_link_is_broken(self):
        broken = []
        for name, page in self.pages.items():
            for link in page.links:
                if link.startswith(("http:", "https:", "javascript:", "mailto:", "data:")):
                    continue
                path, anchor = urldefrag(unquote(link))
                target = path.partition("?")[0] or name
                if not (SITE / target).is_file():
                    broken.append(f"{name}: {link}")
                elif anchor and target in self.pages and anchor not in self.pages[target].ids:
                    broken.append(f"{name}: {link}")
        self.assertEqual(broken, [])

    def test_contents_of_a_page_are_listed(self):
        for name in [*(n for n in self.pages if re.fullmatch(r"chapter_\d+\.html", n)), "techniques.html"]:
            self.assertGreater(sum(link.startswith("#") for link in self.pages[name].links), 4, name)

    def test_images_have_alternatives(self):
        self.assertEqual([f"{name}: {bare}" for name, page in self.pages.items() for bare in page.bare], [])

    def test_no_formula_is_left_as_source(self):
        fence = [p.name for p in SITE.glob("*.html") if "```" in p.read_text(encoding="utf-8")]
        self.assertEqual(fence, [])


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
        Thread(target=cls.server.serve_forever, daemon=True).start()
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.chrome = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        cls.names = [p.name for p in sorted(SITE.glob("*.html"))]
        # Pages from one template are visited by sample: stages, other sources, and Doxygen's own of a file or a type.
        cls.stages = [f"{code_page(step.stage.path)}.html" for step in steps(ROOT)]
        sources = [n for n in cls.names if n.startswith("code_") and n not in cls.stages]
        generated = [n for n in cls.names if re.match(r"(struct|class|union|namespace|dir_)|.*_8[a-z]+(_source)?\.html", n)]
        cls.written = sorted(set(cls.names) - set(cls.stages) - set(sources) - set(generated))
        cls.visited = cls.written + cls.stages[::4] + sources[::15] + generated[::40]

        cls.chinese = [f"{translation_page(name)}.html" for name in Book(SITE).translated_titles()]

    @classmethod
    def tearDownClass(cls):
        cls.chrome.quit()
        cls.server.shutdown()
        cls.server.server_close()

    def screen(self, metrics):
        self.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, name: str):
        self.chrome.get(f"http://127.0.0.1:{self.server.server_port}/{name}")
        if self.script("return typeof MathJax !== 'undefined'"):
            self.chrome.execute_async_script("MathJax.Hub.Queue(arguments[arguments.length - 1])")

    def script(self, text: str, *arguments):
        return self.chrome.execute_script(text, *arguments)

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.chrome.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def test_every_page_at_three_widths(self):
        """No error in the console, formulas typeset, pictures with words, nothing from elsewhere; nothing sideways, nothing
        cut off, and no line of text longer than 90 letters. One visit for all of it: to open a page takes longest."""
        formulas = pictures = 0
        self.errors()
        for name in self.visited:
            self.screen(DESK)
            self.open(name)
            with self.subTest(page=name):
                wrong, *found = self.script(LOOK)
                self.assertEqual(wrong, [])
                formulas, pictures = formulas + found[0], pictures + found[1]
                self.assertEqual(self.errors(), [])
                if not re.match(r"(struct|class|union|namespace)", name):
                    mean, longest = self.script(LINES)
                    self.assertLessEqual(mean, 90)
                    self.assertLessEqual(longest, 95)  # of narrow letters
            for metrics in (DESK, TABLET, TELEPHONE):
                with self.subTest(page=name, width=metrics["width"]):
                    self.screen(metrics)
                    self.assertEqual(self.chrome.execute_async_script(LAYOUT), [])
        self.assertGreater(formulas, 200)
        self.assertGreater(pictures, 10)

    def test_nothing_stays_before_the_text_of_a_telephone(self):
        """Neither a head nor a foot: with the page moved, all of the screen is text."""
        fixed = (
            "return [...document.querySelectorAll('body *')].filter(e => ['fixed', 'sticky'].includes(getComputedStyle(e).position)"
            " && e.checkVisibility() && e.getBoundingClientRect().height > 0).map(e => e.id + '.' + e.className)"
        )
        at = "return [2, innerHeight - 3].map(y => document.elementFromPoint(innerWidth / 2, y)?.closest('#doc-content') !== null)"
        self.screen(TELEPHONE)
        for name in ("chapter_01.html", self.stages[1], "techniques.html", "mma_8cuh.html"):
            self.open(name)
            self.script("scrollTo(0, 700)")
            self.assertEqual(self.script("return scrollY"), 700, name)
            self.assertEqual(self.script(at), [True, True], name)
            self.assertEqual(self.script(fixed), [], name)

    def test_the_menu_of_a_telephone_opens(self):
        self.screen(TELEPHONE)
        self.open("chapter_01.html")
        self.chrome.find_element(By.CLASS_NAME, "main-menu-btn").click()
        link = WebDriverWait(self.chrome, 5).until(lambda c: c.find_element(By.LINK_TEXT, "Contents"))
        WebDriverWait(self.chrome, 5).until(lambda _: link.is_displayed())

    def test_what_scrolls_says_so_at_its_edge(self):
        self.screen(TELEPHONE)
        self.open("chapter_01.html")
        box = (
            "const box = [...document.querySelectorAll('div.fragment, div.picture')].find(b => b.scrollWidth > b.clientWidth + 50);"
        )
        marks = box + "return [box.matches('.more-left'), box.matches('.more-right'), getComputedStyle(box).maskImage !== 'none']"
        self.assertEqual(self.script(marks), [False, True, True])
        for left, expected in (("20", [True, True, True]), ("box.scrollWidth", [True, False, True])):
            self.script(f"{box} box.scrollLeft = {left}")
            WebDriverWait(self.chrome, 5).until(lambda _: self.script(marks) == expected)

    def test_the_tree_lists_pages_and_shows_where_one_is(self):
        """One entry for the timings, no section of a page, and the page at hand is marked."""
        self.screen(DESK)
        for name in ("chapter_02.html", self.stages[-1], "measured.html"):
            self.open(name)
            marked = "return document.querySelector('#nav-tree .selected .label a')?.getAttribute('href')"
            WebDriverWait(self.chrome, 10).until(lambda _: self.script(marked) == name)
            entries = self.script("return [...document.querySelectorAll('#nav-tree .label a[href]')].map(a => [a.innerText, a.getAttribute('href')])")
            sections = [link for _, link in entries if "#" in link]
            self.assertEqual(sections, [])
            self.assertEqual([text for text, _ in entries if text.startswith("Timings")], ["Timings"])
            for text in ("Notebook", "Index of techniques"):
                self.assertIn(text, [text for text, _ in entries])

    def test_the_sections_of_a_page_unfold_on_a_telephone(self):
        self.screen(TELEPHONE)
        self.open("chapter_01.html")
        shown = "return document.querySelector('.toc ul').checkVisibility()"
        self.assertFalse(self.script(shown))
        self.chrome.find_element(By.CSS_SELECTOR, ".toc h3").click()
        self.assertTrue(self.script(shown))

    def test_search_finds_double_buffering(self):
        for metrics in (TELEPHONE, DESK):
            self.screen(metrics)
            self.open("index.html")
            field = self.chrome.find_element(By.ID, "book-search")
            field.click()
            field.send_keys("double buffering")
            links = WebDriverWait(self.chrome, 10).until(lambda c: c.find_elements(By.CSS_SELECTOR, "#book-results a"))
            box = links[0].rect
            at = "return document.elementFromPoint(arguments[0], arguments[1])?.closest('#book-results') !== null"
            self.assertTrue(self.script(at, box["x"] + 10, box["y"] + 5))
        addresses = [link.get_attribute("href") for link in links]
        self.assertTrue(any("techniques.html#techniques_double_buffering" in a for a in addresses), addresses)
        self.assertTrue(any("/code_" in a for a in addresses), addresses)
        self.assertTrue(all("uffering" in link.text.lower() for link in links[:3]))
        links[0].click()
        self.assertIn("uffering", self.chrome.find_element(By.CSS_SELECTOR, ".contents").text)

    def test_search_says_when_there_is_nothing(self):
        self.open("index.html")
        field = self.chrome.find_element(By.ID, "book-search")
        field.click()
        field.send_keys("no such words anywhere")
        box = self.chrome.find_element(By.ID, "book-results")
        WebDriverWait(self.chrome, 10).until(lambda _: "Nothing found" in box.text)

    # ---- Chinese pages ----

    def test_there_is_a_font_for_chinese(self):
        """Without one the widths of the other tests would be those of boxes."""
        if shutil.which("fc-match"):
            found = subprocess.run(["fc-match", "sans-serif:lang=zh-cn"], capture_output=True, text=True, check=True).stdout
            self.assertIn("CJK", found, "install fonts-noto-cjk")

    def test_a_chinese_page_says_so_in_its_head(self):
        for name in self.chinese:
            text = (SITE / name).read_text(encoding="utf-8")
            self.assertIn('<html lang="zh-CN" ', text, name)
            self.assertIn(f'<a href="{name.replace("_zh", "")}" lang="en">English</a>', text, name)
            self.assertIn(f'<a href="{name}" lang="zh-CN">中文</a>', (SITE / name.replace("_zh", "")).read_text(encoding="utf-8"), name)
        for name in (self.stages[0], "techniques.html"):
            text = (SITE / name).read_text(encoding="utf-8")
            self.assertIn('<html lang="en" ', text, name)
            self.assertIn('<i lang="zh-CN" title="这一页只有英文">中文</i> / <b>English</b>', text.replace('<b lang="en">', "<b>"), name)

    def switch(self, language: str):
        self.chrome.find_element(By.CSS_SELECTOR, "#book-language").find_element(By.LINK_TEXT, language).click()

    def place(self) -> str:
        return self.script("return location.pathname.slice(1) + location.hash")

    def test_the_switch_stays_on_the_page(self):
        for metrics in (DESK, TELEPHONE):
            self.screen(metrics)
            for name in self.chinese:
                self.open(name)
                self.switch("English")
                self.assertEqual(self.place(), name.replace("_zh", ""))
                self.switch("中文")
                self.assertEqual(self.place(), name)

    def test_the_switch_stays_in_the_section(self):
        """On a desk, where it is always there."""
        self.screen(DESK)
        for name in self.chinese:
            english, page = name.replace("_zh", ""), name.removesuffix(".html")
            self.open(name)
            ids = set(Page(SITE / english).ids)
            anchors = self.script("return [...document.querySelectorAll('.contents .anchor[id]')].map(a => a.id)")
            section = [a for a in anchors if a.replace(f"{page}_", f"{page.removesuffix('_zh')}_", 1) in ids][2]
            at = "document.getElementById(arguments[0]).scrollIntoView(); return bookSection()"
            WebDriverWait(self.chrome, 10).until(lambda _, section=section: self.script(at, section) == section)
            self.switch("English")
            self.assertEqual(self.place(), f"{english}#{section.replace('_zh_', '_', 1)}")

    def test_who_reads_chinese_is_led_to_chinese_pages(self):
        if "index_zh.html" not in self.chinese:
            self.skipTest("there is no Chinese front page")
        self.screen(DESK)
        shown = "return [...document.querySelectorAll('#nav-tree .label a[href]')].map(a => [a.innerText, a.getAttribute('href')])"
        self.open("index_zh.html")
        self.open(self.stages[0])  # in English only
        WebDriverWait(self.chrome, 10).until(lambda _: any(link == "index_zh.html" for _, link in self.script(shown)))
        links = [link for _, link in self.script(shown)]
        for name in self.chinese:
            if re.match(r"index|chapter", name):
                self.assertIn(name, links)
                self.assertNotIn(name.replace("_zh", ""), links)
        for name in [n for n in self.chinese if n.startswith("chapter")]:
            self.open(name)
            marked = "return document.querySelector('#nav-tree .selected .label a')?.getAttribute('href')"
            WebDriverWait(self.chrome, 10).until(lambda _, name=name: self.script(marked) == name)
        self.open("index.html")
        self.open(self.stages[0])
        WebDriverWait(self.chrome, 10).until(lambda _: any(link == "index.html" for _, link in self.script(shown)))
        self.assertEqual([link for _, link in self.script(shown) if link.endswith("_zh.html")], [])

    def search(self, words: str) -> list:
        # Each index that arrives, and there are two on a Chinese page, makes the list of results anew.
        self.script("window.indexes ??= (document.addEventListener('book-index', () => ++window.indexes), 0)")
        field = self.chrome.find_element(By.ID, "book-search")
        field.click()
        field.clear()
        all_are_there = "return window.indexes === document.querySelectorAll('script[src^=search-index]').length"
        WebDriverWait(self.chrome, 10).until(lambda _: self.script(all_are_there))
        field.send_keys(words)
        return WebDriverWait(self.chrome, 10).until(lambda c: c.find_elements(By.CSS_SELECTOR, "#book-results a"))

    def test_search_finds_chinese_words(self):
        if "chapter_02_zh.html" not in self.chinese:
            self.skipTest("there is no chapter 02 in Chinese")
        self.screen(DESK)
        self.open("chapter_02_zh.html")
        for words in ("张量核", "共享内存 张量核", "张量核的共享内存"):  # with spaces and without, and what nobody wrote in one
            links = self.search(words)
            self.assertIn("_zh.html", links[0].get_attribute("href"), words)
        self.assertIn("张量核", self.search("张量核")[0].text)
        found = self.script("return ['张量核的共享内存', '共享内存存储体', 'mma_m16n8k16 和寄存器溢出', '核', 'double buffering'].map(bookWords)")
        self.assertEqual([found[0], found[3], found[4]], [["张量核", "共享", "内存"], ["核"], ["double", "buffering"]])
        self.assertEqual(("存储" in found[1], found[2][0]), (True, "mma_m16n8k16"))
        addresses = [link.get_attribute("href") for link in self.search("double buffering")]
        self.assertTrue(any("techniques.html" in a for a in addresses), addresses)  # a page that is not translated
        translated = [name.replace("_zh", "") for name in self.chinese]
        self.assertEqual([a for a in addresses if a.rpartition("/")[2].partition("#")[0] in translated], [])
        self.search("张量核")[0].click()
        self.assertIn("张量核", self.chrome.find_element(By.CSS_SELECTOR, ".contents").text)
        self.open("index.html")
        field = self.chrome.find_element(By.ID, "book-search")
        field.click()
        field.send_keys("张量核")
        box = self.chrome.find_element(By.ID, "book-results")
        WebDriverWait(self.chrome, 10).until(lambda _: box.text != "")
        self.assertNotIn("_zh.html", box.get_attribute("innerHTML"))

    def test_no_chinese_line_begins_with_a_mark_that_ends_something(self):
        lines = (
            "const wrong = []; for (const p of document.querySelectorAll('.textblock p')) {"
            " const walker = document.createTreeWalker(p, NodeFilter.SHOW_TEXT); const { left } = p.getBoundingClientRect();"
            " for (let node; (node = walker.nextNode());) for (let i = 0; i < node.data.length; ++i) {"
            "  const range = document.createRange(); range.setStart(node, i); range.setEnd(node, i + 1);"
            "  const box = range.getClientRects()[0]; if (!box || !box.width) continue;"
            "  if (box.left < left + 2 && '，。：；、？！”）》'.includes(node.data[i]))"
            "   wrong.push(node.data.slice(Math.max(0, i - 10), i + 5)); } } return wrong;"
        )
        for name in self.chinese:
            for metrics in (DESK, TELEPHONE):
                self.screen(metrics)
                self.open(name)
                self.assertEqual(self.script(lines), [], name)

    def test_light_and_dark(self):
        self.screen(DESK)
        self.open("chapter_01.html")
        colours = "return [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector('.pic text')).fill]"
        before = self.script(colours)
        self.chrome.find_element(By.TAG_NAME, "doxygen-awesome-dark-mode-toggle").click()
        after = self.script(colours)
        self.assertNotEqual(before[0], after[0])
        self.assertNotEqual(before[1], after[1])
        self.assertNotEqual(after[0], after[1])

    def test_a_stage_shows_what_it_changes(self):
        """Every stage that grows out of another one shows a diff, with colours of its own in light and dark."""
        pages = [n for n in self.names if '<details class="changes"' in (SITE / n).read_text(encoding="utf-8")]
        found = steps(ROOT)
        grown = [step for step in found if step.code]
        self.assertEqual(len(pages), len(grown))
        for step in found:
            text = (SITE / f"{code_page(step.stage.path)}.html").read_text(encoding="utf-8")
            self.assertIn(f"{step.new} line{'s' * (step.new != 1)} of new reading", text, step.stage.path)
        colours = (
            "return ['.same', '.removed', '.added'].map(kind => {"
            " const line = document.querySelector('details.changes ' + kind);"
            " return line && getComputedStyle(line).backgroundColor + getComputedStyle(line).color; })"
        )
        self.open(pages[0])
        light = [c for c in self.script(colours) if c]
        self.script("document.documentElement.classList.toggle('dark-mode')")
        dark = [c for c in self.script(colours) if c]
        self.assertEqual(len(set(light + dark)), len(light + dark))

    def test_next_leads_through_the_chapters(self):
        self.open("index.html")
        seen = []
        while links := self.chrome.find_elements(By.CSS_SELECTOR, ".neighbours a.next"):
            self.open(links[-1].get_attribute("href").rpartition("/")[2])
            seen.append(self.script("return location.pathname"))
            self.assertEqual(len(seen), len(set(seen)))
        chapters = [f"/{n}" for n in self.names if re.fullmatch(r"chapter_\d+\.html", n)]
        self.assertEqual([s for s in seen if s in chapters], chapters)

    def test_next_leads_through_the_stages(self):
        """From the first of each story to its last; a page's own links tell, without a browser."""
        following = re.compile(r'<a href="([^"#]+)" class="next"|<a class="next" href="([^"#]+)"')
        for chapter in chapters():
            for story in stories(chapter):
                pages = [f"{code_page(path)}.html" for path in story.stages]
                for page, expected in zip(pages, pages[1:]):
                    match = following.search((SITE / page).read_text(encoding="utf-8"))
                    self.assertEqual(match and (match[1] or match[2]), expected, page)


if __name__ == "__main__":
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "index.html").is_file():
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    SITE = Path(sys.argv.pop(1)).resolve()
    unittest.main()
