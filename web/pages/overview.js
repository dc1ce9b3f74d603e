// Is it well, and what is it doing?

import { h, svg, replace, keyed, patchText } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { drawSpark } from "../lib/chart.js";
import { ago, clockTime, duration, money, num, percent, plural, shortId, unit } from "../lib/format.js";
import { mark, status, skeleton, empty } from "../lib/states.js";

export const CLASSES = ["realtime", "high", "normal", "low", "background"];
export const CLASS_WORD = { realtime: "Realtime", high: "High", normal: "Normal", low: "Low", background: "Background" };

const FIGURES = [
  { id: "turns", label: "Turns / min", of: (m) => m.turns, sum: (list) => num(list.at(-2)?.turns ?? 0), kind: "" },
  { id: "first", label: "First token, p95", of: (m) => m.first_token_p95_ms ?? null, sum: (list) => { const known = list.filter((m) => m.first_token_p95_ms !== undefined); return known.length ? unit(duration(known.at(-1).first_token_p95_ms)) : "–"; }, kind: "", format: duration },
  { id: "waiting", label: "Waiting now", of: (m) => m.waiting_max, sum: null, kind: "wait" },
  { id: "failures", label: "Failures, 1 h", of: (m) => m.failures, sum: (list) => num(list.reduce((n, m) => n + m.failures, 0)), kind: "bad" },
  { id: "tokens", label: "Tokens / s", of: (m) => (m.output_tokens ?? 0) / 60, sum: (list) => num(Math.round((list.at(-2)?.output_tokens ?? 0) / 6) / 10), kind: "" },
  { id: "restarts", label: "Restarts, 1 h", of: (m) => m.restarts, sum: (list) => num(list.reduce((n, m) => n + m.restarts, 0)), kind: "bad" },
];

export function mount(root, ctx) {
  ctx.title("Overview");
  const figures = FIGURES.map((figure) => {
    const value = h("div.figure-value.tabular", "–");
    const line = svg("svg.spark", { class: figure.kind, viewBox: "0 0 100 36", preserveAspectRatio: "none", role: "img", "aria-label": figure.label });
    const label = h("div.figure-label", figure.label);
    return { figure, value, line, label, el: h("div.panel.figure", label, value, line) };
  });
  const spent = h("div.figure-value.tabular", "–");
  const spentBar = h("div.spendbar", { role: "img", aria: { label: "No cap on a day" } }, h("i"));
  const spentNote = h("div.small.dim", "");
  const lanes = h("div.lanes");
  const gate = h("div.gatebar", { hidden: true });
  const backends = h("div.grid");
  const breakers = h("div");
  const recent = h("div");
  replace(root,
    h("div.figures", figures.map((f) => f.el), h("div.panel.figure", h("div.figure-label", "Spend today"), spent, spentBar, spentNote)),
    h("div.split.overview-split",
      h("div.stack.loose",
        h("section.panel", { aria: { label: "Queue" } }, h("div.panel-head", h("h2", "Queue"), h("div.right", h("a.btn.small.quiet", { href: "#/queue" }, "Open the queue", icon("chevron")))), gate, lanes),
        h("section.stack", { aria: { label: "Backends" } }, h("h2", "Backends"), backends)),
      h("div.stack.loose",
        h("section.panel", { aria: { label: "Breakers" } }, h("div.panel-head", h("h2", "Breakers that are not closed")), breakers),
        h("section.panel", { aria: { label: "What happened" } }, h("div.panel-head", h("h2", "What happened")), recent))));
  replace(lanes, skeleton(5));
  replace(breakers, skeleton(2));
  replace(recent, skeleton(5));

  ctx.live.on("overview", ({ data }) => {
    // The server counts from its start. What was before is unknown, and no zero.
    const since = Date.parse(data.since);
    const minutes = data.minutes.filter((m) => !(Date.parse(m.at) + 60_000 <= since));
    const span = minutes.length < data.minutes.length ? `since ${clockTime(since).slice(0, 5)}` : "1 h";
    for (const { figure, value, line, label } of figures) {
      if (figure.label.endsWith(", 1 h")) patchText(label, figure.label.replace("1 h", span));
      line.classList.toggle("calm", figure.kind === "bad" && minutes.every((m) => !figure.of(m)));
      const shown = figure.sum?.(minutes) ?? value.textContent;
      if (typeof shown === "string") patchText(value, shown);
      else replace(value, shown);
      drawSpark(line, minutes.map(figure.of), { label: `${figure.label.replace(", 1 h", "")}, ${span === "1 h" ? "last hour" : span}`, format: figure.format ?? num });
    }
  });
  const waiting = figures.find((f) => f.figure.id === "waiting").value;
  ctx.live.on("status", ({ data }) => patchText(waiting, num(data.waiting)));
  ctx.live.on("queue", ({ data }) => {
    drawLanes(lanes, data);
    drawGate(gate, data);
    drawBackends(backends, data);
  });

  ctx.refresh(async () => {
    try {
      drawBreakers(breakers, (await ctx.api.get("/breakers")).breakers);
    } catch (error) {
      if (error.name === "AbortError") return;
      replace(breakers, h("p.pad.dim", error.detail));
    }
  }, { on: ["status"], everyMs: 15_000 });
  // Money of one's own rounds on this day in UTC, against the cap on a user's day. A cap changes only with the configuration.
  let cap;
  ctx.refresh(async () => {
    try {
      cap ??= Number((await ctx.api.get("/settings")).settings.find((one) => one.key === "spend.user_day_usd_max")?.value ?? 0);
      const { total } = await ctx.api.get("/usage", { query: { from: new Date().toISOString().slice(0, 10), limit: 1 } });
      patchText(spent, money(total.cost_usd));
      const share = cap > 0 ? total.cost_usd / cap : 0;
      spentBar.firstChild.style.width = `${Math.min(100, share * 100)}%`;
      spentBar.classList.toggle("is-bad", share >= 0.9);
      spentBar.setAttribute("aria-label", cap > 0 ? `${percent(share)} of the cap of ${money(cap)}` : "No cap on a day");
      patchText(spentNote, cap > 0 ? `${percent(share)} of ${money(cap)}` : `${num(total.input_tokens + total.output_tokens)} tokens, no cap`);
    } catch (error) {
      if (error.name !== "AbortError") patchText(spentNote, error.detail);
    }
  }, { on: ["status"], everyMs: 15_000 });
  ctx.refresh(() => drawRecent(recent, ctx), { on: ["notifications", "status"], everyMs: 15_000 });
}

