// The frame: sign-in, rail, top bar, command palette, keyboard, and the life of pages.

import { h, replace, patchText } from "./lib/dom.js";
import { icon } from "./lib/icons.js";
import { client, key, ApiError } from "./lib/api.js";
import { live as liveStream } from "./lib/live.js";
import { router, address } from "./lib/router.js";
import { relative, num, plural, last6 } from "./lib/format.js";
import { toast, dialog, menu, closeDrawer } from "./lib/overlay.js";
import { skeleton, broken } from "./lib/states.js";
import { PAGES, GROUPS } from "./pages/registry.js";

const store = {
  get: (name) => {
    try {
      return localStorage.getItem(`annie.${name}`);
    } catch {
      return null;
    }
  },
  set: (name, value) => {
    try {
      localStorage.setItem(`annie.${name}`, value);
    } catch {
      // Settings are then forgotten with the page.
    }
  },
};

const root = document.documentElement;
const app = document.getElementById("app");
const session = { needsKey: false, who: "", scopes: null, version: "" };
const badges = new Map();
let current = null;
let isSignedOut = false;

// Appearance

const THEMES = ["system", "light", "dark"];
function setTheme(theme) {
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  store.set("theme", theme);
}
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
setTheme(THEMES.includes(store.get("theme")) ? store.get("theme") : "system");
root.dataset.density = store.get("density") === "compact" ? "compact" : "comfortable";

function toggleTheme() {
  setTheme(isDark() ? "light" : "dark");
  drawTheme();
}
function toggleDensity() {
  root.dataset.density = root.dataset.density === "compact" ? "comfortable" : "compact";
  store.set("density", root.dataset.density);
  dispatchEvent(new Event("annie:density"));
}

// Parts

const routes = router();
const api = client({ onUnauthenticated: signIn });
const frameApi = api.bound(undefined);
const live = liveStream({ onUnauthenticated: signIn });

const statusText = h("span.cut");
const statusIcon = h("span.mark.idle", icon("idle"));
const statusLine = h("a.status-line", { href: "#/overview" }, statusIcon, statusText);
const announced = h("div.visually-hidden", { role: "status", aria: { live: "polite" } });
const liveWord = h("span.word", "Live");
const liveButton = h("button.livebtn", { type: "button", on: { click: () => live.pause(!live.isPaused) } }, h("span.dot"), liveWord);
const themeButton = h("button.iconbtn", { type: "button", on: { click: toggleTheme } });
const densityButton = h("button.iconbtn.density", { type: "button", title: "Density", aria: { label: "Switch density" }, on: { click: toggleDensity } }, icon("density"));
const whoWord = h("span.word.cut", "…");
const whoButton = h("button.who", { type: "button", aria: { haspopup: "menu", label: "You" }, on: { click: whoMenu } }, icon("user"), whoWord);
const searchButton = h("button.searchbox", { type: "button", aria: { label: "Search and commands" }, on: { click: () => palette() } }, icon("search"), h("span", "Search and commands"), h("kbd", "Ctrl K"));
const top = h("header.top", statusLine, announced, searchButton, liveButton, densityButton, themeButton, whoButton);
const notice = h("div.notice", { role: "status", hidden: true });
const main = h("main", { id: "main", tabindex: "-1" });
const nav = h("div.bar");
const collapse = h("button.iconbtn", { type: "button", aria: { label: "Collapse the list of pages" }, title: "Collapse", on: { click: () => {
  app.classList.toggle("narrow-rail");
  store.set("rail", app.classList.contains("narrow-rail") ? "narrow" : "wide");
} } }, icon("menu"));
const rail = h("nav.rail", { aria: { label: "Pages" } }, h("a.brand", { href: "#/overview", aria: { label: "Annie, overview" } }, logo(), h("span", "Annie")), nav, h("div.foot", collapse));
if (store.get("rail") === "narrow") app.classList.add("narrow-rail");

