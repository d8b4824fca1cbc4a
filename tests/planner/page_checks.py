"""What is wrong with a page, as a browser sees it? Scripts that return what they find."""

from __future__ import annotations

OVERLAPS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.textContent.trim() || node.parentElement.closest("script, noscript, option")) continue;
    if (!node.parentElement.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const holder = node.parentElement.closest(".scroll");
    const seen = holder ? holder.getBoundingClientRect() : { left: -1e9, right: 1e9, top: -1e9, bottom: 1e9 };
    for (const box of range.getClientRects()) {
      const left = Math.max(box.left, seen.left), right = Math.min(box.right, seen.right);
      const top = Math.max(box.top, seen.top), bottom = Math.min(box.bottom, seen.bottom);
      if (right > left && bottom > top) found.push({ text: node.textContent.trim(), node, left, right, top, bottom });
    }
  }
  const pairs = [];
  for (let i = 0; i < found.length; i += 1) {
    for (let j = i + 1; j < found.length; j += 1) {
      const [one, other] = [found[i], found[j]];
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (one.node !== other.node && across > 1 && down > 4) pairs.push(`${one.text} | ${other.text}`);
    }
  }
  return pairs;
}"""
"""Texts that overlap; the leading of adjacent lines may touch."""
SCROLLS = """() => [...document.querySelectorAll(".scroll")]
  .filter((element) => element.scrollWidth > element.clientWidth + 1)
  .map((element) => element.getAttribute("aria-label"))"""
"""Tables that have to be scrolled sideways."""
WIDE_TABLES = """() => [...document.querySelectorAll("table")]
  .filter((table) => table.getBoundingClientRect().right > innerWidth + 1)
  .map((table) => table.caption.textContent)"""
"""Tables wider than the paper."""
TEXT_ON_MARKS = """() => {
  const found = [];
  for (const picture of document.querySelectorAll(".picture")) {
    const marks = [...picture.querySelectorAll(".dot, .bin, .reach, .part, .flip, .limit, .field .mark")];
    const boxes = marks.map((mark) => mark.getBoundingClientRect());
    for (const text of picture.querySelectorAll(".axis span, .ruler span, .row-label span, .mark-row span, .row-note")) {
      const one = text.getBoundingClientRect();
      for (const other of boxes) {
        const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (across > 1 && down > 2) found.push(`${picture.parentElement.id}: ${text.textContent}`);
      }
    }
  }
  return found;
}"""
"""Labels that cover bars, dots or lines of their picture."""
MISPLACED = """() => [...document.querySelectorAll(".axis span")].filter((label) => {
  const axis = label.parentElement.getBoundingClientRect(), box = label.getBoundingClientRect();
  return Math.abs((box.left + box.right) / 2 - axis.left - parseFloat(label.style.left) / 100 * axis.width) > 1;
}).map((label) => label.textContent)"""
"""Axis labels that are not centred below their place on the axis."""
CUT_OFF = """() => [...document.querySelectorAll("body *")].filter((element) => {
  if (element.closest(".scroll, pre, .skip, script, style") || !element.checkVisibility()) return false;
  const box = element.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 1 || box.left < -1);
}).map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 40)}`)"""
"""Elements that extend beyond the window, except tables that scroll by themselves."""
CONTRASTS = """() => {
  const style = getComputedStyle(document.documentElement);
  const light = (name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    const parts = [0, 2, 4].map((start) => parseInt(hex.slice(start, start + 2), 16) / 255);
    const linear = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ratio = (one, other) => (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  return ["--ink", "--soft", "--accent"].flatMap((ink) =>
    ["--paper", "--raised"].map((paper) => ratio(light(ink), light(paper))));
}"""
"""Contrast of every text colour with its background, as defined by WCAG 2."""
