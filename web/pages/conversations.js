// What happened, and why? The list, and one conversation in three views of one log.

import { h, replace, keyed } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { table } from "../lib/table.js";
import { dialog, drawer, menu, toast } from "../lib/overlay.js";
import { ago, clockTime, duration, moment, num, plural, shortId, exactTime, last6, toDate } from "../lib/format.js";
import { empty, jsonView, mark, skeleton, status, broken } from "../lib/states.js";
import { Story, activity, cost, isFailure, stateOf, turnMs } from "../lib/story.js";
import { prose } from "../lib/prose.js";
import { dag } from "../lib/dag.js";
import { waterfall } from "../lib/waterfall.js";
import { scrubber } from "../lib/scrubber.js";
import { approvalCard, argumentText, costLine, finalBlock, noteLine, openAgent, openRun, workChips } from "./work.js";

// The front ends as people call them.
const SOURCE = { copy: "a copied conversation", http: "HTTP", grpc: "gRPC", openai: "the OpenAI API", cli: "the command line", voice: "voice" };
const WINDOW = 2_000;
const VIEWS = [["story", "Story"], ["waterfall", "Waterfall"], ["events", "Events"]];

export function mount(root, ctx) {
  let inner = null;
  const show = () => {
    const id = ctx.route.rest[0] ?? "";
    if (inner?.id === id) return inner.route?.();
    inner?.dispose?.();
    root.className = "stack loose content";
    ctx.box.classList.toggle("fill", !id);
    root.replaceChildren();
    inner = { id };
    inner = id ? one(root, ctx, id) : many(root, ctx);
    inner.id = id;
  };
  ctx.route.subscribe(show);
  show();
  return () => inner?.dispose?.();
}

function many(root, ctx) {
  ctx.title("Conversations");
  root.classList.add("grow", "fillcol");
  const list = table({
    ctx, caption: "Conversations", noun: "conversation", key: (row) => row.id, selectable: false,
    search: (row) => (row.$text ??= `${row.title} ${row.id} ${row.key ?? ""}`.toLowerCase()),
    empty: { title: "No conversations yet", text: "Each conversation with its whole history appears here.", button: { label: "Start one", run: () => ctx.go("#/chat") }, icon: "conversations" },
    columns: [
      { id: "title", label: "First message", grow: true, width: "320px", cell: (row) => h("span.cut.strong", { title: row.title }, row.title || "–"), sort: (row) => row.title },
      { id: "events", label: "Events", num: true, width: "100px", cell: (row) => num(row.last_seq), sort: (row) => row.last_seq },
      { id: "created", label: "Began", width: "120px", cell: (row) => ago(row.created_at), sort: (row) => row.created_at },
      { id: "updated", label: "Last event", width: "120px", cell: (row) => ago(row.updated_at), sort: (row) => row.updated_at },
      { id: "id", label: "Id", width: "150px", cell: (row) => shortId(row.id) },
    ],
    filterKeys: {
      events: { label: "number of events", kind: "number", of: (row) => row.last_seq },
      age: { label: "time since the last event", kind: "duration", of: (row) => (Date.now() - new Date(row.updated_at)) / 1000 },
    },
    onOpen: (row) => ctx.go(`#/conversations/${row.id}`),
    toolbar: [
      h("button.btn", { type: "button", on: { click: () => importFile(ctx) } }, icon("download"), "Import"),
      h("button.btn", { type: "button", on: { click: () => showDeleted(ctx) } }, "Deleted"),
      h("a.btn.primary", { href: "#/chat" }, icon("plus"), "New conversation"),
    ],
  });
  replace(root, list.el);
  let isOver = false;
  ctx.refresh(async () => {
    if (isOver) return;
    try {
      const { rows, more } = await ctx.api.all("/conversations", { key: "conversations", query: { limit: 500 }, max: 10_000 });
      if (!isOver) list.setRows(rows, { more });
    } catch (error) {
      if (error.name !== "AbortError") list.setError(error, () => ctx.go(location.hash));
    }
  }, { on: ["status"], everyMs: 15_000 });
  return { dispose: () => ((isOver = true), list.destroy()) };
}

// The lines of an import that are sent at a time, in characters: below the limit of a request.
const IMPORT_CHARS_MAX = 150_000;