function logo() {
  const box = h("span");
  box.append(icon("overview"));
  const svg = box.firstChild;
  svg.setAttribute("width", "20");
  svg.setAttribute("height", "20");
  svg.firstChild.setAttribute("d", "M4.500 20 12 4l7.500 16M7.500 14h9");
  svg.setAttribute("stroke-width", "2.2");
  svg.style.color = "var(--accent-text)";
  return box;
}

function drawTheme() {
  replace(themeButton, icon(isDark() ? "sun" : "moon"));
  themeButton.title = isDark() ? "Light theme" : "Dark theme";
  themeButton.setAttribute("aria-label", themeButton.title);
}

const railLinks = new Map();
let moreBadge = h("span.badge", { hidden: true });
const isSeen = (page) => !page.needs || !session.scopes || session.scopes.includes(page.needs);
const seenPages = () => PAGES.filter(isSeen);
function drawRail() {
  railLinks.clear();
  const lists = GROUPS.map((group) => h("ul", seenPages().filter((page) => page.group === group).map((page) => {
    const badge = h("span.badge", { hidden: true });
    const link = h("a.item", { href: `#/${page.id}`, title: page.title, data: { page: page.id } }, icon(page.icon), h("span.label", page.title), badge);
    railLinks.set(page.id, { link, badge });
    return h("li", { class: page.first ? "first" : "" }, link);
  })));
  const more = h("li.first.more", h("a.item", { href: "#", role: "button", aria: { haspopup: "menu" }, on: { click: (event) => {
    event.preventDefault();
    menu(event.currentTarget, seenPages().filter((page) => !page.first).map((page) => ({ label: badges.get(page.id) ? `${page.title} (${badges.get(page.id)})` : page.title, icon: page.icon, run: () => routes.go(`#/${page.id}`) })));
  } } }, icon("more"), h("span.label", "More"), (moreBadge = h("span.badge", { hidden: true }))));
  replace(nav, lists.filter((list) => list.children.length), h("ul.phone", more));
  for (const [id, { link }] of railLinks) if (id === routes.now.page) link.setAttribute("aria-current", "page");
  for (const [id, n] of badges) setBadge(id, n);
}

function setBadge(id, n) {
  badges.set(id, n);
  const found = railLinks.get(id);
  if (!found) return;
  const word = (count) => (count > 99 ? "99+" : String(count ?? ""));
  found.badge.hidden = !n;
  found.badge.textContent = word(n);
  // On a phone, the pages that are not in the bar are behind one button.
  const hidden = PAGES.filter((page) => !page.first).reduce((sum, page) => sum + (badges.get(page.id) ?? 0), 0);
  moreBadge.hidden = !hidden;
  moreBadge.textContent = word(hidden);
  if (id === "approvals") drawStatus();
  found.link.setAttribute("aria-label", n ? `${found.link.title}, ${n} waiting` : found.link.title);
}

// Status of the whole, in one sentence

function drawStatus() {
  const { phase, lastAt, error } = live.state;
  liveButton.dataset.phase = phase;
  const words = { live: "Live", connecting: "Connecting", paused: "Paused", hidden: "Paused", broken: "Reconnecting" };
  patchText(liveWord, words[phase] ?? phase);
  liveButton.title = live.isPaused ? "Updates are paused. Press to continue." : "Press to pause updates.";
  liveButton.setAttribute("aria-pressed", String(live.isPaused));
  liveButton.setAttribute("aria-label", `${words[phase]}: ${live.isPaused ? "continue updates" : "pause updates"}`);
  const isLost = phase === "broken";
  main.classList.toggle("is-stale", isLost);
  notice.hidden = !isLost;
  app.classList.toggle("has-notice", isLost);
  if (isLost) {
    const text = error?.status === 403 ? `No live updates: ${error.detail}` : lastAt ? `Reconnecting, last event ${relative(lastAt)}` : `Annie does not answer${error?.detail ? `: ${error.detail}` : ""}`;
    patchText(notice, text);
  }
  const summary = live.last("status");
  if (!summary) {
    patchText(statusText, isLost ? "No connection" : phase === "live" && session.scopes && !session.scopes.includes("ops:read") ? "Signed in" : "Connecting");
    return;
  }
  // What was known before the connection broke is no longer known.
  const { kind, text } = isLost ? { kind: "idle", text: "No connection" } : sentence(summary, badges.get("approvals") ?? 0);
  patchText(statusText, text);
  if (statusIcon.dataset.kind !== kind) {
    statusIcon.dataset.kind = kind;
    statusIcon.className = `mark ${kind}`;
    // Counts change all the time; a reader is told only when the state of the whole changes.
    patchText(announced, text);
    replace(statusIcon, icon(kind));
  }
  statusLine.title = text;
}

