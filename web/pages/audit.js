// Audit: the events of all conversations, searched by kind, text and time.

import { h, replace } from "../lib/dom.js";
import { ago, exactTime, moment, num, plural, shortId } from "../lib/format.js";
import { actionsList } from "../lib/actions.js";
import { drawer } from "../lib/overlay.js";
import { broken, jsonView, skeleton, status } from "../lib/states.js";
import { button, facts, heading, listPage } from "./listing.js";
import { download } from "./memory.js";

export const KINDS = ["received", "joined", "turn_started", "round_began", "round_not_begun", "model_replied", "model_failed", "interface_changed", "loop_detected", "skill_started", "skill_finished", "agent_started", "agent_reported", "agent_steered", "steering_taken", "agent_stop_requested", "cancel_requested", "decided", "approval_requested", "approval_decided", "results_given", "resumed", "suspended", "continued", "reprioritised", "deadline_passed", "deferred", "retried", "ordered", "dead_letter_due", "dead_letter_moved", "answered", "failed", "cancelled", "copied", "compacted"];
// How far around a time events are shown, in milliseconds.
const AROUND_MS = 5 * 60_000;
const SPANS = [["1", "Last hour"], ["24", "Last 24 hours"], ["168", "Last 7 days"], ["", "Any time"]];

/** One line about an event. */
export function say(event) {
  switch (event.kind) {
    case "received": return event.text || `from ${event.source}`;
    case "decided": return `${event.component}: ${event.decision}${event.reasoning ? ` (${event.reasoning})` : ""}`;
    case "skill_started": return event.skill;
    case "skill_finished": return `${event.skill}: ${event.outcome.status}${event.outcome.error_type ? ", " + event.outcome.error_type : ""}`;
    case "model_replied": return `${event.backend || "model"} round ${event.round}${event.calls ? `, ${plural(event.calls.length, "call")}` : ""}${event.text ? ": " + event.text : ""}`;
    case "model_failed": return `round ${event.round}: ${event.error.kind || ""} ${event.error.message || event.error.detail || ""}`;
    case "approval_requested": return `${event.skill} ${JSON.stringify(event.arguments)}`;
    case "approval_decided": return `by ${event.by}`;
    case "agent_steered": return `${event.agent}: steered by ${event.by}`;
    case "agent_stop_requested": return `${event.agent}: stop asked by ${event.by}`;
    case "agent_reported": return `${event.report.agent || event.agent}: ${event.report.status}`;
    case "answered": return event.text;
    case "failed": return `${event.code}: ${event.detail || event.text}`;
    case "turn_started": return `${event.mode}${event.route ? " on " + event.route[0] : ""}`;
    case "deferred": case "retried": return event.reason;
    default: return event.by ? `by ${event.by}` : "";
  }
}

