// Approvals: calls that wait for a person, each with the exact arguments with which it would run.

import { h } from "../lib/dom.js";
import { ago, shortId } from "../lib/format.js";
import { dialog } from "../lib/overlay.js";
import { status } from "../lib/states.js";
import { button, facts, heading, listPage } from "./listing.js";
import { subject } from "./work.js";

const MODES = { ask_first_time: "The first call of this skill in a conversation needs a person.", ask: "Each call of this skill needs a person, until the skill is approved for the conversation.", always: "Each call of this skill needs a person, also in place of an earlier yes." };
const keyOf = (row) => `${row.task_id}.${row.number}`;

export function mount(root, ctx) {
  ctx.title("Approvals");

  function decided() {
    ctx.setQuery({ sel: null });
    page.reload();
  }

  async function approve(row, text, forConversation) {
    const body = { number: row.number, for_conversation: forConversation };
    if (text !== JSON.stringify(row.arguments, null, 2)) {
      try {
        body.arguments = JSON.parse(text);
      } catch (error) {
        await dialog({ title: "The arguments are no JSON", body: error.message + ". Correct them, or close the details to get the original back.", confirm: "Go back" });
        return;
      }
    }
    await ctx.act("Approve", () => ctx.api.post(`/approvals/${row.task_id}/approve`, body), { done: body.arguments ? `Approved ${row.skill} with your arguments` : `Approved ${row.skill}` });
    decided();
  }

  async function deny(row) {
    const answer = await dialog({ title: `Deny ${row.skill}?`, body: "The call is not made. The model and the user see your reason.", reason: true, confirm: "Deny call", danger: true });
    if (!answer) return;
    await ctx.act("Deny", () => ctx.api.post(`/approvals/${row.task_id}/deny`, { number: row.number, reason: answer.reason || "" }), { done: `Denied ${row.skill}` });
    decided();
  }

  const brief = (row) => {
    const text = Object.entries(row.arguments || {}).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ");
    return text.length > 120 ? text.slice(0, 119) + "…" : text;
  };

  const page = listPage(root, ctx, {
    load: async () => ({ rows: (await ctx.api.get("/approvals")).approvals }),
    on: ["status", "notifications"],
    everyMs: 5000,
    pick: "Select a call to read all of its arguments and to decide.",
    table: {
      caption: "Calls that wait for your approval",
      noun: "call",
      key: keyOf,
      search: (row) => row.skill + " " + JSON.stringify(row.arguments),
      filterKeys: { skill: { label: "Skill", values: [], of: (row) => row.skill }, agent: { label: "Agent", values: [], of: (row) => row.agent } },
      columns: [
        { id: "skill", label: "Skill", width: "12rem", cell: (row) => h("span.mono", {}, row.skill), sort: (row) => row.skill },
        { id: "arguments", label: "Arguments", grow: true, cell: brief },
        { id: "agent", label: "Agent", width: "8rem", hideNarrow: true, cell: (row) => row.agent, sort: (row) => row.agent },
        { id: "asked", label: "Asked", width: "7rem", num: true, cell: (row) => ago(row.requested_at), sort: (row) => Date.parse(row.requested_at) },
        { id: "expires", label: "Expires", width: "7rem", num: true, hideNarrow: true, cell: (row) => ago(row.expires_at), sort: (row) => Date.parse(row.expires_at) },
      ],
      empty: { title: "Nothing waits for you", text: "Calls that wait for a person appear here with their exact arguments: by default effects outside after an agent has read untrusted text, and whatever the approval rules of the configuration say.", command: "annie config show" },
    },
    detail: (row) => {
      const original = JSON.stringify(row.arguments, null, 2);
      const edit = h("textarea.mono.arguments", { id: "approval-arguments", rows: Math.min(24, original.split("\n").length + 1), spellcheck: false });
      edit.value = original;
      const about = h("p.said", { hidden: true });
      subject(row, ctx).then((text) => {
        about.hidden = !text;
        about.textContent = text;
      });
      const asked = h("span.dim", {}, "–");
      ctx.api.get(`/tasks/${row.task_id}`).then((task) => (asked.textContent = task.title)).catch(() => {});
      const changed = h("p.dim", { aria: { live: "polite" } });
      edit.addEventListener("input", () => { changed.textContent = edit.value === original ? "" : "Changed: the call runs with these arguments instead."; });
      return [
        heading(row.skill, status("wait", "Waits for you")),
        about,
        facts([
          ["For your message", asked],
          ["Agent", row.agent],
          ["Task", shortId(row.task_id)],
          ["Conversation", h("a", { href: `#/conversations/${row.conversation_id}` }, "Open the conversation")],
          ["Asked", ago(row.requested_at)],
          ["Counts as denied", ago(row.expires_at)],
          ["Rule", MODES[row.mode] || row.mode],
        ]),
        h("label.field", { for: "approval-arguments" }, h("span", {}, "The exact arguments"), edit),
        changed,
        h("div.toolbar", {},
          button("Approve call", () => approve(row, edit.value, false), "primary"),
          row.mode === "always" ? null : button("Approve for this conversation", () => approve(row, edit.value, true)),
          button("Deny call", () => deny(row), "danger")),
      ];
    },
  });
}