function drawLanes(el, queue) {
  if (!el.querySelector(".lane")) el.replaceChildren();
  const running = new Map();
  for (const one of queue.running) running.set(one.task_id, one);
  const lanes = CLASSES.map((name) => ({ name, waiting: queue.waiting.filter((w) => w.priority === name) }));
  keyed(el, lanes, (lane) => lane.name, (lane) => {
    const count = h("span.lane-count.tabular");
    const items = h("div.lane-items");
    const node = h("div.lane", h("div.lane-head", h("span.strong", CLASS_WORD[lane.name]), count), items);
    return Object.assign(node, { $count: count, $items: items });
  }, (node, lane) => {
    patchText(node.$count, lane.waiting.length ? `${num(lane.waiting.length)} waiting` : "no task waits");
    node.classList.toggle("is-empty", !lane.waiting.length);
    keyed(node.$items, lane.waiting.slice(0, 3), (w) => w.task_id, (w) => {
      const when = h("span.dim.tabular");
      const why = h("span.cut");
      return Object.assign(h("a.lane-item", { href: `#/queue?sel=${w.task_id}` }, h("span.lane-rank.tabular"), why, when), { $why: why, $when: when });
    }, (item, w) => {
      patchText(item.firstChild, w.position ? `${w.position}` : "–");
      patchText(item.$why, w.why);
      item.title = w.why;
      patchText(item.$when, w.start_in_ms !== null && w.start_in_ms !== undefined ? `in ${duration(w.start_in_ms)}` : `waited ${duration(w.waited_ms)}`);
    });
    const more = lane.waiting.length - 3;
    node.$more?.remove();
    if (more > 0) node.append((node.$more = h("a.small.dim", { href: `#/queue?filter=${encodeURIComponent(`class:${lane.name}`)}` }, `and ${num(more)} more`)));
  });
  const now = queue.running.length;
  let strip = el.parentElement.querySelector(".runstrip");
  if (!strip) el.after((strip = h("div.runstrip")));
  const next = queue.waiting.find((w) => w.position === 1);
  strip.hidden = !now && !next;
  replace(strip, h("span.dim", "Running now"), h("span.strong.tabular", num(now)), queue.running.slice(0, 4).map((r) => h("a.chip.accent", { href: `#/queue?sel=${r.task_id}` }, r.backend, " · ", ago(r.since))), next ? [h("span.dim.push", "Next"), shortId(next.task_id, `#/queue?sel=${next.task_id}`)] : null);
}

function drawGate(el, queue) {
  const closed = queue.backends.filter((b) => b.gate.closed);
  el.hidden = !closed.length;
  if (closed.length) replace(el, icon("wait"), h("span", "Voice gate closed on ", closed.map((b) => b.backend).join(", "), closed[0].gate.holder ? ` by ${closed[0].gate.holder}` : "", ": only voice starts new rounds."), closed[0].gate.until ? h("span.dim", "opens ", ago(closed[0].gate.until)) : null);
}

const BACKEND = { up: ["good", "Up"], failing: ["bad", "Failing"], down: ["bad", "Down"] };

