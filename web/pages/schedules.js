// Schedules: messages that are sent again and again at fixed times.

import { h } from "../lib/dom.js";
import { ago, shortId, toDate } from "../lib/format.js";
import { dialog } from "../lib/overlay.js";
import { status } from "../lib/states.js";
import { button, facts, heading, listPage } from "./listing.js";

const chip = (row) => (row.paused ? status("idle", "Paused") : status("good", "Active"));
const exact = (at) => toDate(at).toLocaleString(undefined, { weekday: "short", year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

export function mount(root, ctx) {
  ctx.title("Schedules");

  async function add() {
    const answer = await dialog({
      title: "New schedule",
      fields: [
        { name: "text", label: "Message", kind: "textarea", required: true, hint: "A prompt, or /skill with arguments." },
        { name: "when", label: "When", kind: "text", required: true, hint: "Words, such as “every weekday at 8”, or a cron expression." },
        { name: "timezone", label: "Time zone", kind: "text", hint: "An IANA name, such as Europe/Berlin. Yours if empty." },
      ],
      confirm: "Create schedule",
    });
    if (!answer) return;
    const made = await ctx.act("Create", () => ctx.api.post("/schedules", { text: answer.text, when: answer.when, timezone: answer.timezone || "" }), { done: "Schedule created" });
    if (made) { ctx.setQuery({ sel: String(made.number) }); page.reload(); }
  }

  const act = (row, verb, what, done) => ctx.act(what, () => ctx.api.post(`/schedules/${row.number}/${verb}`, {}), { done }).then(() => page.reload());

  async function remove(rows) {
    const what = rows.length === 1 ? `schedule ${rows[0].number}` : `${rows.length} schedules`;
    const answer = await dialog({ title: `Remove ${what}?`, body: "No further message is sent. Conversations of earlier times stay.", confirm: `Remove ${what}`, danger: true });
    if (!answer) return;
    await ctx.act("Remove", async () => { for (const row of rows) await ctx.api.post(`/schedules/${row.number}/remove`, {}); }, { done: `Removed ${what}` });
    ctx.setQuery({ sel: null });
    page.reload();
  }

  const create = button("New schedule", add, "primary");
  const page = listPage(root, ctx, {
    load: async () => ({ rows: (await ctx.api.get("/schedules")).schedules }),
    tools: [create],
    pick: "Select a schedule to see its next times.",
    table: {
      caption: "Schedules",
      noun: "schedule",
      key: (row) => row.number,
      selectable: true,
      search: (row) => `${row.text} ${row.when}`,
      filterKeys: { state: { label: "State", values: ["active", "paused"], of: (row) => (row.paused ? "paused" : "active") } },
      columns: [
        { id: "state", label: "State", width: "6.5rem", cell: chip, sort: (row) => (row.paused ? 1 : 0) },
        { id: "text", label: "Message", grow: true, cell: (row) => row.text, sort: (row) => row.text },
        { id: "when", label: "When", grow: true, width: "8.5rem", cell: (row) => row.when, sort: (row) => row.when },
        { id: "next", label: "Next", num: true, width: "6rem", cell: (row) => (row.next_at ? ago(row.next_at) : h("span.dim", {}, "paused")), sort: (row) => (row.next_at ? Date.parse(row.next_at) : Infinity) },
        { id: "runs", label: "Runs", num: true, width: "5rem", hideNarrow: true, cell: (row) => String(row.runs), sort: (row) => row.runs },
        { id: "missed", label: "Missed", num: true, width: "5rem", hideNarrow: true, cell: (row) => String(row.missed + row.skipped), sort: (row) => row.missed + row.skipped },
      ],
      actions: [{ id: "remove", label: (n) => (n === 1 ? "Remove schedule" : `Remove ${n} schedules`), danger: true, run: remove }],
      empty: { title: "No schedules", text: "A schedule sends a message for you at fixed times, such as a digest every weekday at 8.", command: 'annie cron add "every weekday at 8" "run my digest"', button: { label: "New schedule", run: add } },
    },
    detail: (row) => {
      const times = h("ol.times", {}, h("li.dim", {}, "Loading…"));
      ctx.api.get(`/schedules/${row.number}/next`).then((answer) => {
        times.replaceChildren(...(answer.times.length ? answer.times.map((at) => h("li", {}, exact(at), " ", h("span.dim", {}, ago(at)))) : [h("li.dim", {}, "None while the schedule is paused.")]));
      }, (error) => { if (!ctx.signal.aborted) times.replaceChildren(h("li.dim", {}, error.detail || error.message)); });
      return [
        heading(`Schedule ${row.number}`, chip(row)),
        h("p.said", {}, row.text),
        facts([
          ["When", row.when],
          ["Cron", row.cron && h("span.mono", {}, row.cron)],
          ["Time zone", row.timezone],
          ["Paused because", row.paused],
          ["Runs", row.runs],
          ["Missed", row.missed > 0 && `${row.missed}, because no process ran for more than an hour after the time`],
          ["Skipped", row.skipped > 0 && `${row.skipped}, because the task before was still open`],
          ["Last run", row.last_at && ago(row.last_at)],
          ["Last task", row.last_task_id && shortId(row.last_task_id)],
          ["Answers to", row.reply_to ? `${row.reply_to.channel}: ${row.reply_to.to}` : "a notification"],
          ["Conversation", h("a", { href: `#/conversations/${row.conversation_id}` }, "Open the conversation")],
          ["Created", ago(row.created_at)],
        ]),
        h("h3", {}, "Next times"), times,
        h("div.toolbar", {},
          button("Run schedule now", () => act(row, "run", "Run", "The message is sent"), "primary"),
          row.paused ? button("Resume schedule", () => act(row, "resume", "Resume", "Schedule resumed")) : button("Pause schedule", () => act(row, "pause", "Pause", "Schedule paused")),
          button("Remove schedule", () => remove([row]), "danger")),
      ];
    },
  });
  ctx.commands([{ title: "New schedule", hint: "Schedules", run: add }]);
  ctx.keys({ n: ["New schedule", add] });
}
