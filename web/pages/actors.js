// Who lives, who is busy, who fell?

import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { table } from "../lib/table.js";
import { drawer, dialog } from "../lib/overlay.js";
import { ago, duration, num, plural, unit } from "../lib/format.js";
import { mark, status, jsonView, broken } from "../lib/states.js";
import { actionsList } from "../lib/actions.js";

// Long ids by their last six characters.
const briefly = (text) => text.replace(/((?:conv|task|op)_)[0-9a-f]{20,}/g, (whole, kind) => `${kind}…${whole.slice(-6)}`);

const FALLEN_MS = 60_000;
const LIMIT = 5_000;

export function mount(root, ctx) {
  ctx.title("Actors");
  ctx.box.classList.add("fill");
  root.classList.add("grow", "fillcol");

  const actors = new Map(); // path -> row
  const fallen = new Map(); // path#incarnation -> row
  let expected = 0, total = 0, all = 0, isKnown = false;
  let open = null;
  let folded = new Set((ctx.route.query.folded ?? "").split(",").filter(Boolean));

  const busyOnly = () => ctx.route.query.busy === "1";
  const search = () => ctx.route.query.q ?? "";
  const busyButton = h("button.btn", { type: "button", aria: { pressed: String(busyOnly()) }, on: { click: () => {
    ctx.setQuery({ busy: busyOnly() ? null : "1" });
    watch();
  } } }, icon("bolt"), "Busy only");
  const crashesButton = h("button.btn", { type: "button", on: { click: showFalls } }, icon("skull"), "Crashes");
  const actionsButton = h("button.btn", { type: "button", on: { click: showActions } }, icon("audit"), "Actions");

  const list = table({
    ctx, caption: "Actors", noun: "actor", key: (row) => row.key, cards: true, selectable: false, filterName: "q",
    search: (row) => `${row.path} ${row.kind}`.toLowerCase(),
    empty: { title: "No actor fits", get text() { return busyOnly() ? "Idle actors are hidden while only busy ones are shown." : "No actor has these words in its path."; }, icon: "actors" },
    toolbar: [busyButton, crashesButton, actionsButton],
    onFilter: () => watchSoon(),
    columns: [
      { id: "path", label: "Actor", grow: true, width: "270px", cell: name, sort: (row) => row.path },
      { id: "status", label: "Status", width: "104px", cell: (row) => statusOf(row), sort: (row) => `${row.gone ? 0 : row.current ? 1 : 2}` },
      { id: "doing", label: "Doing", grow: true, width: "170px", cell: doing, sort: (row) => row.current_ms },
      { id: "mailbox", label: "Mailbox", num: true, width: "88px", cell: (row) => mailbox(row), sort: (row) => row.mailbox_depth },
      { id: "handled", label: "Handled", num: true, width: "92px", cell: (row) => num(row.handled), sort: (row) => row.handled },
      { id: "busy", label: "Busy", num: true, width: "92px", cell: (row) => unit(duration((row.busy_us ?? 0) / 1000)), sort: (row) => row.busy_us, hideNarrow: true },
      { id: "up", label: "Up since", width: "110px", cell: (row) => ago(row.started_at), sort: (row) => row.started_at },
    ],
    filterKeys: {
      refused: { label: "refused messages", kind: "number", of: (row) => row.refused },
      kind: { label: "kind of actor", values: () => [...new Set([...actors.values()].map((a) => a.kind))].sort(), of: (row) => row.kind },
      mailbox: { label: "waiting messages", kind: "number", of: (row) => row.mailbox_depth },
      handled: { label: "handled messages", kind: "number", of: (row) => row.handled },
    },
    rowClass: (row) => (row.gone ? "gone" : ""),
    onOpen: (row) => ctx.setQuery({ sel: row.path }),
    actions: [
      { id: "restart", icon: "restart", label: () => "Restart actor", run: (rows) => operate("restart", rows[0]) },
      { id: "stop", icon: "stop", label: () => "Stop actor", run: (rows) => operate("stop", rows[0]) },
      { id: "kill", icon: "skull", danger: true, label: () => "Kill actor", run: (rows) => operate("kill", rows[0]) },
    ],
  });
  replace(root, list.el);

  function name(row) {
    const depth = row.path === "/" ? 0 : row.path.split("/").length - 1;
    const label = row.path === "/" ? "root" : briefly(row.path.split("/").at(-1));
    const isFlat = Boolean(search().trim()) || busyOnly();
    const toggle = !isFlat && row.children ? h("button.treetoggle", { type: "button", tabindex: "-1", aria: { label: folded.has(row.path) ? `Unfold ${label}` : `Fold ${label}`, expanded: String(!folded.has(row.path)) }, on: { click: (event) => (event.stopPropagation(), fold(row.path)) } }, icon(folded.has(row.path) ? "chevron" : "down")) : h("span.treetoggle");
    const cell = h("span.row.treecell", { title: row.path }, isFlat ? null : toggle, h("span.cut", { class: row.gone ? "struck" : "" }, isFlat ? briefly(row.path) : label), h("span.dim.small", row.kind), !isFlat && folded.has(row.path) && row.children ? h("span.chip", `${num(row.children)} below`) : null);
    if (!isFlat) cell.style.setProperty("--indent", `${depth * 16}px`);
    return cell;
  }

  function fold(path) {
    if (folded.has(path)) folded.delete(path);
    else folded.add(path);
    ctx.setQuery({ folded: [...folded].join(",") || null });
    draw();
  }

  function doing(row) {
    if (row.gone) return h("span.cut", { title: row.by ?? row.cause }, row.by ? `${({ kill: "killed", stop: "stopped", restart: "restarted" })[row.cause] ?? row.cause} by ${row.by}` : row.cause ?? "ended");
    if (row.current) return h("span.cut", row.current, h("span.dim", ` for ${duration(row.current_ms)}`));
    return h("span.dim", "–");
  }

  function statusOf(row) {
    if (row.gone) return mark("bad", row.by ? ({ kill: "Killed", stop: "Stopped", restart: "Restarted" }[row.cause] ?? "Ended") : "Fallen");
    if (row.current) return mark("accent", "Busy");
    if (row.status !== "running") return mark("wait", row.status[0].toUpperCase() + row.status.slice(1));
    return mark("idle", "Idle");
  }

  const mailbox = (row) => h("span.tabular", { title: `highest ${num(row.mailbox_depth_high)}, limit ${num(row.mailbox_max)}` }, row.mailbox_depth ? num(row.mailbox_depth) : h("span.dim", "0"));

  let frame = 0;
  const draw = () => {
    // Until the tree has come, nothing is known.
    if (!isKnown) return;
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      const now = Date.now();
      for (const [k, row] of fallen) if (now - row.goneAt > FALLEN_MS) fallen.delete(k);
      const rows = [...actors.values(), ...fallen.values()].sort((a, b) => (a.path < b.path ? -1 : a.path > b.path ? 1 : a.incarnation - b.incarnation));
      const below = new Map();
      for (const row of rows) {
        let at = row.path;
        while (at !== "/" && at) {
          at = at.lastIndexOf("/") > 0 ? at.slice(0, at.lastIndexOf("/")) : "/";
          below.set(at, (below.get(at) ?? 0) + 1);
        }
      }
      const hidden = (path) => {
        let at = path;
        while (at !== "/" && at) {
          at = at.lastIndexOf("/") > 0 ? at.slice(0, at.lastIndexOf("/")) : "/";
          if (folded.has(at)) return true;
        }
        return false;
      };
      const isFlat = Boolean(search().trim()) || busyOnly();
      const shown = [];
      for (const row of rows) {
        const children = row.gone ? 0 : below.get(row.path) ?? 0;
        if (row.children !== children) Object.assign(row, { children });
        if (isFlat || !hidden(row.path)) shown.push(row);
      }
      list.setRows(shown, { total: total > actors.size ? total : null });
      list.open(open ? keyOf(open.path) : null);
    });
  };
  const keyOf = (path) => actors.get(path)?.key ?? path;

  function watch() {
    busyButton.setAttribute("aria-pressed", String(busyOnly()));
    busyButton.classList.toggle("primary", busyOnly());
    // Terms with a key are answered here; the first plain word is searched by the server, so that any of 100,000 actors is found.
    const word = search().split(/\s+/).find((term) => term && !term.includes(":")) ?? "";
    expected = 0;
    ctx.live.filterTree({ actors_max: LIMIT, busy: busyOnly() || undefined, search: word || undefined });
  }
  let timer = 0;
  const watchSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(watch, 200);
  };

  ctx.live.on("tree", ({ data }) => {
    if (data.seq === 0) {
      const before = new Set(actors.keys());
      for (const actor of data.changed) before.delete(actor.path);
      for (const path of before) actors.delete(path);
    } else if (data.seq !== expected) {
      watch();
      return;
    }
    expected = data.seq + 1;
    isKnown = true;
    total = data.total;
    all = data.all;
    for (const end of data.gone) {
      const row = actors.get(end.path);
      if (row && row.incarnation === end.incarnation) actors.delete(end.path);
      if (end.cause) {
        const key = `${end.path}#${end.incarnation}`;
        fallen.set(key, { ...(row ?? { path: end.path, kind: "", mailbox_depth: 0, mailbox_depth_high: 0, mailbox_max: 0, handled: 0, refused: 0, busy_us: 0 }), key, gone: true, goneAt: Date.now(), cause: end.cause, by: end.by, current: null, $text: undefined });
      }
    }
    for (const actor of data.changed) actors.set(actor.path, { ...actor, key: `${actor.path}#${actor.incarnation}` });
    ctx.title("Actors", [], [h("span.dim.tabular", `${num(all)} alive`)]);
    draw();
    if (open) openSoon();
  });
  ctx.every(5_000, draw);

  async function operate(verb, row) {
    if (!row || row.gone) return;
    const isRoot = row.path === "/";
    const words = { kill: "It ends at once, as by a fault. Its parent starts the next incarnation, which continues from the log.", stop: "It ends after the message that it handles now. If it has work left, its parent starts it again.", restart: "It ends in good order and starts again." };
    const answer = await dialog({
      title: `${verb[0].toUpperCase() + verb.slice(1)} ${row.path}?`, body: [h("p", words[verb]), h("p.dim", `Expected incarnation: ${row.incarnation}. If another one runs by then, nothing happens.`), isRoot ? h("p", "This is the root: the whole server ends with it.") : null],
      confirm: `${verb[0].toUpperCase() + verb.slice(1)} actor`, danger: verb !== "restart", reason: "required", typeName: isRoot ? "root" : undefined,
    });
    if (!answer) return;
    await ctx.act(`${verb} ${row.path}`, () => ctx.api.post(`/actors/${verb}`, { path: row.path, incarnation: row.incarnation, reason: answer.reason, force: isRoot }), { done: `${{ kill: "Killed", stop: "Stopped", restart: "Restarted" }[verb]} ${row.path}` });
  }

  async function showFalls() {
    const panel = drawer({ title: "Crashes", label: "crashes" });
    try {
      const found = await ctx.api.get("/actors/crashes");
      const items = [...found.crashes.map((c) => ({ ...c, word: "Crashed", kind2: "bad", text: c.reason })), ...(found.operated ?? []).map((o) => ({ ...o, word: { kill: "Killed", stop: "Stopped", restart: "Restarted" }[o.operation], kind2: "warn", text: `by ${o.by}` }))].sort((a, b) => (a.at < b.at ? 1 : -1));
      replace(panel.body, items.length ? h("ul.lines", items.map((item) => h("li.stack.tight", h("div.row", mark(item.kind2, item.word), h("a.cut.grow", { href: ctx.address("actors", [], { ...ctx.route.query, sel: item.path }) }, item.path), h("span.dim", ago(item.at))), h("div.wrap", item.text), item.last_messages?.length ? h("div.dim.small.wrap", `last messages: ${item.last_messages.slice(-6).join(", ")}`) : null))) : h("div.empty.small", h("p.empty-title", "No crashes"), h("p", "No actor has crashed or was ended by an operator since the start.")));
    } catch (error) {
      replace(panel.body, broken(error));
    }
  }

  // What operators did, also before the last start of the server.
  async function showActions() {
    const panel = drawer({ title: "What operators did", label: "actions" });
    const load = async () => {
      try {
        const { actions, next } = await ctx.api.get("/actions", { query: { limit: 100 } });
        replace(panel.body, actionsList(actions), next ? h("p.dim", "Older ones: ", h("code", `annie actions --next ${next}`)) : null);
      } catch (error) {
        replace(panel.body, broken(error, load));
      }
    };
    await load();
  }

  async function resetBudget(row) {
    const answer = await dialog({ title: `Reset the restart budget of ${row.path}?`, body: "What fell below it before counts no longer: it may fall as often as after a start before it is given up.", confirm: "Reset budget", reason: "required" });
    if (!answer) return;
    await ctx.act(`Reset budget of ${row.path}`, () => ctx.api.post("/actors/reset-budget", { path: row.path, incarnation: row.incarnation, reason: answer.reason }), { done: "The restart budget is whole again" });
  }

  let openTimer = 0;
  const openSoon = () => {
    if (!openTimer) openTimer = setTimeout(() => ((openTimer = 0), drawOpen()), 900);
  };

  function select(path) {
    if (!path) {
      list.open(null);
      return open?.handle.close({ quiet: true });
    }
    if (open?.path === path) return;
    const handle = drawer({ title: path, label: "actor", onClose: () => {
      open = null;
      list.open(null);
      if (ctx.route.query.sel === path) ctx.setQuery({ sel: null });
    } });
    open = { path, handle };
    list.open(keyOf(path));
    replace(handle.body, h("p.dim", "Loading"));
    drawOpen();
  }

  // The record of actions changes only by actions, so it is read when the actor or its incarnation changes.
  async function drawActs(mine) {
    if (mine.actsOf === mine.row.incarnation) return;
    mine.actsOf = mine.row.incarnation;
    try {
      const { actions } = await ctx.api.get("/actions", { query: { under: mine.path, limit: 20 } });
      if (open === mine) replace(mine.acts, actionsList(actions, { withTarget: actions.some((one) => one.target !== mine.path) }));
    } catch (error) {
      if (error.name !== "AbortError" && open === mine) replace(mine.acts, broken(error));
    }
  }

  async function drawOpen() {
    const mine = open;
    if (!mine) return;
    try {
      const found = await ctx.api.get("/actors/view", { query: { path: mine.path } });
      if (open !== mine) return;
      const a = found.actor;
      mine.row = a;
      const isConversation = /engine:(conv_[0-9a-f]+)/.exec(a.path);
      const state = mine.state ?? (mine.state = h("div"));
      const text = JSON.stringify(found.view);
      if (text !== mine.text) {
        mine.text = text;
        replace(state, found.view ? jsonView(found.view) : h("p.dim", "Too busy to answer; what is above is always known."));
      }
      replace(mine.handle.body,
        h("div.row.wraps", a.current ? status("accent", "Busy") : status("good", "Idle"), h("span.chip", a.kind), h("span.chip", `incarnation ${a.incarnation}`)),
        h("dl.kv", h("dt", "Doing"), h("dd", a.current ? `${a.current} for ${duration(a.current_ms)}` : "nothing, it waits for messages"),
          h("dt", "Up since"), h("dd", ago(a.started_at)), h("dt", "Status"), h("dd", a.status),
          h("dt", "Mailbox"), h("dd.tabular", `${num(a.mailbox_depth)} waiting, at most ${num(a.mailbox_depth_high)} so far, limit ${num(a.mailbox_max)}`),
          h("dt", "Handled"), h("dd.tabular", `${plural(a.handled, "message")}, ${num(a.refused)} refused`),
          h("dt", "Busy"), h("dd.tabular", `${duration(a.busy_us / 1000)} in all, ${a.handled ? duration(a.busy_us / 1000 / a.handled) : "–"} a message`)),
        h("h3", "What operators did to it"), mine.acts ?? (mine.acts = h("div", h("p.dim", "Loading"))),
        h("h3", "Its own view"), state);
      drawActs(mine);
      mine.handle.setActions([isConversation ? h("a.btn.primary", { href: `#/conversations/${isConversation[1]}` }, "Open the conversation") : null,
        h("button.btn", { type: "button", on: { click: () => operate("restart", a) } }, icon("restart"), "Restart"),
        ["supervisor", "root", "engine"].includes(a.kind) ? h("button.btn", { type: "button", on: { click: () => resetBudget(a) } }, icon("restart"), "Reset budget") : null,
        h("button.btn", { type: "button", on: { click: () => operate("stop", a) } }, icon("stop"), "Stop"),
        h("button.btn.danger", { type: "button", on: { click: () => operate("kill", a) } }, icon("skull"), "Kill actor")].filter(Boolean));
    } catch (error) {
      if (open !== mine || error.name === "AbortError") return;
      if (error.status === 404) {
        const end = [...fallen.values()].find((row) => row.path === mine.path);
        replace(mine.handle.body, status("bad", "Not running"), h("p", end ? (end.by ? `${end.cause} by ${end.by}` : end.cause) : "No actor runs at this path now."));
        mine.handle.setActions([]);
      } else replace(mine.handle.body, broken(error, drawOpen));
    }
  }

  ctx.commands([
    { title: "Actors: show busy ones only", run: () => busyButton.click() },
    { title: "Actors: crashes", run: showFalls },
    { title: "Actors: what operators did", run: showActions },
  ]);
  ctx.keys({ b: ["Busy only", () => busyButton.click()] });
  ctx.route.subscribe((now) => select(now.query.sel ?? null));
  watch();
  if (ctx.route.query.sel) select(ctx.route.query.sel);
  return () => {
    clearTimeout(timer);
    clearTimeout(openTimer);
    ctx.live.filterTree({});
  };
}
