// The languages and the search of the book, the switch between light and dark, and marks at what is wider than its column.
"use strict";

// ---- Languages ----
//
// languages.js holds the Chinese titles of the pages that are translated, by the names of the English pages. A section has
// the same id in both languages but for the page's name, which it begins with. Who reads Chinese is led to Chinese pages, on
// English pages too where there is no other.

const bookOnChinesePage = document.documentElement.lang.startsWith("zh");

// The name of this page in English.
function bookPage() {
  const name = location.pathname.split("/").pop().replace(/\.html$/, "") || "index";
  return bookOnChinesePage ? name.replace(/_zh$/, "") : name;
}

// The language of this page, or of the last one that is there in both; a browser may remember nothing.
function bookLanguage() {
  const here = bookPage() in bookTranslated ? (bookOnChinesePage ? "zh" : "en") : null;
  try {
    if (here !== null) localStorage.setItem("book-language", here);
    return localStorage.getItem("book-language");
  } catch {
    return here;
  }
}

const bookChinese = bookLanguage() === "zh";

// The address of a page, with its section, in Chinese; null if it is not translated.
function bookInChinese(address) {
  const [, page, hash] = address.match(/^(\w+)\.html(#.*)?$/) ?? [];
  if (!(page in bookTranslated)) return null;
  return `${page}_zh.html${(hash ?? "").replace(`#${page}_`, `#${page}_zh_`)}`;
}

// Leads the links below an element to Chinese pages; in the tree, these have their Chinese titles.
function bookLeadToChinese(element) {
  for (const link of element.querySelectorAll("a[href]")) {
    const address = link.getAttribute("href");
    const chinese = bookInChinese(address);
    if (chinese === null || link.closest("#book-language")) continue;
    link.setAttribute("href", chinese);
    if (link.closest("#nav-tree")) link.textContent = bookTranslated[address.replace(/\.html.*/, "")];
  }
}

const bookMenu = { "Contents": "目录", "All pages": "全部页面", "Reference": "参考" };

// Doxygen's menu.
function bookSayInChinese(menu) {
  for (const link of menu.querySelectorAll("a")) {
    for (const node of link.childNodes) {
      if (node.nodeType === Node.TEXT_NODE && node.data in bookMenu) node.data = bookMenu[node.data];
    }
  }
}

// The id of the section that is at the top of the screen.
function bookSection() {
  const anchors = [...document.querySelectorAll(".contents .anchor[id]")];
  return anchors.filter((anchor) => anchor.getBoundingClientRect().top < 120).pop()?.id;
}

document.addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll("#book-language a")) {
    link.addEventListener("click", () => {
      const page = bookPage();
      const [from, to] = bookOnChinesePage ? [`${page}_zh_`, `${page}_`] : [`${page}_`, `${page}_zh_`];
      const section = bookSection();
      link.hash = section?.startsWith(from) ? to + section.slice(from.length) : "";
    });
  }
  if (!bookChinese) return;
  bookLeadToChinese(document);
  for (const [name, change] of [["side-nav", bookLeadToChinese], ["main-nav", bookLeadToChinese], ["main-nav", bookSayInChinese]]) {
    const place = document.getElementById(name);
    if (place === null) continue;
    change(place);
    new MutationObserver(() => change(place)).observe(place, { childList: true, subtree: true }); // filled piece by piece
  }
});

// ---- Search ----
//
// search-index.js holds [address, title, heading, text] of each section and of each name in the reference, and
// search-index_zh.js of each section of the Chinese pages. They are loaded when somebody begins to type, and hand their lists
// to bookIndex(). In Chinese, English pages that are translated are left out.

let bookSections = null;

function bookIndex(sections) {
  const isShown = ([address]) => !bookChinese || bookInChinese(address) === null;
  bookSections = (bookSections ?? []).concat(sections.filter(isShown).map(([address, title, heading, text]) => ({
    address, title, heading, text, lower: [title, heading, text].map((s) => s.toLowerCase()),
  })));
  document.dispatchEvent(new Event("book-index"));
}

// The words of a phrase. Chinese has no spaces between them. The browser's dictionary does not know the words of the field
// (张量核), and gives them letter by letter: these are put together again. Single letters (of, and, is) say little.
function bookWords(phrase) {
  const words = phrase.split(/\s+/).filter((word) => word.length > 0);
  if (!/\p{Script=Han}/u.test(phrase) || !("Segmenter" in Intl)) return words;
  const pieces = [...new Intl.Segmenter("zh", { granularity: "word" }).segment(phrase)].map((piece) => piece.segment);
  const isLetter = (piece) => /^\p{Script=Han}$/u.test(piece) && !"的了和与是在".includes(piece);
  const joined = pieces.map((piece) => isLetter(piece) ? piece : piece.length > 1 ? `\n${piece}\n` : "\n").join("");
  const found = joined.split(/\s+/).filter((word) => word.length > 1);
  return found.length > 0 ? found : words;
}

