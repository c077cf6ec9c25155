import { h, svg } from "./dom.js";

// A line over the last hour, with the latest value; gaps stay gaps.
export function plot(title, times, values, unit) {
  const known = (values || []).filter((value) => value !== null);
  const latest = known.length ? known[known.length - 1] : null;
  const caption = h("figcaption", {}, h("strong", {}, title), h("span", { class: "muted" }, latest === null ? "no data yet" : unit(latest)));
  if (known.length < 2) return h("figure", { class: "plot" }, caption, h("p", { class: "muted" }, "The plot begins after two samples."));
  const top = Math.max(...known, 1e-9);
  const first = times[0], span = Math.max(times[times.length - 1] - first, 1);
  const x = (index) => (((times[index] - first) / span) * 1000).toFixed(1);
  const y = (value) => (96 - (value / top) * 92).toFixed(1);
  let line = "", area = "", open = false, last = 0;
  values.forEach((value, index) => {
    if (value === null) {
      if (open) area += `L${x(last)},96Z`;
      open = false;
      return;
    }
    line += `${open ? "L" : "M"}${x(index)},${y(value)}`;
    area += open ? `L${x(index)},${y(value)}` : `M${x(index)},96L${x(index)},${y(value)}`;
    open = true;
    last = index;
  });
  if (open) area += `L${x(last)},96Z`;
  const minutes = Math.max(1, Math.round(span / 60000));
  const text = `${title.textContent ?? title}: ${unit(latest)} now, at most ${unit(top)} in the last ${minutes} min`;
  const picture = svg("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": text },
    svg("path", { class: "area", d: area }), svg("path", { d: line }));
  return h("figure", { class: "plot" }, caption, picture, h("div", { class: "muted" }, `max ${unit(top)} · last ${minutes} min`));
}
