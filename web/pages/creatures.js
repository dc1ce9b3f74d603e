// Creatures: the parts of Annie as 48 animals on a dark stage, moved by the events of the log and by nothing else.

import { effects, CREATURES, kindOf, LASTS_MS, ZONES } from "../creatures/map.js";
import { clear, h, keyed, replace, svg } from "../lib/dom.js";
import { ago, duration, last6, plural } from "../lib/format.js";
import { empty, status } from "../lib/states.js";
import { CLASSES, facts as terms, tabs } from "./listing.js";

/** How long a caption stays after its creature came to rest. */
const CAPTION_MS = 2500;
/** The pause between two creatures that one event moves, and the longest pause between two events. */
const STEP_MS = 110;
const GAP_MS_MAX = 400;
/** With more steps than this the stage hurries, so that it stays less than some seconds behind. */
const STEPS_CALM = 24;
/** Steps that are played at most; older ones are counted only. */
const STEPS_MAX = 240;
const HOUR_MS = 3600e3;
const AGE_MS = 10000;
const CONVERSATIONS = 20;
const WORDS = { idle: "Idle", activating: "Active", working: "Working", completing: "Done", error: "Error", yielding: "Gave way", spawning: "Appeared" };
const KINDS = { idle: "idle", activating: "accent", working: "accent", completing: "good", error: "bad", yielding: "warn", spawning: "wait" };

/** The usual way of a message, drawn as faint paths. */
const WAY = ["cerberus", "ibis", "golem", "hawk", "basilisk", "clockwork", "ouroboros", "dragon", "sphinx", "griffin", "spider", "pythia", "unicorn", "seahorse", "oracle", "nymph"];