export function mount(root, ctx) {
  ctx.title("Audit");
  const query = () => ctx.route.query;
  const text = h("input", { type: "search", placeholder: "Text in any field", value: query().text || "", aria: { label: "Text in any field" } });
  const kind = h("select", { aria: { label: "Kind" } }, h("option", { value: "" }, "All kinds"), ...KINDS.map((one) => h("option", { value: one }, one)));
  const span = h("select", { aria: { label: "Time" } }, ...SPANS.map(([hours, label]) => h("option", { value: hours }, label)));
  const everyone = h("input", { type: "checkbox" });
  const at = h("input", { type: "text", placeholder: "At: 15:02", size: 16, value: query().at || "", aria: { label: "At a time, such as 15:02 or 2026-02-18 15:02" } });
  const summary = h("p.dim", { aria: { live: "polite" } });
  const more = h("div", {});
  kind.value = query().kind || "";
  span.value = query().hours ?? "24";
  everyone.checked = query().everyone === "1";
  const offered = new Set(KINDS);
  let rows = [];
  let cursor;
  let searched = 0;
  let leftOut = 0;

  function asked() {
    const hours = span.value;
    const middle = moment(at.value);
    at.setAttribute("aria-invalid", String(Boolean(at.value.trim()) && !middle));
    span.disabled = Boolean(middle);
    if (middle) return { kind: kind.value || undefined, text: text.value.trim() || undefined, from: new Date(middle.getTime() - AROUND_MS).toISOString(), before: new Date(middle.getTime() + AROUND_MS + 60_000).toISOString(), everyone: everyone.checked ? true : undefined };
    return { kind: kind.value || undefined, text: text.value.trim() || undefined, from: hours ? new Date(Date.now() - hours * 3600e3).toISOString() : undefined, everyone: everyone.checked ? true : undefined };
  }

  async function page(next) {
    const found = await ctx.api.get("/events", { query: { ...asked(), cursor: next } });
    rows = next ? rows.concat(found.events) : found.events;
    searched = (next ? searched : 0) + found.searched;
    leftOut = (next ? leftOut : 0) + found.left_out;
    cursor = found.cursor;
    for (const event of rows) {
      // A kind that is newer than this list.
      if (!offered.has(event.kind)) { offered.add(event.kind); kind.append(h("option", { value: event.kind }, event.kind)); }
    }
    summary.textContent = `${rows.length} events in the ${searched} conversations that changed last.${leftOut ? ` ${leftOut} older events of them were not searched.` : ""}`;
    replace(more, cursor ? button("Search more conversations", () => ctx.act("Search", async () => { await page(cursor); list.list.setRows(rows, { total: rows.length, more: Boolean(cursor) }); })) : "");
    return { rows, total: rows.length, more: Boolean(cursor) };
  }

  function changed() {
    ctx.setQuery({ text: text.value.trim() || null, kind: kind.value || null, hours: span.value === "24" ? null : span.value, at: at.value.trim() || null, everyone: everyone.checked ? "1" : null, sel: null });
    list.reload();
  }
  let typing;
  text.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(changed, 300); });
  at.addEventListener("change", changed);
  for (const input of [kind, span, everyone]) input.addEventListener("change", changed);

  const save = () => ctx.act("Export", async () => download("annie-events.ndjson", rows.map((event) => JSON.stringify(event)).join("\n") + "\n"), { done: `Saved ${rows.length} events` });

  // What operators did, around the chosen time if there is one.
  async function showActions() {
    const panel = drawer({ title: "What operators did", label: "actions", body: skeleton(4) });
    try {
      const { from, before } = asked();
      const { actions } = await ctx.api.get("/actions", { query: { from, before, limit: 200 } });
      replace(panel.body, h("p.dim", from ? `Since ${exactTime(from)}${before ? `, until ${exactTime(before)}` : ""}` : "The newest ones"), actionsList(actions));
    } catch (error) {
      if (error.name !== "AbortError") replace(panel.body, broken(error, showActions));
    }
  }

  // Computes the seals of all events and the chain of actions again, and says until when they hold.
  async function verify() {
    const panel = drawer({ title: "Chain of the audit", label: "verification", body: skeleton(4) });
    const all = async (path) => {
      const sum = { entries: 0, seals: 0, events: 0, broken: [], broken_total: 0 };
      for (let next; ;) {
        const page = await ctx.api.get(path, { query: { next, limit: 500 } });
        for (const name of ["entries", "seals", "events", "broken_total"]) sum[name] += page[name] ?? 0;
        sum.broken.push(...page.broken);
        Object.assign(sum, { last_at: page.last_at ?? sum.last_at, last_number: page.last_number ?? sum.last_number, last_digest: page.last_digest ?? sum.last_digest, unsealed: page.unsealed ?? sum.unsealed });
        if (!(next = page.next)) return sum;
      }
    };
    const part = (title, sum, what) => h("section.stack.tight", h("h3", title),
      sum.broken_total ? status("bad", `${plural(sum.broken_total, "difference")}`) : status("good", sum.last_at ? `Verified until ${exactTime(sum.last_at)}` : "Nothing is sealed yet"),
      h("p", what), sum.last_digest ? h("p.small.dim.wrap.mono", `${sum.last_number}:${sum.last_digest}`) : null,
      sum.broken.length ? h("ul.lines", sum.broken.slice(0, 50).map((one) => h("li.wrap", `${one.number}: ${one.what}`))) : null);
    try {
      const [events, acts] = await Promise.all([all("/audit/verify"), all("/actions/verify")]);
      replace(panel.body,
        part("Events", events, `${num(events.seals)} seals over ${num(events.events)} events. ${events.unsealed ? `${plural(events.unsealed, "newer event has", "newer events have")} no seal yet.` : "All events are sealed."}`),
        part("Actions of operators", acts, `${plural(acts.entries, "entry", "entries")}, sealed when they are stored.`));
    } catch (error) {
      if (error.name !== "AbortError") replace(panel.body, broken(error, verify));
    }
  }

  const list = listPage(root, ctx, {
    load: () => page(),
    on: [],
    everyMs: 30000,
    tools: [text, kind, span, at, ctx.can("admin") ? h("label.check", {}, everyone, " All users") : "", button("Export", save, "quiet"), ctx.can("ops:read") ? button("Actions", showActions, "quiet") : "", ctx.can("ops:read") ? button("Verify chain", verify, "quiet") : ""],
    pick: "Select an event to see all of it.",
    table: {
      caption: "Events",
      noun: "event",
      key: (row) => `${row.conversation_id}.${row.seq}`,
      search: (row) => `${row.kind} ${row.agent} ${say(row)}`,
      filterKeys: { kind: { label: "Kind", values: KINDS, of: (row) => row.kind }, agent: { label: "Agent", values: [], of: (row) => row.agent } },
      columns: [
        { id: "kind", label: "Kind", width: "11rem", cell: (row) => h("span.mono", {}, row.kind), sort: (row) => row.kind },
        { id: "what", label: "What", grow: true, cell: (row) => { const line = say(row); return line.length > 160 ? line.slice(0, 159) + "…" : line; } },
        { id: "agent", label: "Agent", width: "8rem", hideNarrow: true, cell: (row) => row.agent, sort: (row) => row.agent },
        { id: "at", label: "When", width: "7rem", num: true, cell: (row) => ago(row.at), sort: (row) => Date.parse(row.at) },
      ],
      empty: { title: "No event matches", text: "Every decision and every effect is an event. Choose a longer time or another kind.", command: "annie events --newer-than 7d" },
    },
    detail: (row) => [
      heading(row.kind),
      facts([
        ["When", ago(row.at)],
        ["Agent", row.agent],
        ["Task", shortId(row.task_id)],
        ["Number", row.seq],
        ["Conversation", h("a", { href: `#/conversations/${row.conversation_id}?seq=${row.seq}` }, "Show it at this event")],
        ["Decided by", row.component], ["Decision", row.decision], ["Because", row.reasoning],
        ["Instead of", row.alternatives && row.alternatives.join("; ")],
      ]),
      h("h3", {}, "The whole event"),
      jsonView(row),
    ],
  });
  root.append(summary, more);
}