// Begins a new conversation with the history in an exported file. Nothing in it is carried out again.
function importFile(ctx) {
  const input = h("input", { type: "file", accept: ".jsonl,.ndjson,application/x-ndjson", aria: { label: "Exported conversation" } });
  input.addEventListener("change", () => input.files[0] && ctx.act("Import", async () => {
    const lines = (await input.files[0].text()).split("\n").filter((line) => line.trim());
    let part = [], size = 0, into;
    const send = async (isPartial) => {
      const done = await ctx.api.post("/conversations/import", { lines: part.join("\n"), conversation_id: into, is_partial: isPartial });
      into = done.conversation_id;
      part = [];
      size = 0;
    };
    for (const line of lines) {
      if (part.length && size + line.length > IMPORT_CHARS_MAX) await send(true);
      part.push(line);
      size += line.length + 1;
    }
    await send(false);
    ctx.go(`#/conversations/${into}`);
  }, { done: "The conversation is imported" }));
  input.click();
  return input;
}

// The deleted conversations that can be restored, in a drawer.
async function showDeleted(ctx) {
  const panel = drawer({ title: "Deleted conversations", label: "deleted conversations", body: skeleton(4) });
  const load = async () => {
    try {
      const { conversations: rows } = await ctx.api.get("/conversations/trash");
      if (!rows.length) return replace(panel.body, empty({ small: true, title: "Nothing is deleted", text: "A deleted conversation can be restored here until its content is erased." }));
      const restore = async (row) => {
        await ctx.api.post(`/conversations/${row.id}/restore`);
        panel.close();
        ctx.go(`#/conversations/${row.id}`);
      };
      replace(panel.body, h("ul.lines", rows.map((row) => h("li.row",
        h("span.grow.cut", h("span.strong", row.title || "–"), h("span.dim", " deleted ", ago(row.deleted_at), ", erased ", ago(row.erase_at))),
        h("button.btn.small", { type: "button", on: { click: () => ctx.act("Restore", () => restore(row), { done: "The conversation is restored" }) } }, "Restore")))));
    } catch (error) {
      replace(panel.body, broken(error, load));
    }
  };
  await load();
}

