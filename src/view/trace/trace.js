"use strict";
// Search and keys. Everything else on the page works without it.
(() => {
  const flow = document.querySelector(".waterfall"), search = document.getElementById("search");
  if (!flow) return;
  const found = document.getElementById("found"), groups = [...flow.querySelectorAll(".many")];
  const steps = groups.flatMap(group => [...group.children]);
  const texts = new Map();
  let query = "", hits = [], at = -1, timer = 0;
  search.hidden = document.getElementById("keys").hidden = false;

  const textOf = step => {
    if (!texts.has(step)) texts.set(step, step.textContent.toLowerCase());
    return texts.get(step);
  };
  const mark = ranges => CSS.highlights && CSS.highlights.set("found", new Highlight(...ranges));

  const filter = () => {
    query = search.value.trim().toLowerCase();
    at = -1;
    hits = query ? steps.filter(step => textOf(step).includes(query)) : steps;
    const shown = new Set(hits);
    for (const group of groups) {
      const all = [...group.children], count = all.filter(step => shown.has(step)).length;
      group.hidden = !count;
      group.style.setProperty("--n", count);
      if (count) for (const step of all) step.hidden = !shown.has(step);
    }
    found.value = query ? `${hits.length} of ${steps.length}` : "";
    mark([]);
  };

  // Opens the parts of a step that contain the query, marks it there, and returns the first row that it opened.
  const reveal = step => {
    const walker = document.createTreeWalker(step, NodeFilter.SHOW_TEXT), ranges = [];
    let first = null;
    for (let node; (node = walker.nextNode()) && ranges.length < 1000; ) {
      const text = node.data.toLowerCase();
      for (let i = text.indexOf(query); i >= 0 && i + query.length <= node.length; i = text.indexOf(query, i + query.length)) {
        const range = new Range();
        range.setStart(node, i);
        range.setEnd(node, i + query.length);
        ranges.push(range);
        let inner = node.parentElement.closest("details");
        first ??= inner;
        if (node.parentElement.closest("summary")) inner = inner.parentElement.closest("details");
        for (; inner && flow.contains(inner); inner = inner.parentElement.closest("details")) inner.open = true;
      }
    }
    mark(ranges);
    return (first ?? step).querySelector("summary");
  };

  const next = by => {
    if (!query || !hits.length) return;
    at = (at + by + hits.length) % hits.length;
    const row = reveal(hits[at]);
    found.value = `${at + 1} of ${hits.length}`;
    row.scrollIntoView({ block: "center" });
    return row;
  };

  // The rows that can be seen, in order.
  const rows = document.createTreeWalker(flow, NodeFilter.SHOW_ELEMENT, node => {
    if (node.hidden) return NodeFilter.FILTER_REJECT;
    if (node.localName === "summary") return NodeFilter.FILTER_ACCEPT;
    const outer = node.parentElement;
    return outer.localName === "details" && !outer.open ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_SKIP;
  });

  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(filter, 120);
  });
  search.addEventListener("keydown", event => {
    if (event.key === "Enter") {
      clearTimeout(timer);
      if (search.value.trim().toLowerCase() !== query) filter();
      next(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      search.value = "";
      filter();
      search.blur();
    }
  });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === search) return;
    const row = event.target.closest?.("summary.row"), group = row?.parentElement;
    const move = to => to && (to.focus(), to.scrollIntoView({ block: "nearest" }));
    const moveBy = step => {
      if (!row) return move(step > 0 ? flow.querySelector(".step:not([hidden]) > summary") : null);
      rows.currentNode = row;
      move(step > 0 ? rows.nextNode() : rows.previousNode());
    };
    const keys = {
      "/": () => search.select(),
      n: () => move(next(1)),
      N: () => move(next(-1)),
      e: () => {
        const open = !steps.some(step => step.open);
        for (const step of steps) step.open = open;
      },
      ArrowDown: () => moveBy(1),
      ArrowUp: () => moveBy(-1),
      j: () => moveBy(1),
      k: () => moveBy(-1),
      ArrowRight: row && (() => (group.open = true)),
      ArrowLeft: row && (() => group.open ? (group.open = false) : move(group.parentElement.closest("details")?.querySelector("summary"))),
    };
    if (!keys[event.key] || (!row && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    keys[event.key]();
  });
})();