export function mount(root, ctx) {
  ctx.title("Creatures");
  const known = { skills: new Set(), backends: [], channels: 0, servers: 0, voiceTasks: new Set() };
  const seen = new Set();
  const creatures = new Map(CREATURES.map((creature) => [creature.id, { ...creature, state: "idle", caption: "", at: null, times: [], works: new Map(), timers: {} }]));

  const view = tabs(ctx, "view", [["stage", "Stage"], ["table", "Table"]], "Stage or table", show);
  const note = h("p.dim.stage-note", {}, "Shows the events of your conversations and the rounds of all backends as they are stored.");
  const lines = svg("svg", { class: "ways", "aria-hidden": "true" });
  const trails = svg("g", { class: "trails" });
  const faint = svg("g", { class: "faint" });
  lines.append(faint, trails);
  const zones = ZONES.map((zone) => h("section.zone." + zone.id, { aria: { label: zone.title } }, h("h2", {}, zone.title), h("div.cells", {}, ...CREATURES.filter((one) => one.zone === zone.id).map((one) => cell(creatures.get(one.id))))));
  const stage = h("div.stage", { role: "group", aria: { label: "Creatures" } }, lines, ...zones);
  const about = h("div.panel.about", { aria: { live: "off" } });
  const spoken = h("p.visually-hidden", { role: "status", aria: { live: "polite" } });
  const list = h("table.creature-table", {}, h("caption", {}, "All creatures"), h("thead", {}, h("tr", {}, ...["Creature", "Zone", "Part of Annie", "State", "Last", "Events in the last hour"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}));
  const tableBox = h("div.panel.table-scroll", { tabIndex: 0, role: "region", aria: { label: "Creatures as a table" } }, list);
  const jobs = jobPanel(ctx, creatures, move, known);
  const mainPart = h("div.stack", {}, stage, about);
  root.append(h("div.stack.creatures", {}, h("div.toolbar", {}, view.el, note), mainPart, tableBox, jobs.el, spoken));

  /* Cells */

  function cell(one) {
    one.text = h("span.caption", {}, one.part);
    one.node = h("button.creature", { type: "button", data: { id: one.id, state: "idle" }, on: { focus: () => select(one.id), mouseenter: () => describe(one.id), click: () => select(one.id) } },
      svg("svg", { viewBox: "0 0 48 48", "aria-hidden": "true" }, svg("path", { d: one.drawing })),
      h("span.name", {}, one.id), one.text);
    one.node.setAttribute("aria-label", `${one.id}: ${one.part}`);
    return one.node;
  }

  const installed = (one) => (seen.has(one.id) ? true : one.is(known));

  function mark() {
    for (const one of creatures.values()) {
      const is = installed(one) === true;
      one.node.classList.toggle("absent", !is);
      if (one.state === "idle" && !one.caption) one.text.textContent = is ? one.part : "not installed";
      one.node.setAttribute("aria-label", `${one.id}: ${one.part}${is ? "" : ", not installed"}`);
    }
    table();
    describe(ctx.route.query.sel || "golem");
  }

  /* States */

  function setState(one, state) {
    one.state = state;
    // A state that follows itself begins anew.
    if (one.node.dataset.state === state && state !== "working" && state !== "idle") {
      one.node.dataset.state = "idle";
      void one.node.offsetWidth;
    }
    one.node.dataset.state = state;
  }

  function setCaption(one, text) {
    one.caption = text;
    one.text.textContent = text || (installed(one) === true ? one.part : "not installed");
    one.node.classList.toggle("speaks", Boolean(text));
  }

  /** Moves a creature. `work` names what it works on, so that the end of that work ends its glow. */
  function move(id, state, caption, work) {
    const one = creatures.get(id);
    if (!one || installed(one) !== true) return;
    clearTimeout(one.timers.state);
    clearTimeout(one.timers.caption);
    if (caption) setCaption(one, caption);
    one.at = Date.now();
    if (work !== undefined) {
      if (state === "working" || state === "spawning") one.works.set(work, caption);
      else one.works.delete(work);
    }
    setState(one, state);
    if (state !== "working") one.timers.state = setTimeout(() => rest(one), LASTS_MS[state]);
    if (document.hidden) return;
    if (ctx.route.query.sel === id || shownId === id) describe(id);
    if (!tableBox.hidden) table();
  }

  /** The state after a movement: work that goes on, or nothing. */
  function rest(one) {
    if (one.works.size) {
      setState(one, "working");
      setCaption(one, [...one.works.values()].at(-1));
      return;
    }
    setState(one, "idle");
    clearTimeout(one.timers.caption);
    one.timers.caption = setTimeout(() => { setCaption(one, ""); if (shownId === one.id) describe(one.id); }, CAPTION_MS);
    if (!tableBox.hidden) table();
  }

  function workEnded(work) {
    for (const one of creatures.values()) {
      for (const key of [...one.works.keys()]) if (key === work || key.startsWith(work + " ")) one.works.delete(key);
      if (one.state === "working" && !one.works.size) rest(one);
    }
  }

  /* Playing events */

  const steps = [];
  let player = null;
  let lastEventAt = 0;
  const places = new Map();

  function play(events) {
    for (const event of events) {
      if (event.kind === "received" && event.priority === "realtime") known.voiceTasks.add(event.task_id);
      const moved = effects(event, known);
      const at = Date.parse(event.at) || Date.now();
      const gap = lastEventAt ? Math.min(GAP_MS_MAX, Math.max(0, at - lastEventAt)) : 0;
      lastEventAt = at;
      moved.forEach((step, n) => {
        const one = creatures.get(step.id);
        one.times.push(at);
        const skill = event.call_id || event.skill || event.round;
        const work = `${event.task_id || ""} ${event.agent || ""} ${skill === undefined ? "" : skill}`;
        steps.push({ ...step, work, task: event.task_id, waits: n === 0 ? Math.max(STEP_MS, gap) : STEP_MS });
      });
      if (["answered", "failed", "cancelled"].includes(event.kind)) steps.push({ ends: event.task_id, waits: 0 });
    }
    while (steps.length > STEPS_MAX) {
      const step = steps.shift();
      if (step.ends) workEnded(step.ends);
    }
    if (!player) next();
  }

  function next() {
    const step = steps.shift();
    if (!step) { player = null; announce(); return; }
    if (step.ends) {
      workEnded(step.ends);
      places.delete(step.ends);
    } else {
      if (!seen.has(step.id) && step.id === "archivist") { seen.add(step.id); mark(); }
      move(step.id, step.state, step.caption, step.work);
      if (step.id !== "ouroboros" && step.id !== "dragon") {
        trail(places.get(step.task), step.id);
        places.set(step.task, step.id);
        if (places.size > 200) places.delete(places.keys().next().value);
      }
    }
    const hurry = steps.length > STEPS_CALM ? STEPS_CALM / steps.length : 1;
    player = setTimeout(next, step.waits * hurry);
  }

  let announcedAt = 0;
  function announce() {
    if (Date.now() - announcedAt < 2000) return;
    announcedAt = Date.now();
    const speaking = [...creatures.values()].filter((one) => one.caption && one.at > announcedAt - 4000).slice(-3);
    if (speaking.length) spoken.textContent = speaking.map((one) => `${one.id}: ${one.caption}`).join(". ");
  }

  /* Paths */

  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const middle = (id) => {
    const node = creatures.get(id).node;
    const box = stage.getBoundingClientRect();
    const own = node.getBoundingClientRect();
    return [own.left - box.left + own.width / 2, own.top - box.top + 28];
  };
  const curve = ([ax, ay], [bx, by]) => `M${ax} ${ay}C${ax + (bx - ax) * 0.5} ${ay} ${bx - (bx - ax) * 0.5} ${by} ${bx} ${by}`;

  function draw() {
    if (stage.hidden || stage.offsetParent === null) return;
    lines.setAttribute("viewBox", `0 0 ${stage.clientWidth} ${stage.clientHeight}`);
    lines.setAttribute("width", stage.clientWidth);
    lines.setAttribute("height", stage.clientHeight);
    clear(faint);
    for (let n = 1; n < WAY.length; n += 1) faint.append(svg("path", { d: curve(middle(WAY[n - 1]), middle(WAY[n])) }));
  }

  function trail(from, to) {
    if (!from || from === to || still.matches || document.hidden || stage.offsetParent === null) return;
    const path = svg("path", { d: curve(middle(from), middle(to)), pathLength: "1" });
    path.addEventListener("animationend", () => path.remove());
    trails.append(path);
    while (trails.childNodes.length > 24) trails.firstChild.remove();
  }

  const sized = new ResizeObserver(draw);
  sized.observe(stage);

  /* Details */

  let shownId = "";
  function select(id) {
    ctx.setQuery({ sel: id });
    describe(id);
  }

  function describe(id) {
    const one = creatures.get(id);
    if (!one) return;
    for (const other of creatures.values()) other.node.classList.toggle("shown", other === one);
    shownId = id;
    const is = installed(one);
    const actor = is === true && one.actor && one.actor(known);
    replace(about,
      h("div.about-drawing", {}, svg("svg", { viewBox: "0 0 48 48", "aria-hidden": "true" }, svg("path", { d: one.drawing }))),
      h("div.grow", {},
        h("div.toolbar", {}, h("h2", {}, one.id), is === true ? status(KINDS[one.state], WORDS[one.state]) : status("idle", "Not installed")),
        h("p", {}, one.part),
        is === true
          ? terms([["Last", one.caption || (one.at ? ago(one.at) : "nothing since this page is open")], ["Events in the last hour", String(recent(one))], ["Actor", actor && h("a.mono", { href: `#/actors?sel=${encodeURIComponent(actor)}` }, actor)]])
          : h("p.dim", {}, is)));
  }

  const recent = (one) => {
    const from = Date.now() - HOUR_MS;
    while (one.times.length && one.times[0] < from) one.times.shift();
    return one.times.length;
  };

  function table() {
    keyed(list.tBodies[0], [...creatures.values()], (one) => one.id, () => h("tr", {}, h("th", { scope: "row" }), ...Array.from({ length: 5 }, () => h("td", {}))), (row, one) => {
      const is = installed(one) === true;
      const texts = [one.id, ZONES.find((zone) => zone.id === one.zone).title, one.part, is ? WORDS[one.state] : "Not installed", is ? one.caption : installed(one), is ? String(recent(one)) : ""];
      texts.forEach((text, n) => { if (row.children[n].textContent !== text) row.children[n].textContent = text; });
      row.children[5].className = "num";
      row.classList.toggle("absent", !is);
    });
  }

  function show() {
    const isTable = view.now() === "table";
    mainPart.hidden = isTable;
    tableBox.hidden = !isTable;
    if (isTable) table();
    else draw();
  }

  /* What this server has */

  async function learn() {
    // Without the scope of a request its part stays empty. Any other failure is shown.
    const quiet = (promise, otherwise) => promise.catch((error) => {
      if (error.status !== 403 && error.name !== "AbortError") note.classList.add("lost");
      return otherwise;
    });
    const [skills, now, settings, mcp] = await Promise.all([
      quiet(ctx.api.get("/skills"), { skills: [], version: 0 }), quiet(ctx.api.get("/status"), { backends: [] }),
      quiet(ctx.api.get("/settings"), { settings: [] }), quiet(ctx.api.get("/mcp"), { servers: [] })]);
    if (ctx.signal.aborted) return;
    const values = new Map(settings.settings.map((one) => [one.key, one.value]));
    const isCloud = new Set();
    for (const [key, value] of values) {
      const part = /^backend\.(\d+)\.privacy$/.exec(key);
      if (part && value === "cloud") isCloud.add(values.get(`backend.${part[1]}.name`));
    }
    known.skills = new Set(skills.skills.map((skill) => skill.name));
    known.backends = now.backends.map((one) => ({ name: one.name, kind: isCloud.has(one.name) ? "cloud" : kindOf(one.about) }));
    known.channels = [...values.keys()].filter((key) => /^channel\./.test(key)).length;
    known.servers = mcp.servers.length;
    if (version !== undefined && skills.version !== version) play([{ kind: "skills_changed", version: skills.version, at: new Date().toISOString() }]);
    version = skills.version;
    mark();
  }
  let version;

  /* Events */

  const positions = new Map();
  const mountedAt = Date.now();
  let isFirst = true;
  let isPulling = false;
  let again = false;

  async function pull() {
    if (isPulling) { again = true; return; }
    isPulling = true;
    try {
      do {
        again = false;
        const { conversations } = await ctx.api.get("/conversations", { query: { limit: CONVERSATIONS, stateless: true } });
        const all = [];
        for (const one of conversations) {
          const isNew = Date.parse(one.created_at) >= mountedAt - 1000;
          const after = positions.get(one.id) ?? (isNew ? 0 : one.last_seq);
          positions.set(one.id, Math.max(after, one.last_seq));
          if (one.last_seq <= after || (isFirst && !isNew)) continue;
          const found = await ctx.api.get(`/conversations/${one.id}/events`, { query: { after, limit: 500 } });
          all.push(...found.events.filter((event) => event.seq <= one.last_seq || positions.set(one.id, event.seq)));
        }
        isFirst = false;
        all.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : a.seq - b.seq));
        play(all);
      } while (again && !ctx.signal.aborted);
      note.classList.remove("lost");
    } catch (error) {
      if (!ctx.signal.aborted) note.classList.add("lost");
    } finally {
      isPulling = false;
    }
  }

  let changes;
  ctx.live.on("status", ({ data }) => {
    if (data.changes === changes) return;
    const count = changes === undefined ? 0 : data.changes - changes;
    changes = data.changes;
    if (count > 0) play([{ kind: "commit", count, at: new Date().toISOString() }]);
    pull();
  });
  ctx.live.on("notifications", ({ data }) => play([{ kind: "notification", text: data.text, at: data.at, task_id: (data.task_ids || [])[0] }]));
  ctx.live.on("queue", ({ data }) => { jobs.queue(data); rounds(data.running || []); });

  /** Backends glow while a round runs on them. */
  function rounds(running) {
    for (const one of creatures.values()) {
      for (const key of [...one.works.keys()]) if (key.startsWith("round ") && !running.some((round) => key === `round ${round.task_id} ${round.backend}`)) {
        one.works.delete(key);
        if (one.state === "working" && !one.works.size) rest(one);
      }
    }
    for (const round of running) {
      const id = creatureOf(round.backend, known);
      const one = id && creatures.get(id);
      const key = `round ${round.task_id} ${round.backend}`;
      if (one && !one.works.has(key)) move(id, "working", `${round.backend}: ${jobs.titleOf(round.task_id) || "round of " + last6(round.task_id)}`, key);
    }
  }

  /** The events of the last hour, for the counts only. */
  async function count() {
    try {
      const found = await ctx.api.get("/events", { query: { from: new Date(Date.now() - HOUR_MS).toISOString() } });
      for (const event of found.events.reverse()) {
        if (event.kind === "received" && event.priority === "realtime") known.voiceTasks.add(event.task_id);
        for (const step of effects(event, known)) creatures.get(step.id).times.push(Date.parse(event.at));
      }
      for (const one of creatures.values()) one.times.sort((a, b) => a - b);
      describe(shownId);
    } catch { /* The counts then begin with this page. */ }
  }

  mark();
  show();
  ctx.route.subscribe(show);
  learn().then(count);
  pull();
  ctx.every(30000, learn);
  ctx.every(AGE_MS, jobs.ages);
  ctx.keys({ v: ["Stage or table", () => { ctx.setQuery({ view: view.now() === "table" ? null : "table" }); }] });
  return () => {
    sized.disconnect();
    clearTimeout(player);
    for (const one of creatures.values()) { clearTimeout(one.timers.state); clearTimeout(one.timers.caption); }
  };
}