function one(root, ctx, id) {
  const view = () => (VIEWS.some(([name]) => name === ctx.route.query.view) ? ctx.route.query.view : "story");
  const at = () => Number(ctx.route.query.seq) || 0;
  const crumbs = Object.assign([{ text: "Conversations", href: "#/conversations" }], { current: last6(id) });
  let whole = new Story(), shown = whole, row = null, off = null, events = null, isOver = false, firstLoaded = 0;
  const tabs = h("div.tabs", { role: "tablist", aria: { label: "Views" } });
  const body = h("div.stack", { role: "tabpanel", aria: { label: "View" } });
  const side = h("div.stack.side");
  const time = scrubber({ onSeek: (seq) => ctx.setQuery({ seq }), onLive: () => ctx.setQuery({ seq: null }), onTime: goToTime });
  ctx.title(last6(id), crumbs);
  replace(root, tabs, h("div.split.conv", body, side), time.el);
  replace(body, skeleton(8));

  function drawTabs() {
    keyed(tabs, VIEWS, ([name]) => name, ([name, label]) => h("button", { type: "button", role: "tab", id: `tab-${name}`, on: { click: () => ctx.setQuery({ view: name === "story" ? null : name }) } }, label), (el, [name]) => {
      el.setAttribute("aria-selected", String(view() === name));
      el.tabIndex = view() === name ? 0 : -1;
    });
  }
  tabs.addEventListener("keydown", (event) => {
    const n = VIEWS.findIndex(([name]) => name === view());
    const to = event.key === "ArrowRight" ? n + 1 : event.key === "ArrowLeft" ? n - 1 : null;
    if (to === null) return;
    ctx.setQuery({ view: VIEWS[(to + VIEWS.length) % VIEWS.length][0] });
    document.getElementById(`tab-${view()}`)?.focus();
  });

  async function load(from) {
    row = await ctx.api.get(`/conversations/${id}`);
    if (isOver) return;
    const start = from ?? Math.max(0, row.last_seq - WINDOW);
    const story = new Story();
    let after = start;
    for (;;) {
      const page = await ctx.api.get(`/conversations/${id}/events`, { query: { after, limit: 500 } });
      if (isOver) return;
      for (const event of page.events) story.add(event);
      const last = page.events.at(-1)?.seq ?? after;
      if (page.events.length < 500 || last === after) break;
      after = last;
    }
    firstLoaded = start;
    whole = story;
    off?.();
    off = ctx.live.on(`conversation:${id}`, heard, whole.last);
    head();
    fold();
  }

  function head() {
    const first = whole.order.find((turn) => turn.text);
    ctx.title((first && first.text.startsWith(row?.title ?? "") ? first.text : row?.title) || last6(id), crumbs, [
      h("a.btn.primary", { href: `#/chat/${id}` }, icon("chat"), "Continue in chat"),
      h("button.btn", { type: "button", on: { click: exportEvents } }, icon("download"), "Export"),
      h("button.btn", { type: "button", aria: { haspopup: "menu" }, on: { click: (event) => menu(event.currentTarget, [
        { label: "Fork from here", icon: "fork", run: fork },
        { label: "Compare with another event", icon: "copy", run: compare },
        { label: "Check the replay", icon: "check", run: checkReplay },
        { label: "Go to a time", icon: "clock", run: goToTime },
        { label: "Suspend conversation", icon: "pause", run: suspend },
        { label: "Continue conversation", icon: "play", run: goOn },
        ctx.can("ops:control") ? { label: "Put in quarantine", icon: "bad", danger: true, run: quarantine } : null,
      ]) } }, icon("more"), "More"),
      h("button.btn.danger", { type: "button", on: { click: remove } }, "Delete"),
    ]);
  }

  // The event at the handle, or the last one.
  const here = () => Math.min(at() || whole.last, whole.last);

  async function fork() {
    const seq = here();
    const answer = await dialog({ title: `Fork from event ${num(seq)}?`, body: "A new conversation begins with this history. No effect of it is repeated, and this conversation stays as it is.", confirm: "Fork conversation" });
    if (!answer) return;
    const made = await ctx.act("Fork", () => ctx.api.post(`/conversations/${id}/fork`, { at: seq }), { done: "The copy is open" });
    if (made) ctx.go(`#/conversations/${made.conversation_id}`);
  }

  // Folds the stored log again in the core, and compares each decision with what is stored.
  async function checkReplay() {
    const panel = drawer({ title: "Replay check", label: "replay check", body: skeleton(4) });
    try {
      const { check } = await ctx.api.get(`/conversations/${id}/replay`, { query: { check: true } });
      const diverged = check.diverged ?? check.divergences?.length ?? 0;
      replace(panel.body, diverged ? status("bad", `${plural(diverged, "divergence")}`) : status("good", "The log and the core agree"),
        h("dl.kv", h("dt", "Events"), h("dd.tabular", num(check.events)), h("dt", "Decisions"), h("dd.tabular", num(check.decisions))),
        diverged ? jsonView(check.divergences, 2) : h("p.dim", "Every decision of the core, computed anew from the stored events, is the stored one."));
    } catch (error) {
      if (error.name !== "AbortError") replace(panel.body, broken(error, checkReplay));
    }
  }

  // What changed in the state between two events, as the core folds it.
  async function compare() {
    const until = here();
    const answer = await dialog({ title: "Compare the state at two events", confirm: "Compare", fields: [
      { name: "from", label: "From event", kind: "number", value: Math.max(1, until - 1), required: true, check: wrongSeq },
      { name: "until", label: "To event", kind: "number", value: until, required: true, check: wrongSeq }] });
    if (!answer) return;
    const panel = drawer({ title: `Event ${answer.from} to ${answer.until}`, label: "comparison", body: skeleton(4) });
    try {
      const { differences = [] } = await ctx.api.get(`/conversations/${id}/replay`, { query: { from: answer.from, until: answer.until } });
      const text = (value) => (value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));
      replace(panel.body, h("p.dim", differences.length ? plural(differences.length, "difference") : "The state is the same."),
        h("ul.lines", differences.map((one) => h("li.stack.tight", h("code.wrap", one.path), h("div.wrap.small", h("span.dim", "before "), text(one.before)), h("div.wrap.small", h("span.dim", "after "), text(one.after))))));
    } catch (error) {
      if (error.name !== "AbortError") replace(panel.body, broken(error));
    }
  }
  const wrongSeq = (seq) => (Number.isInteger(seq) && seq >= 1 && seq <= whole.last ? "" : `A whole number from 1 to ${whole.last}.`);

  // The last event that was stored by then. What is not loaded is loaded first.
  async function goToTime() {
    const near = toDate(eventHere()?.at ?? Date.now());
    const answer = await dialog({ title: "Go to a time", confirm: "Go to time", fields: [{ name: "time", label: "Time", kind: "text", required: true, placeholder: "15:02", hint: "15:02, or with a date: 2026-02-18 15:02:30. In your time zone.", check: (text) => (moment(text, near) ? "" : "This is no time.") }] });
    if (!answer) return;
    let until = moment(answer.time, near).getTime();
    // A minute means all of it.
    until += /:\d{2}:\d{2}\s*$/.test(answer.time) ? 999 : 59_999;
    while (firstLoaded > 0 && whole.events.length && toDate(whole.events[0].at).getTime() > until) await load(Math.max(0, firstLoaded - WINDOW));
    const found = whole.events.findLast((event) => toDate(event.at).getTime() <= until);
    if (!found) return toast(`Nothing was stored by then: the first event was at ${exactTime(whole.events[0]?.at)}.`, { kind: "warn" });
    time.seek(found.seq);
  }
  const eventHere = () => whole.events.findLast((event) => event.seq <= here());

  async function suspend() {
    const answer = await dialog({ title: "Suspend this conversation?", body: "No further round of its tasks starts, also of later messages, until it is continued. A round under way ends normally.", confirm: "Suspend conversation", reason: "required" });
    if (answer) await ctx.act("Suspend", () => ctx.api.post(`/conversations/${id}/suspend`, { reason: answer.reason }), { done: "The conversation is suspended" });
  }

  const goOn = () => ctx.act("Continue", async () => {
    const { lifted } = await ctx.api.post(`/conversations/${id}/continue`, {});
    if (!lifted) throw Object.assign(new Error("It was not suspended."), { detail: "It was not suspended." });
  }, { done: "The conversation goes on" });

  async function quarantine() {
    const answer = await dialog({ title: "Put this conversation in quarantine?", body: "Its open turns fail, and so does each message, until an operator takes it out of quarantine (annie conversations resume).", confirm: "Put in quarantine", danger: true, reason: "required" });
    if (answer) await ctx.act("Quarantine", () => ctx.api.post(`/conversations/${id}/quarantine`, { reason: answer.reason, force: true }), { done: "The conversation is in quarantine" });
  }

  async function remove() {
    const isOpen = whole.order.some((turn) => turn.text && !turn.final && !turn.joined);
    const answer = await dialog({
      title: "Delete this conversation?",
      body: `It disappears from all lists and accepts no message. You can restore it until its content is erased, by default after 30 days.${isOpen ? " Its open work is cancelled." : ""}`,
      confirm: "Delete conversation",
      danger: true,
    });
    if (!answer) return;
    try {
      await ctx.api.delete(`/conversations/${id}`, { query: { force: isOpen } });
    } catch (error) {
      return toast(error.detail || error.message, { kind: "bad" });
    }
    const restore = async () => {
      await ctx.api.post(`/conversations/${id}/restore`);
      ctx.go(`#/conversations/${id}`);
    };
    toast("The conversation is deleted", { action: { label: "Restore", run: restore } });
    ctx.go("#/conversations");
  }

  // The whole log, also what this page has not loaded, as `Import` reads it.
  const exportEvents = () => ctx.act("Export", async () => {
    const { rows: lines } = await ctx.api.all(`/conversations/${id}/export`, { key: "lines", query: { limit: 500 }, max: Infinity });
    const link = h("a", { href: URL.createObjectURL(new Blob([lines.map((line) => `${JSON.stringify(line)}\n`).join("")], { type: "application/x-ndjson" })), download: `${id}.ndjson` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    return lines.length;
  }, { done: (count) => `Saved ${plural(count, "line")}` });

  let frame = 0;
  function heard({ event, data }) {
    if (event === "event") whole.add(data);
    else if (event === "draft") whole.draft(data);
    else return;
    frame ||= setTimeout(() => {
      frame = 0;
      if (!isOver) fold();
    }, 60);
  }

  // The story at the place of the handle.
  function fold() {
    const seq = at();
    if (!seq || seq >= whole.last) shown = whole;
    else {
      shown = new Story();
      for (const event of whole.events) if (event.seq <= seq) shown.add(event);
    }
    time.set(whole.events, seq || whole.last, !seq || seq >= whole.last);
    draw();
  }

  let lastView = "";
  function draw() {
    drawTabs();
    const name = view();
    if (name !== lastView) {
      events?.destroy();
      events = null;
      body.replaceChildren();
      body.$keyed = null;
      lastView = name;
    }
    if (name === "events") drawEvents();
    else if (!shown.order.length) replace(body, empty({ title: "Nothing here yet", text: "This conversation has no events up to this place." }));
    else if (name === "waterfall") drawWaterfall();
    else drawStory();
    drawSide();
  }

  const earlier = () => (firstLoaded > 0 ? h("button.btn", { type: "button", on: { click: () => load(Math.max(0, firstLoaded - WINDOW)) } }, `Load ${num(Math.min(WINDOW, firstLoaded))} earlier events`) : null);
  const turnsShown = () => shown.order.filter((turn) => turn.text || turn.final || turn.startedAt);

  function drawStory() {
    if (!body.querySelector(".turns")) replace(body, h("div.earlier"), h("div.turns.stack.loose"));
    replace(body.querySelector(".earlier"), earlier());
    keyed(body.querySelector(".turns"), turnsShown(), (turn) => turn.task, (turn) => h("article.turn", { id: `turn-${turn.task}`, aria: { label: "Turn" } }), (el, turn) => {
      const mark_ = fingerprint(turn);
      el.classList.toggle("is-at", ctx.route.query.task === turn.task);
      if (el.$mark === mark_) return;
      el.$mark = mark_;
      replace(el, turnBlock(turn, ctx));
    });
  }

  function drawWaterfall() {
    if (!body.querySelector(".turns")) replace(body, h("div.earlier"), h("div.turns.stack.loose"));
    replace(body.querySelector(".earlier"), earlier());
    keyed(body.querySelector(".turns"), turnsShown().filter((turn) => !turn.joined), (turn) => turn.task, (turn) => h("section.panel.wfpanel", { id: `turn-${turn.task}`, aria: { label: `Turn: ${turn.text.slice(0, 60)}` } }), (el, turn) => {
      const mark_ = fingerprint(turn) + (turn.final ? "" : Math.floor(Date.now() / 1000));
      if (el.$mark === mark_) return;
      el.$mark = mark_;
      replace(el, h("div.panel-head", status(...stateOf(turn.state)), h("span.strong.cut.grow", turn.text), h("span.dim.tabular", costLine(turn))), waterfall(turn, { onOpen: (rowOf) => openStep(turn, rowOf) }));
    });
  }

  function openStep(turn, step) {
    if (step.agent) return openAgent(turn, step.agent, ctx);
    if (step.run) return openRun(step.run);
    if (step.round) openRound(turn, step.round);
  }

  function drawEvents() {
    if (!events) {
      events = table({
        ctx, caption: "Events", noun: "event", key: (event) => event.seq, selectable: false, search: (event) => (event.$text ??= JSON.stringify(event).toLowerCase()),
        columns: [
          { id: "seq", label: "Seq", num: true, width: "76px", cell: (event) => num(event.seq) },
          { id: "at", label: "Time", width: "96px", cell: (event) => h("time", { title: exactTime(event.at) }, clockTime(event.at)) },
          { id: "kind", label: "Kind", width: "190px", cell: (event) => (isFailure(event) ? mark("bad", event.kind) : h("span.mono", event.kind)) },
          { id: "agent", label: "Agent", width: "130px", cell: (event) => event.agent },
          { id: "what", label: "What", grow: true, width: "280px", cell: (event) => h("span.cut.dim", summary(event)) },
        ],
        filterKeys: { kind: { label: "kind of event", values: () => [...new Set(shown.events.map((e) => e.kind))].sort(), of: (e) => e.kind }, agent: { label: "agent", values: () => [...new Set(shown.events.map((e) => e.agent))], of: (e) => e.agent }, seq: { label: "sequence number", kind: "number", of: (e) => e.seq }, task: { label: "task", of: (e) => e.task_id } },
        onOpen: (event) => {
          const panel = drawer({ title: `${event.kind} · event ${event.seq}`, label: "event" });
          replace(panel.body, h("dl.kv", h("dt", "At"), h("dd", exactTime(event.at)), h("dt", "Task"), h("dd", shortId(event.task_id)), h("dt", "Agent"), h("dd", event.agent)), jsonView(event));
          panel.setActions([h("button.btn", { type: "button", on: { click: () => ctx.setQuery({ seq: event.seq }) } }, "Show the state here")]);
        },
      });
      events.el.classList.add("eventlist");
      replace(body, earlier(), events.el);
    }
    events.setRows([...shown.events]);
  }

  function drawSide() {
    const turn = shown.turns.get(ctx.route.query.task) ?? shown.order.findLast((one_) => !one_.joined && (one_.agents.size || !one_.final)) ?? shown.order.at(-1);
    if (!turn) return replace(side);
    const text = fingerprint(turn) + shown.last + (ctx.route.query.task ?? "");
    if (side.$text === text) return;
    side.$text = text;
    const agents = [...turn.agents.values()];
    const open = shown.running;
    const isPast = shown !== whole;
    const c = cost(turn);
    replace(side,
      h("section.panel", h("div.panel-head", h("h2", isPast ? `State at event ${num(shown.last)}` : "State now"), h("div.right", isPast ? status("wait", "In the past") : null)),
        h("div.body", h("dl.kv", h("dt", "Open tasks"), h("dd", open.length ? open.map((one_) => h("div.row", mark(...stateOf(one_.state)), h("span.cut", activity(one_)))) : "none"),
          h("dt", "Turns"), h("dd.tabular", num(shown.order.length)), h("dt", "Events"), h("dd.tabular", num(shown.last)),
          h("dt", "Failed steps"), h("dd.tabular", num(shown.events.filter(isFailure).length))))),
      h("section.panel", h("div.panel-head", h("h2", "Plan")), h("div.body", planOf(turn), agents.length ? dag(agents, (agent) => openAgent(turn, agent, ctx)) : h("p.dim", turn.startedAt ? "This turn has no sub-agents." : "The turn has not begun."))),
      h("section.panel", h("div.panel-head", h("h2", "This turn")), h("div.body", h("dl.kv",
        h("dt", "Status"), h("dd", mark(...stateOf(turn.state))), h("dt", "Task"), h("dd", shortId(turn.task)), h("dt", "Asked"), h("dd", ago(turn.at)), h("dt", "Took"), h("dd.tabular", duration(turnMs(turn, isPast ? new Date(shown.events.at(-1).at) : undefined))),
        h("dt", "Class"), h("dd", turn.priority || "–"), h("dt", "Mode"), h("dd", (turn.mode || "–").replaceAll("_", " ")), h("dt", "Route"), h("dd", turn.route?.length ? turn.route.join(", then ") : "first backend"),
        h("dt", "Tokens"), h("dd.tabular", `${num(c.input)} in, ${num(c.output)} out`)))));
  }

  function seen() {
    const task = ctx.route.query.task;
    if (task && shown.turns.has(task)) document.getElementById(`turn-${task}`)?.scrollIntoView({ block: "start" });
  }

  load().then(seen).catch((error) => {
    // Without a log there is no place in it.
    if (error.name !== "AbortError" && !isOver && !whole.events.length) time.el.hidden = tabs.hidden = true;
    if (error.name !== "AbortError" && !isOver) replace(body, broken(error, () => load().catch((e) => ctx.toast(e.detail, { kind: "bad" }))));
  });
  ctx.keys({ 1: ["Story", () => ctx.setQuery({ view: null })], 2: ["Waterfall", () => ctx.setQuery({ view: "waterfall" })], 3: ["Events", () => ctx.setQuery({ view: "events" })], t: ["Go to a time", goToTime] });
  const tick = setInterval(() => !isOver && view() === "waterfall" && whole.running.length && !document.hidden && draw(), 1_000);
  return {
    route: () => whole.events.length && fold(),
    dispose() {
      isOver = true;
      clearInterval(tick);
      time.stop();
      off?.();
      events?.destroy();
    },
  };
}

export function openRound(turn, round) {
  const panel = drawer({ title: `${round.agent === "orchestrator" ? "Round" : `${round.agent}, round`} ${round.number}`, label: "round" });
  const u = round.usage ?? {};
  replace(panel.body,
    h("dl.kv", h("dt", "Model"), h("dd", round.model || "–"), h("dt", "Backend"), h("dd", round.backend || "–"), h("dt", "Waited"), h("dd", duration(round.waitedMs)), h("dt", "Prompt processed"), h("dd", duration(round.prefillMs)), h("dt", "Ended"), h("dd", exactTime(round.end)),
      h("dt", "Tokens"), h("dd.tabular", `${num(u.input_tokens ?? 0)} in (${num(u.cached_tokens ?? 0)} cached), ${num(u.output_tokens ?? 0)} out (${num(u.reasoning_tokens ?? 0)} thinking)`), h("dt", "Finish"), h("dd", round.finish ?? "–")),
    round.error ? h("div.callout.is-bad", h("h3", round.error.kind), h("p.wrap", round.error.detail ?? "")) : null,
    round.text ? h("div.stack.tight", h("h3", "Reply"), h("pre.block", { tabindex: "0" }, round.text)) : null,
    round.calls.length ? h("div.stack.tight", h("h3", `Calls (${round.calls.length})`), round.calls.map((call) => h("div.block", { tabindex: "0" }, h("div.strong", call.name), h("pre", call.raw)))) : null,
    h("div.stack.tight", h("h3", "Event"), jsonView(round.event, 2)));
}

function turnBlock(turn, ctx) {
  const chips = workChips(turn, ctx);
  return [
    h("div.message.is-user", h("div.row.small.dim", h("span.strong", turn.isResult ? "A result arrived" : turn.source ? `You, over ${SOURCE[turn.source] ?? turn.source}` : "You"), ago(turn.at), turn.joined ? h("span.chip", `joined ${last6(turn.joined)}`) : null, turn.retry ? h("span.chip.wait", "retry") : null), prose(turn.text)),
    turn.joined ? null : h("div.message.is-annie",
      h("div.row.small.dim.wraps", h("span.strong", "Annie"), turn.final ? null : status(...stateOf(turn.state)), turn.final ? h("span.tabular", costLine(turn)) : h("span", activity(turn)), turn.deferredUntil ? ago(turn.until) : null),
      turn.steers.length ? turn.steers.map((steer) => h("div.steer", icon("fork"), h("span.wrap", steer.text))) : null,
      chips, [...turn.approvals.values()].map((approval) => approvalCard(turn, approval, ctx)),
      turn.notes.length ? h("details.notes.small", h("summary", plural(turn.notes.length, "note")), turn.notes.map(noteLine)) : null,
      turn.draft?.text && !turn.final ? h("div.answer.is-draft", prose(turn.draft.text)) : null,
      finalBlock(turn)),
  ];
}

const fingerprint = (turn) => [turn.state, turn.rounds.length, turn.skills.size, [...turn.skills.values()].filter((s) => s.outcome).length, [...turn.agents.values()].map((a) => a.state).join(), [...turn.approvals.values()].filter((a) => a.verdict).length, turn.approvals.size, turn.notes.length, turn.steers.length, turn.draft?.text.length ?? 0, turn.final?.seq ?? 0, turn.priority].join("|");

function summary(event) {
  switch (event.kind) {
    case "received": return event.text;
    case "model_replied": return event.calls?.length ? event.calls.map((c) => `${c.name} ${c.raw}`).join("; ") : event.text;
    case "model_failed": return `${event.error?.kind}: ${event.error?.detail ?? ""}`;
    case "skill_started": return event.skill;
    case "skill_finished": return `${event.skill}: ${event.outcome?.status}, ${duration(event.duration_ms)}`;
    case "agent_reported": return `${event.report?.status}, ${duration(event.report?.duration_ms)}: ${event.report?.result ?? ""}`;
    case "decided": return `${event.component}: ${event.decision}. ${event.reasoning}`;
    case "approval_requested": return `${event.skill} ${argumentText(event.arguments)}`;
    case "deferred": return `until ${exactTime(event.until)}: ${event.reason}`;
    case "turn_started": return `${event.mode}${event.route?.length ? `, ${event.route.join(", ")}` : ""}`;
    default: return event.text ?? event.reason ?? event.by ?? "";
  }
}

// The plan that the model wrote before it acted, the newest one; what it replaced is counted.
function planOf(turn) {
  const plan = turn.plans?.at(-1);
  if (!plan) return null;
  const before = turn.plans.length - 1;
  return h("div.turn-plan", h("ol", plan.steps.map((step) => h("li", step))), before ? h("p.dim", `Changed ${before === 1 ? "once" : `${before} times`}.`) : null);
}
