// Skills and MCP servers: what Annie can do, how often it works, and a form to try it.

import { h, replace } from "../lib/dom.js";
import { schemaForm } from "../lib/form.js";
import { ago, duration, percent, visible } from "../lib/format.js";
import { dialog } from "../lib/overlay.js";
import { jsonView, status } from "../lib/states.js";
import { button, facts, heading, listPage, tabs } from "./listing.js";

const BREAKER = { closed: ["good", "Closed"], open: ["bad", "Open"], half_open: ["warn", "Half open"] };
const SERVER = { connected: ["good", "Connected"], connecting: ["wait", "Connecting"], waiting: ["bad", "Waiting to reconnect"], idle: ["idle", "Idle"] };
const TOOL = { listed: ["good", "Listed"], withheld: ["warn", "Withheld"], left_out: ["idle", "Left out"] };
const APPROVAL = { awaiting_approval: ["warn", "Awaiting approval"], approved: ["good", "Approved"] };
const OK = ["success", "partial", "pending"];

/** Pages of the search for runs, each of some conversations. */
const RUN_PAGES_MAX = 10;

export function mount(root, ctx) {
  ctx.title("Skills");
  const places = {
    skills: h("div.place", {}),
    mcp: h("div.place", {}),
  };
  const pages = {};
  const view = tabs(ctx, "view", [["skills", "Skills"], ["mcp", "MCP servers"]], "Skills or MCP servers", choose);

  function choose() {
    const now = view.now();
    for (const [id, place] of Object.entries(places)) place.hidden = id !== now;
    if (!pages[now]) pages[now] = now === "skills" ? skillsPage() : mcpPage();
  }

  /** The runs of the last 24 h in the conversations that changed last, by skill; read at most once a minute. */
  let counted = null;
  let countedAt = 0;
  let isWhole = true;
  async function lastRuns() {
    if (counted && Date.now() - countedAt < 60000) return counted;
    const from = new Date(Date.now() - 86400e3).toISOString();
    const events = [];
    let cursor;
    for (let page = 0; page < RUN_PAGES_MAX; page += 1) {
      const found = await ctx.api.get("/events", { query: { kind: "skill_finished", from, cursor } }).catch(() => ({ events: [] }));
      events.push(...found.events);
      cursor = found.cursor;
      if (!cursor) break;
    }
    isWhole = !cursor;
    counted = new Map();
    for (const event of events) {
      const one = counted.get(event.skill) || { all: 0, good: 0 };
      one.all += 1;
      if (OK.includes(event.outcome.status)) one.good += 1;
      counted.set(event.skill, one);
    }
    countedAt = Date.now();
    return counted;
  }

  function skillsPage() {
    const page = listPage(places.skills, ctx, {
      load: async () => {
        const [found, breakers, runs, written] = await Promise.all([ctx.api.get("/skills"), ctx.api.get("/breakers").catch(() => ({ breakers: [] })), lastRuns(), ctx.api.get("/built-skills").catch(() => ({ skills: [] }))]);
        const of = new Map(breakers.breakers.map((breaker) => [breaker.skill, breaker]));
        const built = new Map(written.skills.map((skill) => [skill.name, skill]));
        return { rows: found.skills.map((skill) => ({ ...skill, breaker: of.get(skill.name), runs: runs.get(skill.name), built: built.get(skill.name) })) };
      },
      on: [],
      everyMs: 15000,
      pick: "Select a skill to read its help and to try it.",
      table: {
        caption: "Skills",
        noun: "skill",
        key: (row) => row.name,
        search: (row) => `${row.name} ${row.description}`,
        filterKeys: {
          domain: { label: "Domain", values: [], of: (row) => row.domain },
          effect: { label: "Effect", values: ["read", "idempotent", "once"], of: (row) => row.effect },
          format: { label: "Format", values: ["command", "prompt"], of: (row) => row.format },
          breaker: { label: "Breaker", values: ["closed", "open", "half_open"], of: (row) => (row.breaker ? row.breaker.state : "closed") },
          reaches: { label: "Reaches", values: ["outside", "inside"], of: (row) => (row.external ? "outside" : "inside") },
        },
        columns: [
          { id: "name", label: "Skill", width: "13rem", cell: (row) => h("div", {}, h("span.mono", {}, row.name), row.built && row.built.state === "awaiting_approval" ? h("div", {}, status(...APPROVAL.awaiting_approval)) : ""), sort: (row) => row.name },
          { id: "description", label: "What it does", grow: true, cell: (row) => row.description },
          { id: "effect", label: "Effect", width: "7rem", hideNarrow: true, cell: (row) => row.effect, sort: (row) => row.effect },
          { id: "reach", label: "Reaches", width: "6.5rem", hideNarrow: true, cell: (row) => (row.external ? status("warn", "Outside") : h("span.dim", {}, "inside")), sort: (row) => (row.external ? 0 : 1) },
          { id: "success", label: "Success, 24 h", num: true, width: "9rem", hideNarrow: true, cell: (row) => (row.runs ? `${percent(row.runs.good / row.runs.all)} of ${row.runs.all}` : h("span.dim", {}, isWhole ? "no run" : "none found")), sort: (row) => (row.runs ? row.runs.good / row.runs.all : 2) },
          { id: "breaker", label: "Breaker", width: "8rem", cell: (row) => (row.breaker ? status(...(BREAKER[row.breaker.state] || ["idle", "Busy"])) : h("span.dim", { title: "Not called since the start of the server" }, "not used")), sort: (row) => (row.breaker ? row.breaker.state : "zz") },
        ],
        empty: { title: "No skills", text: "Skills are files below the data folder and those that come with Annie. A file that is copied there appears within a second.", command: "annie skills list" },
      },
      detail: (row) => skillDetail(row, () => page.reload()),
    });
    return page;
  }

  function skillDetail(row, reload) {
    const help = h("div.stack", {}, h("p.dim", {}, "Loading the help…"));
    const runs = h("div.stack", {}, h("p.dim", {}, "Reading the last runs…"));
    const breaker = row.breaker;
    ctx.api.get(`/skills/${encodeURIComponent(row.name)}`).then((whole) => {
      replace(help, tryIt(whole), h("h3", {}, "Help"), h("pre.doc", { tabIndex: 0 }, whole.help), h("h3", {}, "Schema of its arguments"), jsonView(whole.schema));
    }, (error) => { if (!ctx.signal.aborted) replace(help, h("p.dim", {}, error.detail || error.message)); });
    const from = new Date(Date.now() - 86400e3).toISOString();
    ctx.api.get("/events", { query: { kind: "skill_finished", text: `"skill":"${row.name}"`, from } }).then((found) => {
      replace(runs, ...history(found.events.filter((event) => event.skill === row.name)));
    }, (error) => { if (!ctx.signal.aborted) replace(runs, h("p.dim", {}, error.detail || error.message)); });
    return [
      heading(row.name, breaker ? status(...(BREAKER[breaker.state] || ["idle", "Busy"])) : status("idle", "Not used since the start")),
      h("p", {}, row.description),
      facts([
        ["Usage", h("code.mono.wrap", {}, row.synopsis)],
        ["Effect", { read: "reads only", idempotent: "may be repeated without harm", once: "is never repeated by itself" }[row.effect]],
        ["Reaches", row.external ? "other machines" : "this machine only"],
        ["Time limit", duration(row.timeout_ms)],
        ["Source", row.source],
        ["Written by", row.built ? "a conversation" : undefined],
        ["Approval", row.built && row.built.state !== "not_needed" ? status(...APPROVAL[row.built.state]) : undefined],
        ["Failures in a row", breaker && breaker.failures ? String(breaker.failures) : undefined],
        ["Opened", breaker && breaker.opened_at && ago(breaker.opened_at)],
        ["Times opened", breaker && breaker.trips ? String(breaker.trips) : undefined],
        ["Runs in progress", breaker && breaker.runs ? String(breaker.runs) : undefined],
      ]),
      breaker?.held ? h("p.callout.wrap", {}, breaker.held) : null,
      ctx.can("ops:control") && !breaker?.held ? h("div.toolbar", {}, button("Hold breaker open", async () => {
        const answer = await dialog({ title: `Hold the breaker of ${row.name} open?`, body: "No call is admitted, also after a restart, until a person closes the breaker. Runs under way end normally.", confirm: "Hold breaker open", danger: true, reason: "required" });
        if (answer) await ctx.act("Open", () => ctx.api.post(`/breakers/${encodeURIComponent(row.name)}/open`, { reason: answer.reason }), { done: `The breaker of ${row.name} is open` }).then(reload);
      })) : null,
      breaker && breaker.state !== "closed" ? h("div.toolbar", {}, button("Close breaker", () => ctx.act("Close", () => ctx.api.post(`/breakers/${encodeURIComponent(row.name)}/reset`, {}), { done: `The breaker of ${row.name} is closed` }).then(reload), "danger")) : null,
      row.built && row.built.state !== "not_needed" ? approval(row.built, reload) : null,
      h("h3", {}, "Last runs in your conversations, 24 h"), runs,
      help,
    ].filter(Boolean);
  }

  /** The content of a skill that a conversation wrote, and the decision about exactly this content. */
  function approval(built, reload) {
    const path = `/built-skills/${encodeURIComponent(built.name)}`;
    const decide = built.state === "approved"
      ? button("Withdraw approval", () => ctx.act("Withdraw", () => ctx.api.post(`${path}/withdraw`, {}), { done: `${built.name} no longer runs` }).then(reload), "danger")
      : button("Approve this content", () => ctx.act("Approve", () => ctx.api.post(`${path}/approve`, { hash: built.hash }), { done: `${built.name} may run` }).then(reload), "primary");
    return h("div.stack", {}, h("h3", {}, "Content"), h("p.dim", {}, "A conversation wrote this skill. It runs only with the content that you approved."), h("pre.doc", { tabIndex: 0 }, visible(built.text)), h("p.dim.mono.wrap", {}, built.hash), h("div.toolbar", {}, decide, h("a.btn", { href: `#/conversations/${built.conversation_id}` }, "Open conversation")));
  }

  function history(events) {
    if (!events.length) return [h("p.dim", {}, "No run in the last 24 h.")];
    const good = events.filter((event) => OK.includes(event.outcome.status)).length;
    const times = events.map((event) => event.duration_ms || 0).sort((a, b) => a - b);
    const failures = events.filter((event) => !OK.includes(event.outcome.status)).slice(0, 5);
    return [
      facts([["Success", `${percent(good / events.length)} of ${events.length}`], ["Median", duration(times[Math.floor(times.length / 2)])], ["95 of 100 within", duration(times[Math.min(times.length - 1, Math.floor(times.length * 0.95))])]]),
      failures.length ? h("ul.events", {}, ...failures.map((event) => h("li", {}, status("bad", event.outcome.error_type || event.outcome.status), " ", ago(event.at), " ", h("a", { href: `#/conversations/${event.conversation_id}?seq=${event.seq}` }, "open"), h("p.dim", {}, event.outcome.error_detail || event.outcome.data)))) : h("p.dim", {}, "No failure among them."),
    ];
  }

  function tryIt(skill) {
    if (skill.format === "prompt") {
      return h("div", {}, h("h3", {}, "Try it"), h("p", {}, "A prompt skill runs in a conversation: begin a message with ", h("code.mono", {}, "/" + skill.name), "."), h("a.btn", { href: "#/chat" }, "Open chat"));
    }
    if (skill.external || skill.effect === "once") {
      return h("div", {}, h("h3", {}, "Try it"), h("p", {}, skill.external ? "This skill reaches other machines, so it runs in conversations only, where rules and approvals apply." : "A run of this skill is never repeated, so it runs in conversations only, where it is recorded."), h("a.btn", { href: "#/chat" }, "Open chat"));
    }
    const form = schemaForm(skill.schema, {});
    const result = h("div", { aria: { live: "polite" } });
    const run = async () => {
      const value = form.value();
      if (form.errors && form.errors.length) return;
      const begun = performance.now();
      replace(result, h("p.dim", {}, "Running…"));
      try {
        const answer = await ctx.api.post("/run", { command: `${skill.name} ${JSON.stringify(value)}`, key: `try-${Date.now()}-${Math.random()}` });
        const good = OK.includes(answer.status);
        replace(result, h("div.toolbar", {}, status(good ? "good" : "bad", answer.error || answer.status), h("span.dim", {}, duration(performance.now() - begun))), h("pre.doc", { tabIndex: 0 }, answer.text || "(no text)"), answer.evidence ? jsonView(answer.evidence) : "");
      } catch (error) {
        replace(result, status("bad", error.code || "Refused"), h("pre.doc", { tabIndex: 0 }, error.detail || error.message));
      }
    };
    const node = h("form.stack", { on: { submit: (event) => { event.preventDefault(); run(); } } }, h("h3", {}, "Try it"), h("p.dim", {}, skill.effect === "read" ? "It runs on your own data and changes nothing." : "It runs on your own data, and what it changes stays."), form.el, h("div.toolbar", {}, h("button.btn.primary", { type: "submit" }, `Run ${skill.name}`)), result);
    return node;
  }

  function mcpPage() {
    return listPage(places.mcp, ctx, {
      load: async () => ({ rows: (await ctx.api.get("/mcp")).servers }),
      on: [],
      everyMs: 10000,
      pick: "Select a server to see its tools.",
      table: {
        caption: "MCP servers",
        noun: "server",
        key: (row) => row.name,
        search: (row) => row.name,
        filterKeys: { state: { label: "State", values: Object.keys(SERVER), of: (row) => row.state } },
        columns: [
          { id: "state", label: "State", width: "11rem", cell: (row) => status(...(SERVER[row.state] || ["idle", row.state])), sort: (row) => row.state },
          { id: "name", label: "Server", grow: true, cell: (row) => row.name, sort: (row) => row.name },
          { id: "by", label: "By", width: "6rem", cell: (row) => row.transport, sort: (row) => row.transport },
          { id: "tools", label: "Tools", width: "5rem", num: true, cell: (row) => String(row.tools.filter((tool) => tool.state === "listed").length), sort: (row) => row.tools.length },
          { id: "held", label: "Not listed", width: "6rem", num: true, hideNarrow: true, cell: (row) => String(row.tools.filter((tool) => tool.state !== "listed").length) },
        ],
        empty: { title: "No MCP servers", text: "The tools of MCP servers become skills. Add [[mcp]] to the configuration, or import the servers of another program.", command: "annie mcp import FILE" },
      },
      detail: (row) => [
        heading(row.name, status(...(SERVER[row.state] || ["idle", row.state]))),
        facts([["Calls itself", row.server], ["Transport", row.transport], ["Protocol", row.protocol], ["Connections begun", row.connections], ["Last error", row.error]]),
        h("h3", {}, `${row.tools.length} tools`),
        h("ul.events", {}, ...row.tools.map((tool) => h("li", {}, status(...(TOOL[tool.state] || ["idle", tool.state])), " ", h("a.mono", { href: `#/skills?sel=${encodeURIComponent(tool.skill)}` }, tool.skill), " ", h("span.dim", {}, tool.effect), tool.reason ? h("p.dim", {}, tool.reason) : "", tool.state === "withheld" ? h("p.dim.mono", {}, tool.hash) : ""))),
      ],
    });
  }

  root.append(h("div.stack", {}, h("div.toolbar", {}, view.el), places.skills, places.mcp));
  choose();
  ctx.route.subscribe(choose);
}