/** The creature of a backend. */
function creatureOf(name, known) {
  const backend = known.backends.find((one) => one.name === name);
  if (!backend) return null;
  if (backend.kind === "cloud") return "centaur";
  if (backend.kind === "command") return "djinn";
  return ["unicorn", "fairy", "lion"][known.backends.filter((one) => one.kind === "local").indexOf(backend)] || null;
}

/* The jobs below the stage */

function jobPanel(ctx, creatures, move, known) {
  const rows = h("tbody", {});
  const none = h("div", {}, empty({ small: true, title: "No jobs", text: "What Annie works on, and what waits for its turn, is listed here." }));
  const summary = h("p.dim.foot", {});
  const grid = h("table.creature-table", {}, h("caption.visually-hidden", {}, "Jobs"), h("thead", {}, h("tr", {}, ...["State", "Message", "Class", "Worker", "Backend", "Why", "Age"].map((text, n) => h(n === 6 ? "th.num" : "th", { scope: "col" }, text)))), rows);
  const scroll = h("div.table-scroll", { tabIndex: 0, role: "region", aria: { label: "Jobs" } }, grid);
  const el = h("section.panel.job-panel", {}, h("div.panel-head", {}, h("h2", {}, "Jobs"), h("div.right", {}, h("a", { href: "#/jobs" }, "All jobs"))), scroll, none, summary);
  const titles = new Map();
  const since = new Map();
  const gave = new Map();
  let last = { waiting: [], running: [], backends: [] };

  async function names() {
    try {
      const { jobs } = await ctx.api.get("/jobs");
      titles.clear();
      for (const job of jobs) titles.set(job.task_id, job);
      show();
    } catch { /* Without the scope the messages stay hidden, the rest is shown. */ }
  }

  function queue(data) {
    const now = Date.now();
    const waiting = data.waiting || [];
    const running = data.running || [];
    for (const one of waiting) {
      if (one.preemptions > (gave.get(one.task_id) ?? one.preemptions)) {
        one.flash = true;
        const worker = creatureOf(one.backend, known);
        move("clockwork", "yielding", `${last6(one.task_id)} gave way`);
        if (worker) move(worker, "yielding", `gave way: ${last6(one.task_id)}`);
      }
      gave.set(one.task_id, one.preemptions || 0);
      since.set(one.task_id, now - (one.waited_ms || 0));
    }
    for (const one of running) since.set(one.task_id, Date.parse(one.since));
    for (const map of [gave, since]) for (const id of [...map.keys()]) if (!waiting.some((one) => one.task_id === id) && !running.some((one) => one.task_id === id)) map.delete(id);
    last = data;
    if (waiting.concat(running).some((one) => !titles.has(one.task_id))) names();
    show();
  }

  const classOf = (one) => one.priority || (titles.get(one.task_id) || {}).priority || "";

  function show() {
    const active = (last.running || []).map((one) => ({ ...one, state: "active" }));
    const queued = (last.waiting || []).filter((one) => !active.some((other) => other.task_id === one.task_id));
    queued.sort((a, b) => (a.position ?? 1e9) - (b.position ?? 1e9));
    const shown = [...active, ...queued].slice(0, 50);
    none.hidden = shown.length > 0;
    scroll.hidden = shown.length === 0;
    keyed(rows, shown, (one) => `${one.task_id} ${one.state === "active" ? one.backend : ""}`, () => h("tr", {}, ...Array.from({ length: 7 }, (_, n) => h(n === 6 ? "td.num" : "td", {}))), (row, one) => {
      const cells = row.children;
      const word = one.state === "active" ? "Active" : { waiting: "Queued", between: "Queued", held: "Held", delayed: "Delayed" }[one.state] || one.state;
      if (cells[0].textContent !== word) replace(cells[0], status(one.state === "active" ? "accent" : one.state === "held" || one.state === "delayed" ? "idle" : "wait", word));
      const worker = creatureOf(one.backend, known);
      const texts = [null, (titles.get(one.task_id) || {}).title || last6(one.task_id), classOf(one), one.state === "active" && worker ? worker : "", one.backend || "", one.why || ""];
      texts.forEach((text, n) => { if (text !== null && cells[n].textContent !== text) { cells[n].textContent = text; cells[n].title = text; } });
      row.dataset.task = one.task_id;
      if (one.flash) {
        row.classList.remove("flash");
        void row.offsetWidth;
        row.classList.add("flash");
      }
    });
    ages();
    const backends = [...new Set(active.map((one) => one.backend))].join(", ");
    summary.textContent = `Queue depth: ${queued.length} · Active: ${active.length} · Backend: ${backends || "none"}${shown.length < active.length + queued.length ? ` · ${plural(active.length + queued.length - shown.length, "further job")}` : ""}`;
  }

  /** The ages, which otherwise stand still, every ten seconds. */
  function ages() {
    for (const row of rows.children) {
      const at = since.get(row.dataset.task);
      const seconds = Math.max(0, Math.round((Date.now() - at) / 1000));
      const text = at ? (seconds ? duration(seconds * 1000) : "0 s") : "";
      if (row.children[6].textContent !== text) row.children[6].textContent = text;
    }
  }

  show();
  return { el, queue, ages, titleOf: (task) => (titles.get(task) || {}).title };
}