export function sentence(s, asks = 0) {
  const counts = [`${num(s.running)} running`, `${num(s.waiting)} waiting`];
  if (asks) counts.unshift(`${plural(asks, "call")} ${asks === 1 ? "waits" : "wait"} for you`);
  if (s.deferred) counts.push(`${num(s.deferred)} deferred`);
  const down = s.backends.filter((b) => b.state && b.state !== "up");
  if (!s.ready) return { kind: "bad", text: [`Not ready: ${s.problems[0] ?? "starting"}`, ...counts].join(" · ") };
  if (down.length) return { kind: down.length === s.backends.length ? "bad" : "warn", text: [`Backend ${down[0].name} is ${down[0].state}`, ...counts].join(" · ") };
  if (s.warnings.length) return { kind: "warn", text: [s.warnings[0], ...counts].join(" · ") };
  const closed = s.backends.find((b) => b.is_gate_closed);
  return { kind: closed ? "wait" : "good", text: [closed ? `Voice gate closed on ${closed.name}` : "All good", ...counts].join(" · ") };
}

function drawSession() {
  const hello = live.state.hello;
  if (!hello) return;
  session.who = hello.user;
  const isOther = JSON.stringify(session.scopes) !== JSON.stringify(hello.scopes);
  session.scopes = hello.scopes;
  if (isOther) drawRail();
  // The scopes are known only now: the page may be one that this key does not see.
  if (isOther && current && !isSeen(current.page)) {
    leave();
    enter(routes.now);
  }
  session.needsKey = hello.needs_keys;
  session.version = hello.version;
  patchText(whoWord, hello.user);
  whoButton.setAttribute("aria-label", `You: ${hello.user}`);
}

function whoMenu() {
  menu(whoButton, [
    { label: `Annie ${session.version}`, icon: "info", disabled: true, run: () => {} },
    { label: "Keyboard shortcuts", icon: "key", run: showKeys },
    { label: "API description", icon: "audit", run: () => open("/api/openapi.json", "_blank", "noopener") },
    key.get() ? { label: "Sign out", icon: "close", run: () => (key.clear(), location.reload()) } : null,
  ]);
}

// Sign-in

