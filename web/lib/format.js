// Times, numbers and ids as people read them.

import { h } from "./dom.js";
import { icon } from "./icons.js";

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const exact = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export function toDate(at) {
  if (at instanceof Date) return at;
  if (typeof at === "number") return new Date(at > 1e14 ? at / 1000 : at);
  return new Date(at);
}

export const num = (n) => (n === null || n === undefined ? "–" : number.format(n));

// Three significant digits: 940 ms, 1.24 s, 12.4 s, 2 min 5 s.
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1) return ms === 0 ? "0 ms" : `${ms.toPrecision(2)} ms`;
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 59.95) return `${Number(s.toPrecision(3))} s`;
  if (s < 3600) return two(s, 60, "min", "s");
  if (s < 86400) return two(s / 60, 60, "h", "min");
  return two(s / 3600, 24, "d", "h");
}

function two(value, step, big, small) {
  const all = Math.round(value);
  const rest = all % step;
  return rest ? `${Math.floor(all / step)} ${big} ${rest} ${small}` : `${Math.floor(all / step)} ${big}`;
}

export function relative(at) {
  const ms = Date.now() - toDate(at).getTime();
  if (Number.isNaN(ms)) return "–";
  const away = Math.abs(ms);
  const word = (text) => (ms >= 0 ? `${text} ago` : `in ${text}`);
  if (away < 2_000) return "now";
  if (away < 60_000) return word(`${Math.round(away / 1000)} s`);
  if (away < 3_600_000) return word(`${Math.round(away / 60_000)} min`);
  if (away < 86_400_000) return word(`${Math.round(away / 3_600_000)} h`);
  return word(`${Math.round(away / 86_400_000)} d`);
}

// The time that a person wrote, in the viewer's zone: "15:02", "15:02:30", "2026-02-18 15:02". A time of day without a date is that
// of `near`. Null if the text is no time.
export function moment(text, near = new Date()) {
  const found = /^\s*(?:(\d{4})-(\d{1,2})-(\d{1,2})[ T]+)?(\d{1,2}):(\d{2})(?::(\d{2}))?\s*$/.exec(text);
  if (!found) return null;
  const [, year, month, day, hour, minute, second = "0"] = found;
  if (hour > 23 || minute > 59 || second > 59) return null;
  const date = year ? new Date(Number(year), Number(month) - 1, Number(day)) : new Date(toDate(near));
  if (year && date.getDate() !== Number(day)) return null;
  date.setHours(Number(hour), Number(minute), Number(second), 0);
  return date;
}

export const exactTime = (at) => exact.format(toDate(at));
export const clockTime = (at) => clock.format(toDate(at));

const clocks = new Set();
let ticking = 0;
function tick() {
  for (const ref of clocks) {
    const el = ref.deref();
    if (!el) clocks.delete(ref);
    else if (el.isConnected) {
      const text = relative(el.$at);
      if (el.textContent !== text) el.textContent = text;
    }
  }
}

// A time that keeps itself right; the exact one on hover and focus.
export function ago(at) {
  if (at === null || at === undefined || at === "") return h("span.dim", "–");
  const date = toDate(at);
  const el = h("time", relative(date));
  if (!Number.isNaN(date.getTime())) {
    el.dateTime = date.toISOString();
    el.title = exact.format(date);
  }
  el.$at = date;
  clocks.add(new WeakRef(el));
  if (!ticking) ticking = setInterval(() => document.hidden || tick(), 5_000);
  return el;
}

export function bytes(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at += 1;
  }
  return `${at ? Number(n.toPrecision(3)) : n} ${units[at]}`;
}

export function money(usd) {
  if (!usd) return "$0";
  return usd < 0.01 ? `$${Number(usd.toPrecision(2))}` : `$${usd.toFixed(2)}`;
}

export const percent = (share) => (Number.isFinite(share) ? `${Number((share * 100).toPrecision(3))} %` : "–");

// A number with a dimmed unit. `value` is a text such as "1.24 s", or a number with its unit.
export function unit(value, name) {
  const [shown, rest] = name === undefined ? String(value).split(/ (.*)/) : [num(value), name];
  return h("span.tabular", shown, rest ? h("span.unit", rest) : null);
}

export const last6 = (id) => {
  const text = String(id ?? "");
  const at = text.indexOf("_");
  return at > 0 && text.length > 12 ? `${text.slice(0, at + 1)}…${text.slice(-6)}` : text;
};

// An id: its last six characters, all of it on hover, and a button that copies it.
export function shortId(id, href) {
  if (!id) return h("span.dim", "–");
  const copy = h("button", { type: "button", aria: { label: `Copy ${id}` }, title: "Copy", on: {
    click: (event) => {
      event.stopPropagation();
      navigator.clipboard?.writeText(String(id));
      copy.replaceChildren(icon("check"));
      setTimeout(() => copy.replaceChildren(icon("copy")), 1_200);
    },
  } }, icon("copy"));
  const text = href ? h("a", { href, title: id }, last6(id)) : h("span", { title: id }, last6(id));
  return h("span.id", text, copy);
}

export const plural = (n, one, many = `${one}s`) => `${num(n)} ${n === 1 ? one : many}`;

/** The text with every character shown that cannot be seen or that reorders others, so that it does not look like another text. */
export const visible = (text) => text.replace(/[\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu, (c) => `<U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