// Sections that hold every word: the phrase as it stands counts most, titles and headings more than text.
function bookSearch(query) {
  const phrase = query.toLowerCase().trim();
  const words = bookWords(phrase);
  if (words.length === 0) return [];
  const found = [];
  for (const section of bookSections) {
    const [title, heading, text] = section.lower;
    if (!words.every((word) => title.includes(word) || heading.includes(word) || text.includes(word))) continue;
    let score = 0;
    if (text.includes(phrase)) score += 4;
    if (heading.includes(phrase)) score += 8;
    if (title.includes(phrase)) score += 6;
    if (heading === phrase || title === phrase) score += 10;
    for (const word of words) {
      score += heading.includes(word) + title.includes(word) + Math.min(3, text.split(word).length - 1) / 3;
    }
    found.push({ section, score });
  }
  return found.sort((a, b) => b.score - a.score).slice(0, 30).map((f) => f.section);
}

// Some words around the place where the query is found.
function bookExcerpt(section, query) {
  const text = section.lower[2];
  let at = text.indexOf(query.toLowerCase().trim());
  if (at < 0) at = text.indexOf(bookWords(query.toLowerCase().trim())[0]);
  const begin = Math.max(0, at - 60);
  return (begin > 0 ? "… " : "") + section.text.slice(begin, begin + 180) + (section.text.length > begin + 180 ? " …" : "");
}

function bookShow(input, results) {
  results.replaceChildren();
  const query = input.value;
  results.hidden = query.trim().length < 2;
  if (results.hidden || bookSections === null) return;
  const found = bookSearch(query);
  if (found.length === 0) results.append(bookOnChinesePage ? "没有找到。" : "Nothing found.");
  for (const section of found) {
    const link = document.createElement("a");
    link.href = section.address;
    const where = document.createElement("span");
    where.className = "where";
    where.textContent = section.heading ? `${section.title}: ${section.heading}` : section.title;
    const text = document.createElement("span");
    text.className = "text";
    text.textContent = bookExcerpt(section, query);
    link.append(where, text);
    results.append(link);
  }
}

document.addEventListener("DOMContentLoaded", () => {
  const input = document.getElementById("book-search");
  const results = document.createElement("div");
  results.id = "book-results";
  results.hidden = true;
  results.addEventListener("click", () => { results.hidden = true; });
  document.body.append(results);

  let asked = false;
  const load = () => {
    if (asked) return;
    asked = true;
    for (const name of bookChinese ? ["search-index_zh.js", "search-index.js"] : ["search-index.js"]) {
      const script = document.createElement("script");
      script.src = name;
      document.head.append(script);
    }
  };
  input.addEventListener("focus", load);
  input.addEventListener("input", () => bookShow(input, results));
  document.addEventListener("book-index", () => bookShow(input, results));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") results.hidden = true;
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      input.focus();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target !== input) results.hidden = true;
  });
});

// ---- Boxes that scroll sideways, the same as in book.css ----

const bookBoxes = "div.fragment, pre.fragment, div.memproto, div.picture, p.formulaDsp, table.markdownTable, " +
    "table.fieldtable, table.memberdecls, table.directory";

// Marks a box where there is more of it to the left or to the right; book.css lets that edge fade out.
function bookMark(box) {
  const hidden = box.scrollWidth - box.clientWidth;
  box.classList.toggle("more-left", hidden > 1 && box.scrollLeft > 1);
  box.classList.toggle("more-right", hidden > 1 && box.scrollLeft < hidden - 1);
}

window.addEventListener("load", () => {
  const boxes = [...document.querySelectorAll(bookBoxes)].filter((box) => box.closest(".contents"));
  const observer = new ResizeObserver((entries) => entries.forEach((entry) => bookMark(entry.target)));
  for (const box of boxes) {
    box.addEventListener("scroll", () => bookMark(box), { passive: true });
    observer.observe(box); // calls back at once, and whenever the box changes its size
  }
  window.MathJax?.Hub.Queue(() => boxes.forEach(bookMark));
});

// ---- The list of a page's sections, which a narrow screen shows when its heading is touched ----

window.addEventListener("load", () => {
  const heading = document.querySelector(".contents > .toc > h3");
  if (heading === null) return;
  heading.textContent = bookOnChinesePage ? "本页内容" : "On this page";
  heading.tabIndex = 0;
  heading.addEventListener("keydown", (event) => { if (event.key === "Enter") heading.click(); });
});

DoxygenAwesomeDarkModeToggle.init();
DoxygenAwesomeInteractiveToc.init();
