// Jobs: what is being worked on, what waits and why, and what has ended.

import { h } from "../lib/dom.js";
import { ago, duration, exactTime, shortId } from "../lib/format.js";
import { dialog } from "../lib/overlay.js";
import { status } from "../lib/states.js";
import { button, CLASSES, facts, heading, listPage, tabs } from "./listing.js";

const WORDS = {
  running: ["accent", "Running"], approval: ["warn", "Waits for you"], queued: ["wait", "Queued"], deferred: ["warn", "Deferred"], suspended: ["idle", "Suspended"],
  completed: ["good", "Completed"], failed: ["bad", "Failed"], cancelled: ["idle", "Cancelled"],
};
const chip = (word) => status(...(WORDS[word] || ["idle", word]));
const idOf = (row) => row.task_id || row.id;

export function mount(root, ctx) {
  ctx.title("Jobs");
  const view = tabs(ctx, "view", [["open", "Open"], ["ended", "Ended"]], "Which jobs", () => page.reload());

  async function load() {
    if (view.now() === "open") {
      const [{ jobs }, { approvals }] = await Promise.all([ctx.api.get("/jobs"), ctx.api.get("/approvals").catch(() => ({ approvals: [] }))]);
      // A task whose call waits for a person counts as running; nothing goes on until the person decides.
      const waits = new Map(approvals.map((one) => [one.task_id, one]));
      return { rows: jobs.map((job) => (waits.has(job.task_id) ? { ...job, status: "approval", approval: waits.get(job.task_id) } : job)) };
    }
    const found = await ctx.api.get("/tasks", { query: { limit: 200 } });
    return { rows: found.tasks.filter((task) => task.ended_at), more: Boolean(found.next) };
  }

  const each = (rows, verb, what, done) => ctx.act(what, async () => {
    for (const row of rows) await ctx.api.post(`/tasks/${idOf(row)}/${verb}`, {});
  }, { done }).then(() => page.reload());
  const count = (n) => (n === 1 ? "job" : n + " jobs");
  const open = (rows) => rows.length > 0 && rows.every((row) => !row.ended_at);

  async function cancel(rows) {
    const answer = await dialog({ title: `Cancel ${count(rows.length)}?`, body: "Running rounds are stopped. Effects that have happened stay.", confirm: `Cancel ${count(rows.length)}`, danger: true });
    if (answer) await each(rows, "cancel", "Cancel", `${count(rows.length)} cancelled`);
  }

  async function priority(rows) {
    const answer = await dialog({ title: `Change the class of ${count(rows.length)}`, fields: [{ name: "priority", label: "Class", kind: "select", options: CLASSES.slice(1), value: rows[0].priority }], confirm: "Change class" });
    if (!answer) return;
    await ctx.act("Change class", async () => {
      for (const row of rows) await ctx.api.post(`/tasks/${idOf(row)}/priority`, { priority: answer.priority });
    }, { done: `Class is now ${answer.priority}` });
    page.reload();
  }

  function timing(row) {
    if (row.ended_at) return ago(row.ended_at);
    if (row.deferred_until) return ago(row.deferred_until);
    if (row.running_ms !== undefined) return "for " + duration(row.running_ms);
    if (row.start_in_ms !== undefined) return "in about " + duration(row.start_in_ms);
    return row.suspended_at ? ago(row.suspended_at) : "";
  }

  const page = listPage(root, ctx, {
    load,
    tools: [view.el],
    on: ["queue", "status"],
    pick: "Select a job to see what it waits for and to change it.",
    table: {
      caption: "Jobs",
      noun: "job",
      key: idOf,
      selectable: true,
      search: (row) => row.title,
      filterKeys: {
        status: { label: "Status", values: Object.keys(WORDS), of: (row) => row.status },
        class: { label: "Class", values: CLASSES, of: (row) => row.priority },
      },
      columns: [
        { id: "status", label: "Status", width: "9rem", cell: (row) => chip(row.status), sort: (row) => row.status },
        { id: "title", label: "Message", grow: true, cell: (row) => row.title || "(no text)", sort: (row) => row.title },
        { id: "class", label: "Class", width: "6.5rem", cell: (row) => row.priority, sort: (row) => CLASSES.indexOf(row.priority) },
        { id: "position", label: "Position", num: true, width: "5rem", hideNarrow: true, cell: (row) => (row.position === undefined ? "" : String(row.position)), sort: (row) => row.position ?? 1e9 },
        { id: "round", label: "Round", num: true, width: "5rem", hideNarrow: true, cell: (row) => (row.round === undefined ? "" : row.rounds_max ? `${row.round} of ${row.rounds_max}` : String(row.round)), sort: (row) => row.round ?? 0 },
        { id: "done", label: "Done", num: true, width: "5rem", hideNarrow: true, cell: (row) => (row.percent === undefined ? "" : `${row.percent} %`), sort: (row) => row.percent ?? -1 },
        { id: "time", label: "Time", num: true, width: "8rem", cell: timing, sort: (row) => (row.ended_at ? Date.parse(row.ended_at) : row.running_ms ?? -(row.start_in_ms ?? 0)) },
      ],
      actions: [
        { id: "cancel", label: (n) => `Cancel ${count(n)}`, danger: true, when: open, run: cancel },
        { id: "suspend", label: (n) => `Suspend ${count(n)}`, when: (rows) => open(rows) && rows.every((row) => row.status !== "suspended"), run: (rows) => each(rows, "suspend", "Suspend", `${count(rows.length)} suspended`) },
        { id: "continue", label: (n) => `Resume ${count(n)}`, when: (rows) => open(rows) && rows.every((row) => row.status === "suspended"), run: (rows) => each(rows, "continue", "Resume", `${count(rows.length)} resumed`) },
        { id: "priority", label: () => "Change class", when: open, run: priority },
      ],
      empty: { title: "No jobs", text: "A job is a message that Annie works on or that waits for its turn. A job appears here as soon as a message is accepted.", command: 'annie ask "What is due today?"', button: { label: "Open chat", run: () => ctx.go("#/chat") } },
    },
    detail: (row) => [
      heading(row.title || "(no text)", chip(row.status)),
      facts([
        ["Task", shortId(idOf(row))],
        ["Conversation", h("a", { href: `#/conversations/${row.conversation_id}` }, "Open the conversation")],
        ["Class", row.priority],
        ["Why", row.reason || (row.approval && `${row.approval.skill} needs your approval`)],
        ["Position", row.position],
        ["Round", row.round === undefined ? undefined : row.rounds_max ? `${row.round} of ${row.rounds_max}` : row.round],
        ["Deferred until", row.deferred_until && h("span", ago(row.deferred_until), h("span.dim", ` (${exactTime(row.deferred_until)})`))],
        ["Done", row.percent === undefined ? undefined : `${row.percent} % of its rounds, if it uses all of them`],
        ["Ends", row.ends_in_ms_max === undefined ? undefined : `within ${duration(row.ends_in_ms_max)}, or sooner`],
        ["Next round", row.start_in_ms === undefined ? undefined : "in about " + duration(row.start_in_ms)],
        ["Running for", row.running_ms === undefined ? undefined : duration(row.running_ms)],
        ["Source", row.source],
        ["Received", row.received_at && ago(row.received_at)],
        ["Ended", row.ended_at && ago(row.ended_at)],
        ["Error", row.error],
        ["Suspended", row.suspended_at && ago(row.suspended_at)],
      ]),
      row.ended_at
        ? h("p.dim", {}, "This job has ended. What happened is in its conversation.")
        : h("div.toolbar", {},
          row.approval ? h("a.btn.primary", { href: `#/approvals?sel=${row.approval.task_id}.${row.approval.number}` }, "Decide call") : "",
          row.status === "suspended"
            ? button("Resume job", () => each([row], "continue", "Resume", "Job resumed"), "primary")
            : button("Suspend job", () => each([row], "suspend", "Suspend", "Job suspended")),
          button("Change class", () => priority([row])),
          button("Cancel job", () => cancel([row]), "danger")),
    ],
  });
}
