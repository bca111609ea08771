// The search of the book, the switch between light and dark, and marks at what is wider than its column.
//
// search-index.js holds [address, title, heading, text] of each section and of each name in the reference; it is loaded
// when somebody begins to type, and hands its list to bookIndex().
"use strict";

let bookSections = null;

function bookIndex(sections) {
  bookSections = sections.map(([address, title, heading, text]) => ({
    address, title, heading, text, lower: [title, heading, text].map((s) => s.toLowerCase()),
  }));
  document.dispatchEvent(new Event("book-index"));
}

// Sections that hold every word: the phrase as it stands counts most, titles and headings more than text.
function bookSearch(query) {
  const phrase = query.toLowerCase().trim();
  const words = phrase.split(/\s+/).filter((word) => word.length > 0);
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
  if (at < 0) at = text.indexOf(query.toLowerCase().trim().split(/\s+/)[0]);
  const begin = Math.max(0, at - 60);
  return (begin > 0 ? "… " : "") + section.text.slice(begin, begin + 180) + (section.text.length > begin + 180 ? " …" : "");
}

function bookShow(input, results) {
  results.replaceChildren();
  const query = input.value;
  results.hidden = query.trim().length < 2;
  if (results.hidden || bookSections === null) return;
  const found = bookSearch(query);
  if (found.length === 0) results.append("Nothing found.");
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
    const script = document.createElement("script");
    script.src = "search-index.js";
    document.head.append(script);
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
  heading.textContent = "On this page";
  heading.tabIndex = 0;
  heading.addEventListener("keydown", (event) => { if (event.key === "Enter") heading.click(); });
});

DoxygenAwesomeDarkModeToggle.init();
DoxygenAwesomeInteractiveToc.init();