function signIn(error) {
  if (isSignedOut) return;
  isSignedOut = true;
  live.stop();
  leave();
  const hadKey = key.get();
  key.clear();
  const problem = h("span.problem", { role: "alert", hidden: !hadKey }, hadKey ? error.detail || "This key is not accepted." : "");
  const input = h("input", { type: "password", id: "key", name: "key", autocomplete: "current-password", placeholder: "annie_…", aria: { describedby: "key-hint" } });
  const form = h("form", { on: { submit: async (event) => {
    event.preventDefault();
    if (!input.value.trim()) return input.focus();
    key.set(input.value.trim());
    try {
      const response = await fetch("/api/v1/live?topics=status,notifications", { headers: { authorization: `Bearer ${key.get()}` }, method: "GET" });
      if (response.status === 401) {
        const said = (await response.json().catch(() => ({}))).detail || "This key is not accepted.";
        problem.textContent = said[0].toUpperCase() + said.slice(1);
        problem.hidden = false;
        key.clear();
        input.select();
        return;
      }
      response.body?.cancel();
      location.reload();
    } catch {
      problem.textContent = "Annie does not answer.";
      problem.hidden = false;
      key.clear();
    }
  } } }, h("h1", "Annie"), h("div.field", h("label", { for: "key" }, "Key"), input, h("span.hint", { id: "key-hint" }, "Make one on the server: ", h("code", "annie key create NAME --scope admin"), ". It is kept until you close this tab."), problem),
  h("button.btn.primary", { type: "submit" }, "Sign in"));
  app.classList.remove("has-notice");
  replace(app, h("main.signin", form));
  document.title = "Sign in · Annie";
  input.focus();
}

// Pages

function leave() {
  if (!current) return;
  closeDrawer();
  try {
    current.dispose?.();
  } catch (error) {
    console.error(error);
  }
  current.abort.abort();
  for (const off of current.offs) off();
  current = null;
}

function context(page, abort, offs, head) {
  const bound = api.bound(abort.signal);
  const subscribe = (fn) => {
    const off = routes.subscribe((now) => now.page === page.id && fn(now));
    offs.push(off);
    return off;
  };
  const ctx = {
    api: bound,
    signal: abort.signal,
    session,
    can: (scope) => !session.scopes || session.scopes.includes(scope),
    route: {
      get page() { return routes.now.page; },
      get rest() { return routes.now.rest; },
      get query() { return routes.now.query; },
      subscribe,
    },
    go: (to) => routes.go(to),
    address,
    setQuery: (more) => routes.now.page === page.id && routes.setQuery(more),
    live: {
      state: live.state,
      last: live.last,
      on(topic, fn, after) {
        const off = live.on(topic, fn, after);
        offs.push(off);
        return off;
      },
      onState(fn) {
        const off = live.onState(fn);
        offs.push(off);
        return off;
      },
      filterTree: live.filterTree,
      get isPaused() { return live.isPaused; },
    },
    every(ms, fn) {
      const timer = setInterval(() => document.hidden || live.isPaused || fn(), ms);
      offs.push(() => clearInterval(timer));
    },
    listen(target, type, fn, options) {
      target.addEventListener(type, fn, { ...options, signal: abort.signal });
    },
    // Runs now, at most once a second at these live events, and regularly while the page is visible.
    refresh(fn, { on = [], everyMs = 0 } = {}) {
      let last = 0, timer = 0, running = false, again = false;
      const run = async () => {
        timer = 0;
        if (running) return void (again = true);
        running = true;
        last = Date.now();
        try {
          await fn();
        } catch (error) {
          if (error.name !== "AbortError") console.error(error);
        }
        running = false;
        if (again) {
          again = false;
          soon();
        }
      };
      const soon = () => {
        if (abort.signal.aborted || timer || document.hidden || live.isPaused) return;
        timer = setTimeout(run, Math.max(0, last + 1_000 - Date.now()));
      };
      offs.push(() => clearTimeout(timer));
      let isFirst = true;
      for (const topic of on) this.live.on(topic, () => (isFirst ? undefined : soon()));
      if (everyMs) this.every(everyMs, soon);
      this.listen(document, "visibilitychange", () => document.hidden || soon());
      const done = run();
      done.then(() => (isFirst = false));
      return { now: run, soon, done };
    },
    async act(verb, promise, { done } = {}) {
      try {
        const result = await (typeof promise === "function" ? promise() : promise);
        if (done) toast(typeof done === "function" ? done(result) : done, { kind: "good" });
        return result ?? true;
      } catch (error) {
        if (error.name === "AbortError") return undefined;
        toast(`${verb} failed`, { kind: "bad", detail: error.detail || error.message });
        return undefined;
      }
    },
    commands(list) {
      current.commands.push(...list);
    },
    keys(map) {
      Object.assign(current.keys, map);
    },
    badge: setBadge,
    toast, dialog,
    // The heading of the page, and where it is.
    title(text, crumbs = [], actions = []) {
      document.title = `${text} · Annie`;
      const isSub = crumbs.length > 0;
      replace(head, isSub ? h("nav.crumbs", { aria: { label: "Breadcrumb" } }, crumbs.map((c) => [h("a", { href: c.href }, c.text), h("span", { aria: { hidden: "true" } }, "/")]), h("span", { aria: { current: "page" } }, isSub && crumbs.current ? crumbs.current : last6(text))) : null,
        h("div.pagehead", h("h1", { tabindex: "-1" }, text), h("div.actions", actions)));
    },
  };
  return ctx;
}

