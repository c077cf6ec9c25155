// Elements from plain values. Texts become text nodes, so no content is ever read as HTML.
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (name === "checked") element.checked = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// What a control is called, to find it again in a new drawing of the same content.
const nameOf = (node) => ["id", "name", "aria-label", "href"].map((each) => node.getAttribute(each)).filter(Boolean).join("|") || node.textContent;
export const alike = (element, node) => [...element.querySelectorAll(node.localName)].filter((each) => nameOf(each) === nameOf(node));

// New content. The focus stays on the control of the same name, and tables stay scrolled, so pages can be drawn again while they are used.
export function replace(element, ...children) {
  const active = document.activeElement;
  const focused = active && active !== element && element.contains(active) ? active : null;
  const place = focused ? alike(element, focused).indexOf(focused) : -1;
  const scrolled = [...element.querySelectorAll(".scroll")].filter((each) => each.scrollLeft).map((each) => [each, each.scrollLeft]);
  const regions = scrolled.map(([region, left]) => [region, alike(element, region).indexOf(region), left]);
  element.replaceChildren();
  add(element, children);
  for (const [region, index, left] of regions) { const found = alike(element, region)[index]; if (found) found.scrollLeft = left; }
  if (focused) alike(element, focused)[place]?.focus({ preventScroll: true });
  return element;
}

// A line for screen readers alone: what changed, instead of a whole table.
export function announcer() {
  const element = h("p", { class: "unseen", role: "status" });
  return { element, say: (text) => { if (element.textContent !== text) element.textContent = text; } };
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

// columns: {title, cell(row), number, class, sort}; cells are texts or nodes.
export function table(caption, columns, rows, empty = "Nothing here.") {
  if (!rows.length) return h("p", { class: "muted" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((column) =>
        h("th", { scope: "col", class: column.number ? "number" : null, "aria-sort": column.ariaSort },
          column.onsort ? h("button", { type: "button", onclick: column.onsort, "aria-label": column.title }, column.title, h("span", { "aria-hidden": "true" }, column.mark || "")) : column.title)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map((column) =>
        h("td", { class: [column.number ? "number" : "", column.class || ""].join(" ").trim() || null }, column.cell(row))))))));
}

export function link(path, text, attributes) {
  return h("a", { href: `#${path}`, ...attributes }, text);
}

// A number or a word with its label. `isNow`: it is about this moment, so it is unknown when the page cannot be refreshed.
export function card(label, value, kind, isNow) {
  return h("div", { class: "card" }, h("div", { class: "muted" }, label), h("div", { class: `number ${kind || ""}`, "data-now": isNow }, value));
}

export const part = encodeURIComponent;
