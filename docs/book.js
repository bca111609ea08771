// The search of the book and the switch between light and dark.
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

DoxygenAwesomeDarkModeToggle.init();
