// Dead letters: tasks whose every attempt failed. One by one, selected, or all that match a filter are retried or discarded.

import { h } from "../lib/dom.js";
import { ago, shortId } from "../lib/format.js";
import { dialog } from "../lib/overlay.js";
import { jsonView, status } from "../lib/states.js";
import { ageS, button, CLASSES, facts, heading, listPage, tabs } from "./listing.js";

const STATES = { waiting: ["warn", "Waiting"], retried: ["good", "Retried"], discarded: ["idle", "Discarded"], archived: ["idle", "Archived"] };
const chip = (state) => status(...(STATES[state] || ["idle", state]));
const letters = (n) => `${n} dead ${n === 1 ? "letter" : "letters"}`;
/** What one request of the API retries or discards at most. */
const AT_ONCE = 100;
/** Rows of the list: the bulk commands count on the server and know no such limit. */
const ROWS_MAX = 2000;

export function mount(root, ctx) {
  ctx.title("Dead letters");
  const view = tabs(ctx, "state", [["waiting", "Waiting"], ["retried", "Retried"], ["discarded", "Discarded"], ["archived", "Archived"]], "Which dead letters", () => page.reload());

  async function load() {
    const rows = [];
    let next;
    let total = 0;
    do {
      const found = await ctx.api.get("/dead-letters", { query: { state: view.now(), limit: 500, next } });
      rows.push(...found.dead_letters);
      total = found.total;
      next = found.next;
    } while (next && rows.length < ROWS_MAX);
    return { rows, total, more: Boolean(next) };
  }

  /** Calls a bulk command until nothing is left or the server stops. */
  async function everything(what) {
    let done = 0;
    for (;;) {
      const answer = await ctx.api.post(`/dead-letters/${what}`, { confirmed: true, limit: AT_ONCE });
      done += answer.done;
      if (!answer.done || answer.left === 0 || answer.stopped) return { done, left: answer.left, stopped: answer.stopped };
    }
  }

  /** The filter of the list as one of the server, if the rows are exactly what that filter finds. */
  function same(rows) {
    const one = (of) => { const all = new Set(rows.map(of)); return all.size === 1 ? [...all][0] : undefined; };
    const all = page.rows();
    const found = { error: one((row) => row.error), priority: one((row) => row.priority) };
    const fits = (filter) => all.filter((row) => (!filter.error || row.error === filter.error) && (!filter.priority || row.priority === filter.priority)).length === rows.length;
    for (const filter of [{}, { error: found.error }, { priority: found.priority }, found]) {
      if (Object.values(filter).every((value) => value !== undefined) && fits(filter)) return filter;
    }
    return null;
  }

  async function many(rows, what, verb, past) {
    const warning = what === "retry"
      ? "Each is tried again by a new task when the queue has capacity. Effects that already happened are not repeated."
      : "They are given up for good. Their conversations keep the history.";
    const answer = await dialog({ title: `${verb} ${letters(rows.length)}?`, body: warning, confirm: `${verb} ${letters(rows.length)}`, danger: what === "discard" });
    if (!answer) return;
    const filter = rows.length > 1 ? same(rows) : null;
    await ctx.act(verb, async () => {
      if (!filter) {
        for (const row of rows) await ctx.api.post(`/dead-letters/${row.task_id}/${what}`, {});
        return;
      }
      let left = rows.length;
      while (left > 0) {
        const done = await ctx.api.post(`/dead-letters/${what}`, { ...filter, confirmed: true, limit: Math.min(AT_ONCE, left) });
        if (done.stopped) throw new Error(`${past} ${rows.length - left + done.done} of ${rows.length}, then the server stopped: ${done.stopped}`);
        if (!done.done) break;
        left -= done.done;
      }
    }, { done: what === "retry" && rows.length > 1 ? `${letters(rows.length)} are retried as soon as the queue has capacity` : `${past} ${letters(rows.length)}` });
    page.list.clearSelection();
    ctx.setQuery({ sel: null });
    page.reload();
  }

  const isWaiting = (rows) => rows.length > 0 && rows.every((row) => row.state === "waiting");
  const errors = h("div.chips", { role: "group", aria: { label: "Errors" } });

  function summarise(rows) {
    const counts = new Map();
    for (const row of rows) counts.set(row.error, (counts.get(row.error) || 0) + 1);
    const top = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 6);
    errors.replaceChildren(...top.map(([error, n]) => h("button.chip", { type: "button", title: `Show only ${error}`, on: { click: () => ctx.setQuery({ filter: `error:${error}`, sel: null }) } }, `${error} ${n}`)));
  }

  const page = listPage(root, ctx, {
    load: async () => { const found = await load(); summarise(found.rows); return found; },
    tools: [view.el, errors],
    pick: "Select a dead letter to see every attempt.",
    table: {
      caption: "Dead letters",
      noun: "dead letter",
      key: (row) => row.task_id,
      selectable: true,
      search: (row) => `${row.title} ${row.error} ${row.detail}`,
      filterKeys: {
        class: { label: "Class", values: CLASSES, of: (row) => row.priority },
        error: { label: "Error", values: [], of: (row) => row.error },
        age: { label: "Age", kind: "duration", of: (row) => ageS(row.failed_at) },
      },
      columns: [
        { id: "error", label: "Error", width: "12rem", cell: (row) => h("span.mono", {}, row.error), sort: (row) => row.error },
        { id: "title", label: "Message", grow: true, cell: (row) => row.title || "(no text)", sort: (row) => row.title },
        { id: "class", label: "Class", width: "6.5rem", hideNarrow: true, cell: (row) => row.priority, sort: (row) => CLASSES.indexOf(row.priority) },
        { id: "tries", label: "Attempts", width: "5.5rem", num: true, hideNarrow: true, cell: (row) => String(row.tried.length), sort: (row) => row.tried.length },
        { id: "failed", label: "Failed", width: "7rem", num: true, cell: (row) => ago(row.failed_at), sort: (row) => Date.parse(row.failed_at) },
        { id: "retry", label: "Next retry", width: "8rem", num: true, hideNarrow: true, cell: (row) => (row.retry_at ? ago(row.retry_at) : h("span.dim", {}, "on request")), sort: (row) => (row.retry_at ? Date.parse(row.retry_at) : Infinity) },
      ],
      actions: [
        { id: "retry", label: (n) => `Retry ${letters(n)}`, when: isWaiting, run: (rows) => many(rows, "retry", "Retry", "Retried") },
        { id: "discard", label: (n) => `Discard ${letters(n)}`, danger: true, when: isWaiting, run: (rows) => many(rows, "discard", "Discard", "Discarded") },
      ],
      empty: { title: "No dead letters", text: "A task whose every attempt failed is kept here, so that nothing is lost. Annie retries background work by itself after six hours.", command: "annie dlq list" },
    },
    detail: (row) => {
      const more = h("div.stack", {}, h("p.dim", {}, "Loading the attempts…"));
      ctx.api.get(`/dead-letters/${row.task_id}`).then((whole) => {
        more.replaceChildren(
          h("h3", {}, "The message"), h("p.said", {}, whole.text),
          h("h3", {}, `${whole.events.length} events of the last attempt`),
          h("ol.events", {}, ...whole.events.map((event) => h("li", {}, h("span.mono", {}, event.kind), " ", ago(event.at), jsonView(event)))));
      }, (error) => { if (!ctx.signal.aborted) more.replaceChildren(h("p.dim", {}, `The attempts cannot be read: ${error.detail || error.message}`)); });
      return [
        heading(row.title || "(no text)", chip(row.state)),
        facts([
          ["Error", h("span.mono", {}, row.error)],
          ["Detail", row.detail],
          ["What the user was told", row.answer],
          ["Class", row.priority],
          ["Failed", ago(row.failed_at)],
          ["First failure", ago(row.since)],
          ["Next retry", row.retry_at ? ago(row.retry_at) : row.state === "waiting" ? "only on request" : undefined],
          ["Retried by", row.retried_by && shortId(row.retried_by)],
          ["Task", shortId(row.task_id)],
          ["Conversation", h("a", { href: `#/conversations/${row.conversation_id}` }, "Open the conversation")],
        ]),
        row.tried.length ? h("div", {}, h("h3", {}, "What was tried"), h("ol", {}, ...row.tried.map((text) => h("li", {}, text)))) : null,
        row.state === "waiting" ? h("div.toolbar", {},
          button("Retry 1 dead letter", () => ctx.act("Retry", () => ctx.api.post(`/dead-letters/${row.task_id}/retry`, {}), { done: "Retried 1 dead letter" }).then(() => page.reload()), "primary"),
          button("Discard 1 dead letter", () => many([row], "discard", "Discard", "Discarded"), "danger")) : null,
        more,
      ].filter(Boolean);
    },
  });

  ctx.commands([
    { title: "Retry all waiting dead letters", hint: "Dead letters", run: async () => {
      const answer = await dialog({ title: "Retry all waiting dead letters?", body: "Each is tried again by a new task when the queue has capacity.", confirm: "Retry all dead letters" });
      if (!answer) return;
      await ctx.act("Retry", () => everything("retry"), { done: "All waiting dead letters are retried" });
      page.reload();
    } },
  ]);
}