function drawBackends(el, queue) {
  keyed(el, queue.backends, (b) => b.backend, () => h("div.panel.backend"), (node, b) => {
    const [kind, word] = BACKEND[b.state] ?? ["idle", b.state];
    const error = b.outcomes.last_error;
    const slots = b.slots ?? 0;
    const text = JSON.stringify([b.state, b.running, slots, b.ready, b.round_ms, error, b.window, b.gate.closed]);
    if (node.$text === text) return;
    node.$text = text;
    replace(node, h("div.row.apart", h("span.strong.cut", b.backend), status(kind, word)),
      h("div.slots", { role: "img", aria: { label: `${b.running} of ${slots} slots in use` } }, Array.from({ length: Math.min(slots, 16) }, (_, n) => h("i", { class: n < b.running ? "on" : "" }))),
      h("dl.kv.small", h("dt", "Slots in use"), h("dd.tabular", `${num(b.running)} of ${num(slots)}`),
        h("dt", "A round takes"), h("dd.tabular", duration(b.round_ms)),
        b.ready ? [h("dt", "Ready to run"), h("dd.tabular", num(b.ready))] : null,
        b.window.others ? [h("dt", "Rate limit"), h("dd", b.window.others)] : null,
        b.gate.closed ? [h("dt", "Voice gate"), h("dd", "closed")] : null,
        error && b.state !== "up" ? [h("dt", "Last error"), h("dd.wrap", `${error.kind}: ${error.detail}`)] : null));
  });
}

function drawBreakers(el, list) {
  const open = list.filter((b) => b.state && b.state !== "closed");
  if (!open.length) return replace(el, h("p.pad.row", mark("good", "All closed"), h("span.dim", plural(list.length, "skill"), " called since the start")));
  replace(el, h("ul.lines", open.map((b) => h("li.row", mark(b.state === "open" ? "bad" : "warn", b.state === "open" ? "Open" : "Half open"), h("span.strong.cut", b.skill), b.held ? h("span.dim.cut.grow", { title: b.held }, b.held) : h("span.dim.push", plural(b.failures, "failure")), ago(b.opened_at)))));
}

async function drawRecent(el, ctx) {
  const missing = [];
  const part = (name, promise) => promise.catch((error) => {
    if (error.name !== "AbortError") missing.push(`${name}: ${error.detail ?? error.message}`);
    return null;
  });
  const [tasks, crashes, letters] = await Promise.all([
    part("tasks", ctx.api.get("/tasks", { query: { limit: 30 } })),
    part("crashes", ctx.api.get("/actors/crashes")),
    part("dead letters", ctx.api.get("/dead-letters")),
  ]);
  const items = [];
  for (const task of tasks?.tasks ?? []) {
    if (task.status === "failed") items.push({ at: task.ended_at, kind: "bad", word: "Failed", text: task.title, more: task.error, href: `#/conversations/${task.conversation_id}?task=${task.id}` });
    else if (!task.ended_at) continue;
    else if (task.status === "completed") items.push({ at: task.ended_at, kind: "good", word: "Answered", text: task.title, href: `#/conversations/${task.conversation_id}?task=${task.id}` });
    else items.push({ at: task.ended_at, kind: "idle", word: task.status[0].toUpperCase() + task.status.slice(1), text: task.title, href: `#/conversations/${task.conversation_id}?task=${task.id}` });
  }
  for (const crash of crashes?.crashes ?? []) items.push({ at: crash.at, kind: "bad", word: "Crashed", text: crash.path, more: crash.reason, href: `#/actors?sel=${encodeURIComponent(crash.path)}` });
  for (const act of crashes?.operated ?? []) items.push({ at: act.at, kind: "warn", word: { kill: "Killed", stop: "Stopped", restart: "Restarted" }[act.operation] ?? act.operation, text: act.path, more: act.by, href: `#/actors?sel=${encodeURIComponent(act.path)}` });
  for (const letter of letters?.dead_letters ?? []) items.push({ at: letter.failed_at ?? letter.since, kind: "bad", word: "Dead letter", text: letter.title ?? letter.text, more: letter.error ?? letter.code, href: "#/dead" });
  items.sort((a, b) => String(b.at).localeCompare(String(a.at)));
  const shown = items.filter((item) => item.at).slice(0, 10);
  const gaps = missing.length ? h("p.pad.dim", `Not shown: ${missing.join("; ")}`) : null;
  if (!shown.length) return replace(el, gaps ?? empty({ small: true, title: "Nothing yet", text: "Answers, failures, crashes and what operators did appear here.", command: "annie ask \"hello\"" }));
  replace(el, gaps, h("ul.lines", shown.map((item) => h("li", h("a.row.plain", { href: item.href }, h("span.fixed", mark(item.kind, item.word)), h("span.cut.grow", item.text, item.more ? h("span.dim", ` ${item.more}`) : null), h("span.dim", ago(item.at)))))));
}