async function enter(now) {
  if (isSignedOut) return;
  if (!now.page) return routes.go(seenPages()[0].id === "overview" ? "#/overview" : `#/${seenPages()[0].id}`);
  const page = PAGES.find((one) => one.id === now.page);
  if (current && page && current.page.id === page.id) return;
  leave();
  for (const [id, { link }] of railLinks) {
    if (id === now.page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const head = h("div.stack.tight");
  const content = h("section.stack.loose.content", { aria: { label: page?.title ?? "Not found" } });
  const box = h("div.page", head, content);
  replace(main, box);
  main.scrollTop = 0;
  if (!page) {
    document.title = "Not found · Annie";
    replace(head, h("h1", "There is no such page"));
    replace(content, h("div.empty", h("p", now.page), h("a.btn", { href: "#/overview" }, "Go to the overview")));
    return;
  }
  // The page that opens by itself is one that the key sees.
  if (!isSeen(page) && page.id === PAGES[0].id) return routes.go(`#/${seenPages()[0].id}`);
  if (!isSeen(page)) {
    document.title = `${page.title} · Annie`;
    replace(head, h("h1", page.title));
    replace(content, h("div.empty", icon("key"), h("p.empty-title", "Your key does not show this page"), h("p", `It has not the scope ${page.needs}. Sign in with a key that has it: `, h("code", `annie key create NAME --scope chat,${page.needs}`)), h("a.btn", { href: `#/${seenPages()[0].id}` }, `Go to ${seenPages()[0].title.toLowerCase()}`)));
    return;
  }
  const abort = new AbortController();
  const mine = { page, abort, offs: [], commands: [], keys: {}, dispose: null };
  current = mine;
  const ctx = context(page, abort, mine.offs, head);
  ctx.box = box;
  ctx.title(page.title);
  replace(content, skeleton());
  try {
    const module = await page.load();
    if (current !== mine) return;
    content.replaceChildren();
    const dispose = await module.mount(content, ctx);
    if (current === mine) mine.dispose = dispose;
    else dispose?.();
  } catch (error) {
    if (error.name === "AbortError" || current !== mine) return;
    console.error(error);
    replace(content, broken(error instanceof ApiError ? error : { title: "This page does not work", detail: String(error?.message ?? error) }, () => {
      leave();
      enter(routes.now);
    }));
  }
}

// Badges of what waits for a person

function watchBadges() {
  let last = 0, timer = 0, seen = -1;
  const count = async () => {
    timer = 0;
    last = Date.now();
    const ask = async (id, path, rows) => {
      if (!railLinks.has(id) || (session.scopes && !session.scopes.includes("jobs:read"))) return;
      try {
        const found = await frameApi.get(path);
        setBadge(id, (found[rows] ?? []).length);
      } catch {
        setBadge(id, 0);
      }
    };
    await Promise.all([ask("approvals", "/approvals", "approvals"), ask("dead", "/dead-letters?state=waiting", "dead_letters")]);
  };
  const soon = () => {
    if (!timer) timer = setTimeout(count, Math.max(0, last + 5_000 - Date.now()));
  };
  live.on("notifications", ({ event, data }) => {
    if (event === "notification") toast(data.text, { kind: "info" });
    soon();
  });
  live.on("status", ({ data }) => {
    if (data.changes !== seen) soon();
    seen = data.changes;
  });
}

// Commands and keyboard

let paletteBox = null;
async function palette(initial = "") {
  if (paletteBox) return;
  const before = document.activeElement;
  const input = h("input", { type: "text", placeholder: "Go to a page, conversation, task, actor or skill, or run a command", value: initial, autocomplete: "off", spellcheck: "false", role: "combobox", aria: { label: "Search and commands", expanded: "true", controls: "palette-list", autocomplete: "list" } });
  const list = h("ul", { role: "listbox", id: "palette-list", aria: { label: "Results" } });
  const box = h("dialog.palette", { aria: { label: "Search and commands" } }, input, list);
  paletteBox = box;
  const close = () => {
    box.close();
    box.remove();
    paletteBox = null;
    if (before?.isConnected) before.focus({ preventScroll: true });
  };
  let items = [
    ...seenPages().map((page) => ({ group: "Pages", icon: page.icon, title: page.title, hint: page.key ? `g ${page.key}` : "", run: () => routes.go(`#/${page.id}`) })),
    ...(current?.commands ?? []).map((one) => ({ group: "Commands", icon: one.icon ?? "bolt", ...one })),
    { group: "Commands", icon: isDark() ? "sun" : "moon", title: isDark() ? "Switch to the light theme" : "Switch to the dark theme", hint: "t", run: toggleTheme },
    { group: "Commands", icon: "density", title: "Switch density", run: toggleDensity },
    { group: "Commands", icon: live.isPaused ? "play" : "pause", title: live.isPaused ? "Continue live updates" : "Pause live updates", hint: "p", run: () => live.pause(!live.isPaused) },
    { group: "Commands", icon: "key", title: "Show the keyboard shortcuts", hint: "?", run: showKeys },
  ];
  let shown = [], at = 0;
  const draw = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    shown = items.filter((item) => words.every((word) => (item.search ??= `${item.title} ${item.hint ?? ""} ${item.more ?? ""}`.toLowerCase()).includes(word))).slice(0, 60);
    const text = input.value.trim();
    if (/^conv_[0-9a-f]+$/.test(text)) shown.unshift({ group: "Go to", icon: "conversations", title: text, run: () => routes.go(`#/conversations/${text}`) });
    if (/^task_[0-9a-f]+$/.test(text)) shown.unshift({ group: "Go to", icon: "jobs", title: text, run: () => goToTask(text) });
    at = Math.min(at, Math.max(0, shown.length - 1));
    let group = "";
    replace(list, shown.map((item, n) => {
      const head = item.group !== group ? h("li.group", { role: "presentation" }, (group = item.group)) : null;
      return [head, h("li", { role: "option", id: `palette-${n}`, aria: { selected: String(n === at) }, on: { click: () => run(item) } }, icon(item.icon), h("span.cut", item.title), h("span.hint", item.hint ?? ""))];
    }), shown.length ? null : h("li.empty.small", { role: "option", aria: { selected: "false" } }, "Nothing fits."));
    if (shown.length) input.setAttribute("aria-activedescendant", `palette-${at}`);
    document.getElementById(`palette-${at}`)?.scrollIntoView({ block: "nearest" });
  };
  const run = (item) => {
    close();
    item.run();
  };
  input.addEventListener("input", () => ((at = 0), draw()));
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") at = Math.min(shown.length - 1, at + 1);
    else if (event.key === "ArrowUp") at = Math.max(0, at - 1);
    else if (event.key === "Enter" && shown[at]) return event.preventDefault(), run(shown[at]);
    else return;
    event.preventDefault();
    draw();
  });
  box.addEventListener("cancel", (event) => (event.preventDefault(), close()));
  box.addEventListener("click", (event) => event.target === box && close());
  document.body.append(box);
  box.showModal();
  input.focus();
  draw();
  const quietly = (promise) => promise.catch(() => null);
  const [conversations, actors, skills] = await Promise.all([
    quietly(frameApi.get("/conversations", { query: { limit: 200 } })),
    session.scopes && !session.scopes.includes("ops:read") ? null : quietly(frameApi.get("/actors", { query: { limit: 1000 } })),
    quietly(frameApi.get("/skills")),
  ]);
  if (paletteBox !== box) return;
  items = [...items,
    ...(conversations?.conversations ?? []).map((c) => ({ group: "Conversations", icon: "conversations", title: c.title || c.key || last6(c.id), more: `${c.id} ${c.key ?? ""}`, hint: c.updated_at ? relative(c.updated_at) : "", run: () => routes.go(`#/conversations/${c.id}`) })),
    ...(actors?.actors ?? []).map((a) => ({ group: "Actors", icon: "actors", title: a.path, hint: a.kind, run: () => routes.go(address("actors", [], { sel: a.path })) })),
    ...(PAGES.some((page) => page.id === "skills") ? skills?.skills ?? [] : []).map((s) => ({ group: "Skills", icon: "skills", title: s.name, hint: "", more: s.description, run: () => routes.go(address("skills", [], { sel: s.name })) })),
  ];
  draw();
}

