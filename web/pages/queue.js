// Who waits, since when, why not yet, who is next?

import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { table } from "../lib/table.js";
import { drawer, dialog } from "../lib/overlay.js";
import { ago, duration, num, shortId, plural, unit } from "../lib/format.js";
import { mark, status } from "../lib/states.js";
import { CLASSES, CLASS_WORD } from "./overview.js";

const STATE = { running: ["accent", "Running"], waiting: ["wait", "Waiting"], between: ["accent", "Between rounds"], held: ["idle", "Suspended"], delayed: ["wait", "Delayed"] };

export function mount(root, ctx) {
  ctx.title("Queue");
  ctx.box.classList.add("fill");
  root.classList.add("grow", "fillcol");
  const gate = h("div.stack.tight");
  let queue = null;
  let open = null;

  const list = table({
    ctx, caption: "Tasks in the queue", noun: "task", key: (row) => row.task_id,
    empty: { title: "The queue is empty", text: "Tasks that wait for a model round appear here, with the reason of their wait.", command: "annie ask --detach \"summarise my notes\"", icon: "queue" },
    columns: [
      { id: "position", label: "Rank", num: true, width: "64px", cell: (row) => (row.position ? num(row.position) : "–"), sort: (row) => row.position ?? 1e9, hideNarrow: true },
      { id: "task", label: "Task", grow: true, width: "190px", cell: (row) => (row.title ? h("span.cut", { title: row.title }, row.title) : shortId(row.task_id)), sort: (row) => row.title ?? row.task_id },
      { id: "state", label: "State", width: "116px", cell: (row) => mark(...(STATE[row.state] ?? ["idle", row.state])), sort: (row) => row.state },
      { id: "class", label: "Class", width: "104px", cell: (row) => CLASS_WORD[row.priority] ?? row.priority ?? "–", sort: (row) => CLASSES.indexOf(row.priority) },
      { id: "why", label: "Why", grow: true, width: "200px", cell: (row) => h("span.cut", { title: row.why }, reason(row)) },
      { id: "backend", label: "Backend", width: "92px", cell: (row) => row.backend ?? "–", sort: (row) => row.backend ?? "" },
      { id: "waited", label: "Waited", num: true, width: "88px", cell: (row) => unit(duration(row.waited_ms)), sort: (row) => row.waited_ms },
      { id: "starts", label: "Starts in", num: true, width: "96px", cell: (row) => (row.start_in_ms === null || row.start_in_ms === undefined ? "–" : unit(duration(row.start_in_ms))), sort: (row) => row.start_in_ms ?? 1e15 },
    ],
    filterKeys: {
      class: { label: "class", values: CLASSES, of: (row) => row.priority },
      state: { label: "state", values: ["waiting", "running", "between", "held", "delayed"], of: (row) => row.state },
      backend: { label: "backend", values: () => (queue?.backends ?? []).map((b) => b.backend), of: (row) => row.backend },
      age: { label: "waiting time", kind: "duration", of: (row) => row.waited_ms / 1000 },
    },
    onOpen: (row) => ctx.setQuery({ sel: row.task_id }),
    toolbar: ctx.can("ops:control") ? [h("button.btn", { type: "button", on: { click: () => pauseClass() } }, icon("pause"), "Pause a class")] : [],
    actions: [
      { id: "class", icon: "up", label: (n) => (n === 1 ? "Change class" : `Change class of ${num(n)} tasks`), run: (rows) => reprioritise(rows) },
      { id: "suspend", icon: "pause", label: (n) => `Suspend ${plural(n, "task")}`, when: (rows) => rows.some((r) => r.state !== "held"), run: (rows) => each(rows.filter((r) => r.state !== "held"), "suspend", "Suspended") },
      { id: "continue", icon: "play", label: (n) => `Continue ${plural(n, "task")}`, when: (rows) => rows.some((r) => r.state === "held"), run: (rows) => each(rows.filter((r) => r.state === "held"), "continue", "Continued") },
      { id: "cancel", icon: "stop", danger: true, label: (n) => `Cancel ${plural(n, "task")}`, run: (rows) => cancel(rows) },
    ],
  });
  const orders = h("div.stack.tight");
  replace(root, gate, orders, list.el);

  // Classes that an operator paused, and what else is stopped by an order.
  function drawOrders() {
    const text = JSON.stringify(queue.orders ?? []);
    if (orders.$text === text) return;
    orders.$text = text;
    replace(orders, (queue.orders ?? []).filter((one) => ["paused_class", "suspended_conversation"].includes(one.kind)).map((one) => h("div.gatebar.panel", icon("pause"),
      h("span.wrap", one.kind === "paused_class" ? `Class ${CLASS_WORD[one.target] ?? one.target} is paused by ${one.by}: ${one.reason}` : `A conversation is suspended by ${one.by}: ${one.reason}`), h("span.dim", "since ", ago(one.at)),
      h("button.btn.small.push", { type: "button", on: { click: () => lift(one) } }, one.kind === "paused_class" ? `Resume ${CLASS_WORD[one.target] ?? one.target}` : "Continue conversation"))));
  }

  async function lift(one) {
    const path = one.kind === "paused_class" ? "/classes/resume" : `/conversations/${one.target}/continue`;
    await ctx.act("Resume", () => ctx.api.post(path, one.kind === "paused_class" ? { priority: one.target } : {}), { done: "It goes on" });
  }

  async function pauseClass() {
    const waiting = (value) => plural((queue?.waiting ?? []).filter((row) => row.priority === value).length, "task waits", "tasks wait");
    const answer = await dialog({ title: "Pause a class of tasks?", body: "No further round of the class starts, also after a restart, until it is resumed. Rounds that run now end normally.", confirm: "Pause class", danger: true, reason: "required",
      fields: [{ name: "priority", label: "Class", kind: "select", value: "background", options: CLASSES.slice(1).map((value) => ({ value, label: `${CLASS_WORD[value]}: ${waiting(value)} now` })) }] });
    if (answer) await ctx.act("Pause class", () => ctx.api.post("/classes/pause", { priority: answer.priority, reason: answer.reason }), { done: `Class ${CLASS_WORD[answer.priority]} is paused` });
  }

  async function each(rows, verb, done, body) {
    let ok = 0;
    for (const row of rows) {
      const result = await ctx.act(`${verb} ${row.task_id.slice(-6)}`, () => ctx.api.post(`/tasks/${row.task_id}/${verb}`, body ?? {}));
      if (result !== undefined) ok += 1;
    }
    if (ok) ctx.toast(`${done} ${plural(ok, "task")}`, { kind: "good" });
    list.clearSelection();
  }

  async function cancel(rows) {
    const answer = await dialog({ title: `Cancel ${plural(rows.length, "task")}?`, body: "Each task ends after what runs now. Effects that have happened stay.", confirm: `Cancel ${plural(rows.length, "task")}`, danger: true, cancel: "Keep" });
    if (answer) await each(rows, "cancel", "Cancelled");
  }

  async function reprioritise(rows) {
    const answer = await dialog({ title: rows.length === 1 ? "Change the class" : `Change the class of ${num(rows.length)} tasks`, confirm: "Change class",
      fields: [{ name: "priority", label: "Class", kind: "select", value: rows[0].priority, options: CLASSES.slice(1).map((value) => ({ value, label: `${CLASS_WORD[value]}: ${whatIf(rows, value)}` })) }] });
    if (answer) await each(rows, "priority", "Changed the class of", { priority: answer.priority });
  }

  // Where the first of the tasks would stand in another class.
  function whatIf(rows, priority) {
    const level = CLASSES.indexOf(priority);
    const own = new Set(rows.map((row) => row.task_id));
    const ahead = (queue?.waiting ?? []).filter((w) => w.position && !own.has(w.task_id) && (w.effective ?? CLASSES.indexOf(w.priority)) <= level - Math.min(level - 1, rows[0].waited_ms / 300_000)).length;
    return `would be rank ${num(ahead + 1)}`;
  }

  // The queue names tasks by their ids; the titles of one's own tasks are read beside it.
  const titles = new Map();
  let rows = [], readAt = 0;
  const draw = () => list.setRows(rows.map((row) => ({ ...row, title: titles.get(row.task_id)?.title, priority: row.priority || (titles.get(row.task_id)?.priority ?? "") })));
  async function readTitles() {
    if (Date.now() - readAt < 2_000) return;
    readAt = Date.now();
    try {
      for (const task of (await ctx.api.get("/tasks", { query: { open: true, limit: 500 } })).tasks) titles.set(task.id, task);
      draw();
    } catch {
      // Without titles the ids are shown.
    }
  }

  ctx.live.on("queue", ({ data }) => {
    queue = data;
    const running = data.running.map((r) => ({ ...r, state: "running", why: `Its round runs on ${r.backend}`, waited_ms: 0, start_in_ms: null, rounds_done: data.waiting.find((w) => w.task_id === r.task_id)?.rounds_done ?? 0, priority: r.priority ?? "", position: null }));
    rows = [...running, ...data.waiting];
    draw();
    if (rows.some((row) => !titles.has(row.task_id))) readTitles();
    drawGate();
    drawOrders();
    if (open) drawOpen();
  });

  function drawGate() {
    const closed = queue.backends.filter((b) => b.gate.closed);
    replace(gate, closed.map((b) => h("div.gatebar.panel", icon("wait"), h("span", `Voice gate closed on ${b.backend}`, b.gate.holder ? ` by ${b.gate.holder}` : "", `: ${plural(queue.waiting.filter((w) => w.backend === b.backend).length, "task")} ${queue.waiting.length === 1 ? "waits" : "wait"}.`), b.gate.until ? h("span.dim", "opens ", ago(b.gate.until)) : null,
      h("button.btn.small.push", { type: "button", on: { click: () => release(b) } }, "Open the gate"))));
  }

  async function release(b) {
    const answer = await dialog({ title: `Open the voice gate of ${b.backend}?`, body: `${b.gate.holder ?? "The holder"} loses its precedence; waiting rounds start.`, confirm: "Open the gate" });
    if (answer) await ctx.act("Opening the gate", () => ctx.api.post("/gate/release", { backend: b.backend, holder: b.gate.holder }), { done: "The gate is open" });
  }

  function select(id) {
    list.open(id);
    if (!id) return open?.handle.close({ quiet: true });
    if (open?.id === id) return;
    const handle = drawer({ title: "Task", label: "task", onClose: () => {
      open = null;
      if (ctx.route.query.sel === id) ctx.setQuery({ sel: null });
    } });
    open = { id, handle, task: null };
    drawOpen();
    ctx.api.get(`/tasks/${id}`).then((task) => {
      if (open?.id === id) (open.task = task), drawOpen();
    }).catch(() => {});
  }

  function drawOpen() {
    const { id, handle, task } = open;
    const row = list.all.find((r) => r.task_id === id);
    const text = JSON.stringify([row, task]);
    if (open.text === text) return;
    open.text = text;
    handle.setTitle(task?.title ?? "Task");
    if (!row) {
      replace(handle.body, status("idle", "No longer in the queue"), task ? facts(task) : null);
      return handle.setActions(task ? [toConversation(task)] : []);
    }
    replace(handle.body, h("div.row.wraps", status(...(STATE[row.state] ?? ["idle", row.state])), h("span.chip", CLASS_WORD[row.priority] ?? row.priority ?? "")),
      h("div.callout", h("h3", row.state === "running" ? "Now" : "Why not yet"), h("p", reason(row))),
      h("dl.kv", h("dt", "Task"), h("dd", shortId(id)), row.position ? [h("dt", "Rank"), h("dd", `${num(row.position)} on ${row.backend}`)] : null,
        row.effective !== null && row.effective !== undefined ? [h("dt", "Counts as"), h("dd", counts(row))] : null,
        h("dt", "Waited"), h("dd", duration(row.waited_ms)), h("dt", "Starts in"), h("dd", row.start_in_ms === null || row.start_in_ms === undefined ? "–" : `about ${duration(row.start_in_ms)}`),
        h("dt", "Rounds done"), h("dd", num(row.rounds_done)), h("dt", "Preempted"), h("dd", plural(row.preemptions ?? 0, "time")), row.since ? [h("dt", "Runs since"), h("dd", ago(row.since))] : null),
      task ? facts(task) : null);
    handle.setActions([task ? toConversation(task) : null,
      h("button.btn", { type: "button", on: { click: () => reprioritise([row]) } }, icon("up"), "Change class"),
      row.state === "held" ? h("button.btn", { type: "button", on: { click: () => each([row], "continue", "Continued") } }, icon("play"), "Continue") : h("button.btn", { type: "button", on: { click: () => each([row], "suspend", "Suspended") } }, icon("pause"), "Suspend"),
      h("button.btn.danger", { type: "button", on: { click: () => cancel([row]) } }, icon("stop"), "Cancel task")].filter(Boolean));
  }

  ctx.route.subscribe((now) => select(now.query.sel ?? null));
  if (ctx.route.query.sel) select(ctx.route.query.sel);
}

const facts = (task) => h("dl.kv", h("dt", "Asked"), h("dd", ago(task.received_at)), h("dt", "From"), h("dd", task.source), h("dt", "Status"), h("dd", task.status));
const toConversation = (task) => h("a.btn.primary", { href: `#/conversations/${task.conversation_id}?task=${task.id}` }, "Open the conversation");

function counts(row) {
  const level = row.effective;
  const near = CLASSES[Math.max(0, Math.min(4, Math.round(level)))];
  return `${CLASS_WORD[near]} (${Number(level.toFixed(2))})`;
}

// The rank's reason in words: "LOW, waited 7 min, counts as NORMAL".
function reason(row) {
  if (row.state !== "waiting" || row.effective === null || row.effective === undefined) return row.why;
  const base = CLASSES.indexOf(row.priority);
  const near = CLASSES[Math.max(0, Math.min(4, Math.round(row.effective)))];
  if (base > 0 && near !== row.priority) return `${CLASS_WORD[row.priority]}, waited ${duration(row.waited_ms)}, counts as ${CLASS_WORD[near]}: ${row.why}`;
  return row.why;
}
