// Small charts as SVG, each with its numbers as text.

import { svg } from "./dom.js";
import { num } from "./format.js";

// A line over time. `values` may contain null for "nothing happened".
export function spark(values, { label, kind = "", height = 36, format = num } = {}) {
  const el = svg("svg.spark", { class: kind, viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", role: "img" });
  drawSpark(el, values, { label, height, format });
  return el;
}

export function drawSpark(el, values, { label = "", height = 36, format = num } = {}) {
  const known = values.map((v) => v ?? 0);
  const most = Math.max(1e-9, ...known);
  const x = (n) => (known.length > 1 ? (n / (known.length - 1)) * 100 : 0);
  const y = (v) => height - 2 - (v / most) * (height - 6);
  const points = known.map((v, n) => `${x(n).toFixed(2)} ${y(v).toFixed(2)}`);
  const line = `M${points.join("L")}`;
  el.setAttribute("aria-label", `${label}: most ${format(Math.max(0, ...known))}, last ${format(known.at(-1) ?? 0)}`);
  el.replaceChildren(svg("path.area", { d: `${line}L100 ${height}L0 ${height}Z` }), svg("path.line", { d: line }));
}

// Bars, one for each row: { label, value, kind }.
export function bars(rows, { width = 240, row = 20, format = num } = {}) {
  const most = Math.max(1e-9, ...rows.map((r) => r.value));
  const el = svg("svg", { viewBox: `0 0 ${width} ${rows.length * row}`, width: "100%", role: "img", "aria-label": rows.map((r) => `${r.label} ${format(r.value)}`).join(", ") });
  rows.forEach((r, n) => {
    el.append(svg("rect", { x: 0, y: n * row + 4, width: Math.max(1, (r.value / most) * width), height: row - 8, rx: 3, fill: `var(--${r.kind ?? "accent"}-line)` }));
  });
  return el;
}
