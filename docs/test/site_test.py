#!/usr/bin/python3
"""The book in a browser: site_test.py SITE [unittest's options]. SITE is the folder that ./tutorial docs has filled.

Debian's Python, which has Debian's python3-selenium. Chromium reaches nothing but the site.
"""

from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
import re
import sys
from threading import Thread
import unittest
from urllib.parse import unquote, urldefrag

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

sys.path += [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "tools")]

from book.pages import code_page  # noqa: E402
from stages.reading import steps  # noqa: E402

SITE = Path()
TELEPHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
DESK = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}


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

    def test_there_are_pages(self):
        for name in ("index", "chapter_01", "chapter_06", "techniques", "timings", "emulator"):
            self.assertIn(f"{name}.html", self.pages)

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
        for name in ("chapter_01.html", "chapter_05.html", "techniques.html"):
            self.assertGreater(sum(link.startswith("#") for link in self.pages[name].links), 8, name)

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
        # Doxygen's own pages, of a file, a type or a folder, come from one template: of these, one in ten.
        generated = [n for n in cls.names if re.match(r"(struct|class|union|namespace|dir_)|.*_8[a-z]+(_source)?\.html", n)]
        cls.visited = sorted(set(cls.names) - set(generated)) + generated[::10]

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

    def test_every_page_on_a_telephone(self):
        """No error in the console, nothing sideways, formulas typeset, pictures with words, nothing from elsewhere.

        One visit for all of it: a page takes Chromium half a second. The diff of a stage is open and no wider than that.
        """
        widest = "return Math.max(...['html', 'body', '#doc-content'].map(s => document.querySelector(s)?.scrollWidth ?? 0))"
        self.screen(TELEPHONE)
        self.errors()
        formulas = pictures = 0
        for name in self.visited:
            self.open(name)
            with self.subTest(page=name):
                self.assertEqual(self.errors(), [])
                self.assertLessEqual(self.script(widest), TELEPHONE["width"])
                # Doxygen marks formulas on lines of their own; those within a line are \\( ... \\) in the text.
                displayed, found, set_ = self.script(
                    "const all = s => document.querySelectorAll(s).length;"
                    "return [all('.formulaDsp'), all('script[type=\"math/tex; mode=display\"]'), all('script[type^=\"math/tex\"]')]"
                )
                typeset = self.script("return document.querySelectorAll('.MathJax_SVG svg').length")
                self.assertEqual((displayed, set_), (found, typeset))
                lines = "return [...document.querySelectorAll('.number')].map(n => n.getClientRects().length)"
                self.assertLessEqual(set(self.script(lines)), {0, 1}, "a number on two lines")
                text = self.script("return document.querySelector('.contents, body').innerText")
                self.assertNotRegex(text, r"\\\(|\$`", "a formula that is not typeset")
                # What MathJax does not understand it typesets, too, as an error message.
                wrong = self.script(
                    "const bad = node => node && (node.type === 'merror' || (node.data ?? []).some(bad));"
                    "return (window.MathJax?.Hub.getAllJax() ?? []).filter(j => bad(j.root)).map(j => j.originalText)"
                )
                self.assertEqual(wrong, [])
                self.assertNotIn("\\begin{", text)
                formulas += set_
                bad = self.script(
                    "return [...document.querySelectorAll('svg.pic')].filter(s => !s.querySelector('title')?.textContent"
                    " || !s.querySelector('desc')?.textContent).length"
                )
                self.assertEqual(bad, 0)
                pictures += self.script("return document.querySelectorAll('div.picture svg.pic').length")
                elsewhere = self.script(
                    "return performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin))"
                )
                self.assertEqual([e for e in elsewhere if not e.startswith("data:")], [])
                if self.script("return document.querySelector('details.changes') !== null"):
                    self.assertTrue(self.script("return document.querySelector('details.changes pre').checkVisibility()"))
        self.assertGreater(formulas, 200)
        self.assertGreater(pictures, 30)

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
        self.assertTrue(any("6_lmha" in a for a in addresses), addresses)
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
        grown = [step for step in steps(Path(__file__).resolve().parents[2]) if step.code]
        self.assertEqual(len(pages), len(grown))
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
        stages = [s for s in steps(Path(__file__).resolve().parents[2]) if "/linear_attention/" in s.stage.path]
        pages = [code_page(s.stage.path) for s in stages[:4]]
        self.open(f"{pages[0]}.html")
        for page in pages[1:]:
            self.open(
                self.chrome.find_element(By.CSS_SELECTOR, ".neighbours a.next").get_attribute("href").rpartition("/")[2]
            )
            self.assertIn(page, self.script("return location.pathname"))


if __name__ == "__main__":
    if len(sys.argv) < 2 or not (Path(sys.argv[1]) / "index.html").is_file():
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    SITE = Path(sys.argv.pop(1)).resolve()
    unittest.main()
