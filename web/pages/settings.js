// Settings: how the page looks, the API keys, and the configuration with the origin of each value.

import { h, replace } from "../lib/dom.js";
import { ago } from "../lib/format.js";
import { dialog, toast } from "../lib/overlay.js";
import { status } from "../lib/states.js";
import { button, facts, heading, listPage, tabs } from "./listing.js";

const SCOPES = ["chat", "jobs:read", "jobs:control", "ops:read", "ops:control", "admin", "impersonate", "voice"];

export function mount(root, ctx) {
  ctx.title("Settings");
  const places = Object.fromEntries(["config", "keys", "look"].map((id) => [id, h("div.place", {})]));
  const built = {};
  const view = tabs(ctx, "view", [["config", "Configuration"], ["keys", "Keys"], ["look", "Appearance"]], "Which settings", choose);

  function choose() {
    const now = view.now();
    for (const [id, place] of Object.entries(places)) place.hidden = id !== now;
    if (!built[now]) built[now] = { config, keys, look }[now]();
  }

  function config() {
    const group = (key) => key.split(".")[0];
    const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
    const from = (origin) => (origin === "default" ? h("span.dim", {}, "default") : origin);
    return listPage(places.config, ctx, {
      load: async () => ({ rows: (await ctx.api.get("/settings")).settings }),
      on: [],
      everyMs: 60000,
      tools: ctx.can("ops:control") ? [button("Log level", logLevel)] : [],
      pick: "Select a setting to see where its value comes from.",
      table: {
        caption: "Settings",
        noun: "setting",
        key: (row) => row.key,
        search: (row) => `${row.key} ${shown(row.value)}`,
        filterKeys: {
          part: { label: "Part", values: [], of: (row) => group(row.key) },
          origin: { label: "Origin", values: ["default", "set"], of: (row) => (row.origin === "default" ? "default" : "set") },
        },
        columns: [
          { id: "key", label: "Setting", width: "22rem", cell: (row) => h("span.mono", {}, row.key), sort: (row) => row.key },
          { id: "value", label: "Value", grow: true, cell: (row) => h("span.mono", {}, shown(row.value)) },
          { id: "origin", label: "Origin", width: "16rem", hideNarrow: true, cell: (row) => from(row.origin), sort: (row) => row.origin },
        ],
        empty: { title: "No settings", text: "This server reports no settings.", command: "annie config show --origin" },
      },
      detail: (row) => [
        heading(row.key),
        facts([["Value", h("pre.doc", { tabIndex: 0 }, shown(row.value))], ["Origin", row.origin === "default" ? "the default of Annie: no file, variable or flag sets it" : row.origin]]),
        h("p.dim", {}, "Settings are changed in a file, and take effect at the next start. Check the file first:"),
        h("pre.doc", { tabIndex: 0 }, "annie config check"),
      ],
    });
  }

  async function logLevel() {
    const now = await ctx.act("Log level", () => ctx.api.get("/log-level"));
    if (!now) return;
    const answer = await dialog({ title: "Set the level of the log", body: `Now ${now.level}. After a restart it is ${now.configured} again.`, confirm: "Set level", reason: "required", fields: [{ name: "level", label: "Level", kind: "text", value: now.level, max: 500, hint: "error, warn, info, debug, trace, or levels per module: info,annie_actors=debug. Empty: the configured one." }] });
    if (answer) await ctx.act("Log level", () => ctx.api.post("/log-level", { level: answer.level, reason: answer.reason }), { done: "The level of the log is set" });
  }

  function keys() {
    async function make() {
      const answer = await dialog({ title: "New key", fields: [
        { name: "name", label: "Name", kind: "text", required: true, hint: "Who or what uses it." },
        { name: "user", label: "User", kind: "text", hint: "The user for whom it acts; you if empty." },
        { name: "days", label: "Valid for, days", kind: "number", value: 365 },
        ...SCOPES.map((scope) => ({ name: scope, label: scope, kind: "check", value: ["chat", "jobs:read"].includes(scope) }))], confirm: "Create key" });
      if (!answer) return;
      const body = { name: answer.name, scopes: SCOPES.filter((scope) => answer[scope] === true || answer[scope] === "on" || answer[scope] === "true") };
      if (answer.user) body.user = answer.user;
      if (answer.days) body.expires_in_days = Number(answer.days);
      const made = await ctx.act("Create", () => ctx.api.post("/keys", body), { done: "Key created" });
      if (!made) return;
      page.reload();
      await dialog({ title: "Copy the key now", body: `This is the only time that it is shown: ${made.key || made.secret || JSON.stringify(made)}`, confirm: "I have copied it" });
    }
    async function revoke(rows) {
      const what = rows.length === 1 ? `key ${rows[0].name}` : `${rows.length} keys`;
      const answer = await dialog({ title: `Revoke ${what}?`, body: "Its next request is refused. This cannot be undone.", confirm: `Revoke ${what}`, danger: true, typeName: rows.length === 1 ? rows[0].name : undefined });
      if (!answer) return;
      await ctx.act("Revoke", async () => { for (const row of rows) await ctx.api.post(`/keys/${row.id}/revoke`, {}); }, { done: `Revoked ${what}` });
      page.reload();
    }
    const state = (row) => (row.revoked_at ? status("idle", "Revoked") : row.expires_at && Date.parse(row.expires_at) < Date.now() ? status("warn", "Expired") : status("good", "Valid"));
    const page = listPage(places.keys, ctx, {
      load: async () => ({ rows: (await ctx.api.get("/keys")).keys }),
      on: [],
      everyMs: 30000,
      tools: [button("New key", make, "primary")],
      pick: "Select a key to see its scopes.",
      table: {
        caption: "Keys",
        noun: "key",
        key: (row) => row.id,
        search: (row) => `${row.name} ${row.user}`,
        filterKeys: { user: { label: "User", values: [], of: (row) => row.user }, scope: { label: "Scope", values: SCOPES, of: (row) => row.scopes } },
        columns: [
          { id: "state", label: "State", width: "7rem", cell: state, sort: (row) => row.revoked_at || "" },
          { id: "name", label: "Name", grow: true, cell: (row) => row.name, sort: (row) => row.name },
          { id: "user", label: "User", width: "9rem", cell: (row) => row.user, sort: (row) => row.user },
          { id: "used", label: "Last used", num: true, width: "8rem", cell: (row) => (row.last_used_at ? ago(row.last_used_at) : h("span.dim", {}, "never")), sort: (row) => row.last_used_at || "" },
          { id: "expires", label: "Expires", num: true, width: "8rem", hideNarrow: true, cell: (row) => (row.expires_at ? ago(row.expires_at) : h("span.dim", {}, "never")), sort: (row) => row.expires_at || "9" },
        ],
        empty: { title: "No keys", text: "Without a key only this machine reaches the server. The first key makes every caller need one.", command: "annie key create NAME", button: { label: "New key", run: make } },
      },
      detail: (row) => [
        heading(row.name, state(row)),
        facts([["User", row.user], ["Scopes", row.scopes.join(", ")], ["Id", h("span.mono", {}, row.id)], ["Created", ago(row.created_at)], ["Last used", row.last_used_at ? ago(row.last_used_at) : "never"], ["Expires", row.expires_at ? ago(row.expires_at) : "never"], ["Revoked", row.revoked_at && ago(row.revoked_at)]]),
        row.revoked_at ? "" : h("div.toolbar", {}, button("Revoke key", () => revoke([row]), "danger")),
      ],
    });
    return page;
  }

  function look() {
    const choice = (name, label, values, attribute) => h("fieldset.choices", {}, h("legend", {}, label), ...values.map(([value, text]) => {
      const input = h("input", { type: "radio", name, value });
      input.checked = (stored(name) || values[0][0]) === value;
      input.addEventListener("change", () => { store(name, value); apply(attribute, value); toast(`${label}: ${text}`, { kind: "good" }); });
      return h("label.check", {}, input, " " + text);
    }));
    replace(places.look, h("div.panel.look", {},
      h("p.dim", {}, "These two stay in this browser."),
      choice("annie.theme", "Theme", [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]], "theme"),
      choice("annie.density", "Density", [["comfortable", "Comfortable"], ["compact", "Compact"]], "density")));
    return true;
  }

  root.append(h("div.stack", {}, h("div.toolbar", {}, view.el), ...Object.values(places)));
  choose();
  ctx.route.subscribe(choose);
}

function stored(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

function store(name, value) {
  try { localStorage.setItem(name, value); } catch { /* a browser without storage forgets it */ }
}

function apply(attribute, value) {
  if (value === "system") delete document.documentElement.dataset[attribute];
  else document.documentElement.dataset[attribute] = value;
  if (attribute === "density") dispatchEvent(new Event("annie:density"));
}