async function goToTask(id) {
  try {
    const task = await frameApi.get(`/tasks/${id}`);
    routes.go(address("conversations", [task.conversation_id], { task: id }));
  } catch (error) {
    toast("There is no such task", { kind: "bad", detail: error.detail });
  }
}

function showKeys() {
  const general = [["Ctrl K", "Search and commands"], ["g then a letter", "Go to a page"], ["j / k", "Next / previous row"], ["Enter", "Open"], ["x", "Select"], ["/", "Filter"], [".", "Actions"], ["Esc", "Close"], ["p", "Pause or continue updates"], ["t", "Light or dark theme"], ["?", "This list"]];
  const pages = seenPages().filter((page) => page.key).map((page) => [`g ${page.key}`, page.title]);
  const own = Object.entries(current?.keys ?? {}).map(([name, [text]]) => [name, text]);
  const list = (title, rows) => (rows.length ? [h("h3", title), h("div.keys", rows.map(([name, text]) => [h("kbd", name), h("span", text)]))] : null);
  dialog({ title: "Keyboard shortcuts", body: [h("div.stack", list(`On this page`, own), list("Everywhere", general), list("Pages", pages))], confirm: "Close", cancel: null });
}

let isGoing = 0;
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return palette();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isSignedOut) return;
  const typing = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
  if (typing || document.querySelector("dialog[open], .menu")) return;
  if (Date.now() - isGoing < 1_200) {
    isGoing = 0;
    const page = PAGES.find((one) => one.key === event.key);
    if (page) {
      event.preventDefault();
      event.stopImmediatePropagation();
      return routes.go(`#/${page.id}`);
    }
  }
  if (event.key === "g") isGoing = Date.now();
  else if (event.key === "?") showKeys();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "p") live.pause(!live.isPaused);
  else if (current?.keys[event.key]) {
    event.preventDefault();
    current.keys[event.key][1]();
  }
}, true);

// Start

replace(app, h("a.skip", { href: "#main", on: { click: (event) => (event.preventDefault(), main.focus()) } }, "Skip to the content"), rail, top, notice, main);
drawTheme();
drawRail();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTheme);
live.onState(() => {
  drawSession();
  drawStatus();
});
live.on("status", drawStatus);
setInterval(() => live.state.phase === "broken" && drawStatus(), 1_000);
watchBadges();
routes.subscribe(enter);
enter(routes.now);

export const annie = { live, routes, plural };
