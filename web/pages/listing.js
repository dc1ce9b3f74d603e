// What the pages with a list share: a table at the left, the selected row at the right, and the states of its data: loading,
// empty, broken, stale.

import { clear, h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { broken, skeleton } from "../lib/states.js";
import { table } from "../lib/table.js";

/** A skeleton is shown only if the data take longer than this. */
const SKELETON_AFTER_MS = 200;

/**
 * Builds the page. `load()` returns { rows, total, more }, `detail(row)` returns nodes, `table` is the description of the table,
 * `tools` are nodes above it, `on` and `everyMs` say when it is read again. Returns { reload, rows, selected }.
 */
export function listPage(root, ctx, { load, detail, table: described, tools = [], on = ["status"], everyMs = 10000, pick }) {
  const notice = h("div.list-notice", { aria: { live: "polite" } });
  const place = h("div.list-place");
  const side = h("aside.list-detail", { aria: { label: pick || "Details" } });
  const split = h("div.split", {}, h("div.stack", {}, notice, place), side);
  // A button or two stand beside the filter; more have a line of their own.
  const isBeside = tools.length <= 2;
  root.append(h("div.stack", {}, tools.length && !isBeside ? h("div.toolbar", {}, ...tools) : null, split));

  const keyOf = described.key;
  let rows = [];
  let shown = null;
  let shownKey = null;
  let isLoaded = false;
  let generation = 0;
  const columns = [...described.columns];
  // A filter whose values are not known beforehand completes those of the rows.
  const present = (of) => () => [...new Set(rows.flatMap(of).filter(Boolean))].sort();
  const filterKeys = Object.fromEntries(Object.entries(described.filterKeys || {}).map(([name, one]) => [name, one.kind || (one.values && one.values.length) ? one : { ...one, values: present(one.of) }]));
  const list = table({ ...described, toolbar: [...(described.toolbar ?? []), ...(isBeside ? tools : [])], filterKeys, columns, ctx, onOpen: (row) => { ctx.setQuery({ sel: String(keyOf(row)) }); show(true); } });

  function show(moves) {
    const sel = ctx.route.query.sel;
    const row = rows.find((one) => String(keyOf(one)) === sel);
    if (isLoaded) list.open(row ? keyOf(row) : null);
    const isGone = Boolean(sel) && isLoaded && !row;
    fit(Boolean(row) || isGone);
    if (!row) {
      shown = null;
      shownKey = null;
      replace(side, isGone ? [closeButton(), h("p.dim.list-pick", {}, "This one is not in the list any more.")] : []);
      return;
    }
    // A detail that has not changed stays as it is, so that nothing that a person types into it is lost.
    const text = JSON.stringify(row);
    if (text === shown && sel === shownKey) return;
    if (sel === shownKey && side.contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
    shown = text;
    shownKey = sel;
    replace(side, closeButton(), ...[detail(row)].flat());
    if (moves && matchMedia("(max-width: 720px)").matches) side.scrollIntoView({ block: "start" });
  }

  const closeButton = () => h("button.iconbtn.detail-close", { type: "button", title: "Close", aria: { label: "Close details" }, on: { click: () => { ctx.setQuery({ sel: null }); show(); } } }, icon("close"));

  /** Beside the details there is place for the columns that matter only. */
  function fit(isSplit) {
    if (split.classList.contains("has-selection") === isSplit) return;
    split.classList.toggle("has-selection", isSplit);
    columns.splice(0, columns.length, ...described.columns.filter((column) => !isSplit || !column.hideNarrow));
    if (isLoaded) list.redraw();
  }

  async function reload() {
    // A list behind another tab is read when its tab is chosen.
    if (root.hidden) return;
    const mine = ++generation;
    const slow = isLoaded ? null : setTimeout(() => { if (mine === generation && !isLoaded) replace(place, skeleton(8)); }, SKELETON_AFTER_MS);
    try {
      const found = await load();
      if (mine !== generation || ctx.signal.aborted) return;
      rows = found.rows;
      if (!isLoaded) { isLoaded = true; replace(place, list.el); }
      clear(notice);
      place.classList.remove("stale");
      list.setRows(rows, { total: found.total ?? rows.length, more: found.more });
      show();
    } catch (error) {
      if (ctx.signal.aborted || mine !== generation) return;
      if (isLoaded) {
        place.classList.add("stale");
        replace(notice, broken(error, reload));
      } else {
        replace(place, broken(error, reload));
      }
    } finally {
      clearTimeout(slow);
    }
  }

  ctx.listen(document, "keydown", (event) => {
    if (event.key === "Escape" && ctx.route.query.sel && !event.defaultPrevented && !document.querySelector("dialog[open], .menu")) { ctx.setQuery({ sel: null }); show(); }
  });
  show();
  ctx.route.subscribe(() => show());
  ctx.refresh(reload, { on, everyMs });
  return { reload, rows: () => rows, list };
}

/** Facts as a list of terms. Entries without a value are left out. */
export function facts(entries) {
  const parts = entries.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return h("dl.kv", {}, ...parts.flatMap(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

/** A heading of a detail with a line below. */
export function heading(title, ...below) {
  return h("div.detail-head", {}, h("h2", {}, title), ...below);
}

/** A button. */
export function button(label, run, kind = "") {
  return h("button.btn" + (kind ? "." + kind : ""), { type: "button", on: { click: run } }, label);
}

/** A row of tabs whose choice is in the URL. */
export function tabs(ctx, name, choices, label, changed) {
  const now = () => ctx.route.query[name] || choices[0][0];
  const all = choices.map(([id, text]) => {
    const node = h("button.tab", { type: "button", role: "tab", on: { click: () => { ctx.setQuery({ [name]: id === choices[0][0] ? null : id, sel: null, filter: null, order: null }); mark(); changed(); } } }, text);
    node.dataset.id = id;
    return node;
  });
  const mark = () => all.forEach((node) => { const is = node.dataset.id === now(); node.setAttribute("aria-selected", String(is)); node.tabIndex = is ? 0 : -1; });
  const el = h("div.tabs", { role: "tablist", aria: { label } }, ...all);
  el.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    next.click();
  });
  mark();
  ctx.route.subscribe(mark);
  return { el, now };
}

/** A new id for a request. Browsers offer randomUUID on https and localhost only. */
export const newId = () => (crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2) + Date.now());

/** Runs a skill on the caller's own data. Throws if its outcome is an error. */
export async function runSkill(ctx, skill, args) {
  const given = Object.fromEntries(Object.entries(args).filter(([, value]) => value !== undefined && value !== null && value !== ""));
  const result = await ctx.api.post("/run", { command: `${skill} ${JSON.stringify(given)}`, key: newId() });
  if (!["success", "partial", "pending"].includes(result.status)) {
    const error = new Error(result.text || result.error || result.status);
    error.detail = result.text;
    throw error;
  }
  return result;
}

export const CLASSES = ["realtime", "high", "normal", "low", "background"];

/** Seconds since a time of the API. */
export const ageS = (at) => (Date.now() - Date.parse(at)) / 1000;
