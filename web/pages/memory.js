// Memory: to-dos, memories and notes of the person who looks: list, search, add, edit, forget, restore, export.

import { h, replace } from "../lib/dom.js";
import { ago, percent } from "../lib/format.js";
import { dialog } from "../lib/overlay.js";
import { status } from "../lib/states.js";
import { button, facts, heading, listPage, runSkill, tabs } from "./listing.js";

const STATUS = { todo: ["wait", "To do"], in_progress: ["accent", "In progress"], blocked: ["warn", "Blocked"], done: ["good", "Done"], cancelled: ["idle", "Cancelled"] };
const PRIORITIES = ["low", "medium", "high", "critical"];
const CATEGORIES = ["preference", "fact", "decision", "goal", "relationship", "context", "instruction"];
const ORIGIN = "from:";
const split = (text) => text.split(",").map((tag) => tag.trim()).filter(Boolean);
const own = (tags) => (tags || []).filter((tag) => !tag.startsWith(ORIGIN));
const origin = (tags) => (tags || []).filter((tag) => tag.startsWith(ORIGIN)).map((tag) => tag.slice(ORIGIN.length)).join(", ");
const priorityOf = (body) => (typeof body.priority === "number" ? PRIORITIES[body.priority] ?? PRIORITIES[body.priority - 1] ?? String(body.priority) : body.priority);

export function mount(root, ctx) {
  ctx.title("Memory");
  const places = Object.fromEntries(["memories", "todos", "notes"].map((id) => [id, h("div.place", {})]));
  const pages = {};
  const view = tabs(ctx, "view", [["memories", "Memories"], ["todos", "To-dos"], ["notes", "Notes"]], "What to see", choose);
  const trash = h("input", { type: "checkbox", on: { change: () => { ctx.setQuery({ deleted: trash.checked ? "1" : null, sel: null }); reload(); } } });
  const add = h("button.btn.primary", { type: "button", on: { click: () => ADD[view.now()]() } });

  const isTrash = () => ctx.route.query.deleted === "1";
  const reload = () => pages[view.now()] && pages[view.now()].reload();

  function choose() {
    const now = view.now();
    trash.checked = isTrash();
    add.textContent = { memories: "Add memory", todos: "Add to-do", notes: "Add note" }[now];
    for (const [id, place] of Object.entries(places)) place.hidden = id !== now;
    if (!pages[now]) pages[now] = { memories, todos, notes }[now]();
    else reload();
  }

  /** Runs a skill, says what happened, and reads the list again. */
  const act = (verb, skill, args, done) => ctx.act(verb, () => runSkill(ctx, skill, args), { done }).then((result) => { if (/restore|delete/.test(skill)) ctx.setQuery({ sel: null }); reload(); return result; });

  async function forget(rows, what, skill, argument) {
    const name = rows.length === 1 ? `1 ${what}` : `${rows.length} ${what === "memory" ? "memories" : what + "s"}`;
    const verb = what === "memory" ? "Forget" : "Delete";
    const answer = await dialog({ title: `${verb} ${name}?`, body: "It stays in the trash for 30 days and can be restored.", confirm: `${verb} ${name}`, danger: true });
    if (!answer) return;
    await ctx.act(verb, async () => { for (const row of rows) await runSkill(ctx, skill, argument(row)); }, { done: `${verb === "Forget" ? "Forgot" : "Deleted"} ${name}` });
    ctx.setQuery({ sel: null });
    reload();
  }

  const rowsOf = (kind) => async () => {
    const found = await ctx.api.get("/data", { query: { kind, deleted: isTrash() ? true : undefined } });
    return { rows: found.documents, more: found.documents.length >= 500 };
  };

  const ADD = {
    async memories() {
      const answer = await dialog({ title: "Add memory", fields: [
        { name: "content", label: "Statement", kind: "textarea", required: true, hint: "One clear sentence that stands for itself." },
        { name: "category", label: "Category", kind: "select", options: CATEGORIES, value: "fact" },
        { name: "tags", label: "Tags", kind: "text", hint: "Separated by commas." }], confirm: "Add memory" });
      if (answer) await act("Add", "memory.save", { content: answer.content, category: answer.category, tags: split(answer.tags || "") }, "Memory added");
    },
    async todos() {
      const answer = await dialog({ title: "Add to-do", fields: [
        { name: "title", label: "Title", kind: "text", required: true },
        { name: "due", label: "Due", kind: "text", hint: "Words, such as “tomorrow at 5 pm”, or a date." },
        { name: "priority", label: "Priority", kind: "select", options: PRIORITIES, value: "medium" },
        { name: "tags", label: "Tags", kind: "text", hint: "Separated by commas." }], confirm: "Add to-do" });
      if (answer) await act("Add", "tasks.create", { title: answer.title, due: answer.due, priority: answer.priority, tags: split(answer.tags || "") }, "To-do added");
    },
    async notes() {
      const answer = await dialog({ title: "Add note", fields: [
        { name: "title", label: "Title", kind: "text", required: true },
        { name: "content", label: "Text", kind: "textarea", required: true }], confirm: "Add note" });
      if (answer) await act("Add", "notes.create", { title: answer.title, content: answer.content }, "Note added");
    },
  };

  function memories() {
    async function edit(row) {
      const answer = await dialog({ title: `Edit memory ${row.number}`, fields: [
        { name: "content", label: "Statement", kind: "textarea", required: true, value: row.body.content },
        { name: "tags", label: "Tags", kind: "text", value: own(row.body.tags).join(", "), hint: "Separated by commas. Where it came from stays recorded." },
        { name: "importance", label: "Importance, 0 to 1", kind: "number", value: row.body.importance }], confirm: "Save memory" });
      if (answer) await act("Save", "memory.update", { id: row.number, content: answer.content, tags: split(answer.tags || ""), importance: answer.importance === "" ? undefined : Number(answer.importance) }, "Memory saved");
    }
    return listPage(places.memories, ctx, {
      load: rowsOf("memories"),
      on: ["status"],
      pick: "Select a memory to see where it came from.",
      table: {
        caption: "Memories",
        key: (row) => row.number,
        selectable: true,
        search: (row) => `${row.body.content} ${(row.body.tags || []).join(" ")}`,
        filterKeys: {
          category: { label: "Category", values: CATEGORIES, of: (row) => row.body.category },
          tag: { label: "Tag", values: [], of: (row) => own(row.body.tags) },
          origin: { label: "Origin", values: ["you", "others"], of: (row) => (origin(row.body.tags) ? "others" : "you") },
        },
        columns: [
          { id: "number", label: "No.", num: true, width: "4rem", hideNarrow: true, cell: (row) => String(row.number), sort: (row) => row.number },
          { id: "content", label: "Memory", grow: true, cell: (row) => row.body.content || "(erased)", sort: (row) => row.body.content },
          { id: "category", label: "Category", width: "8rem", cell: (row) => row.body.category, sort: (row) => row.body.category },
          { id: "origin", label: "Origin", width: "9rem", hideNarrow: true, cell: (row) => { const from = origin(row.body.tags); return from ? status("warn", from) : "you"; }, sort: (row) => origin(row.body.tags) },
          { id: "importance", label: "Importance", num: true, width: "6.5rem", hideNarrow: true, cell: (row) => (row.body.importance === undefined ? "" : percent(row.body.importance)), sort: (row) => row.body.importance },
          { id: "at", label: "Changed", num: true, width: "7rem", cell: (row) => ago(row.deleted_at || row.updated_at), sort: (row) => Date.parse(row.deleted_at || row.updated_at) },
        ],
        actions: [
          { id: "forget", label: (n) => (n === 1 ? "Forget memory" : `Forget ${n} memories`), danger: true, when: (rows) => rows.every((row) => !row.deleted_at), run: (rows) => forget(rows, "memory", "memory.delete", (row) => ({ id: row.number })) },
        ],
        empty: { title: "Nothing here", text: "What Annie should remember about you is listed here, with its origin. Tell Annie a fact in the chat, or add one.", command: 'annie memory add "I prefer tea"', button: { label: "Add memory", run: () => ADD.memories() } },
      },
      detail: (row) => [
        heading(`Memory ${row.number}`, row.deleted_at ? status("idle", "Forgotten") : status("good", "Remembered")),
        h("p.said", {}, row.body.content),
        facts([
          ["Category", row.body.category],
          ["Tags", own(row.body.tags).join(", ")],
          ["Origin", origin(row.body.tags) ? `written after reading ${origin(row.body.tags)}; never treated as an instruction` : "your own words"],
          ["Importance", row.body.importance !== undefined && percent(row.body.importance)],
          ["Last recalled", row.accessed_at && ago(row.accessed_at)],
          ["Changed", ago(row.updated_at)], ["Created", ago(row.created_at)], ["Forgotten", row.deleted_at && ago(row.deleted_at)],
        ]),
        h("div.toolbar", {}, ...(row.deleted_at
          ? [button("Restore memory", () => act("Restore", "memory.restore", { id: row.number }, "Memory restored"), "primary")]
          : [button("Edit memory", () => edit(row)), button("Forget memory", () => forget([row], "memory", "memory.delete", (one) => ({ id: one.number })), "danger")])),
      ],
    });
  }

  function todos() {
    async function edit(row) {
      const { body } = row;
      const answer = await dialog({ title: `Edit to-do ${row.number}`, fields: [
        { name: "title", label: "Title", kind: "text", required: true, value: body.title },
        { name: "description", label: "Description", kind: "textarea", value: body.description },
        { name: "status", label: "Status", kind: "select", options: Object.keys(STATUS), value: body.status },
        { name: "priority", label: "Priority", kind: "select", options: PRIORITIES, value: priorityOf(body) },
        { name: "due", label: "Due", kind: "text", value: body.due }], confirm: "Save to-do" });
      if (answer) await act("Save", "tasks.update", { id: row.number, title: answer.title, description: answer.description, status: answer.status, priority: answer.priority, due: answer.due }, "To-do saved");
    }
    const finish = (rows) => ctx.act("Finish", async () => { for (const row of rows) await runSkill(ctx, "tasks.update", { id: row.number, status: "done" }); }, { done: rows.length === 1 ? "To-do done" : `${rows.length} to-dos done` }).then(reload);
    return listPage(places.todos, ctx, {
      load: rowsOf("todos"),
      on: ["status"],
      pick: "Select a to-do to change it.",
      table: {
        caption: "To-dos",
        noun: "to-do",
        key: (row) => row.number,
        selectable: true,
        search: (row) => `${row.body.title} ${row.body.description || ""} ${(row.body.tags || []).join(" ")}`,
        filterKeys: {
          status: { label: "Status", values: Object.keys(STATUS), of: (row) => row.body.status },
          priority: { label: "Priority", values: PRIORITIES, of: (row) => priorityOf(row.body) },
          tag: { label: "Tag", values: [], of: (row) => own(row.body.tags) },
        },
        columns: [
          { id: "number", label: "No.", num: true, width: "4rem", hideNarrow: true, cell: (row) => String(row.number), sort: (row) => row.number },
          { id: "status", label: "Status", width: "8rem", cell: (row) => status(...(STATUS[row.body.status] || ["idle", row.body.status || "erased"])), sort: (row) => row.body.status },
          { id: "title", label: "To-do", grow: true, cell: (row) => row.body.title || "(erased)", sort: (row) => row.body.title },
          { id: "due", label: "Due", width: "10rem", num: true, cell: (row) => (row.body.due || "").replace("T", " "), sort: (row) => row.body.due || "9" },
          { id: "priority", label: "Priority", width: "6rem", hideNarrow: true, cell: (row) => priorityOf(row.body), sort: (row) => PRIORITIES.indexOf(priorityOf(row.body)) },
        ],
        actions: [
          { id: "done", label: (n) => (n === 1 ? "Finish to-do" : `Finish ${n} to-dos`), when: (rows) => rows.every((row) => !row.deleted_at && row.body.status !== "done"), run: finish },
          { id: "delete", label: (n) => (n === 1 ? "Delete to-do" : `Delete ${n} to-dos`), danger: true, when: (rows) => rows.every((row) => !row.deleted_at), run: (rows) => forget(rows, "to-do", "tasks.delete", (row) => ({ id: row.number })) },
        ],
        empty: { title: "No to-dos", text: "Things that you want to do, with their due times. Ask Annie for one in the chat, or add one.", command: 'annie todos add "review the draft" --due tomorrow', button: { label: "Add to-do", run: () => ADD.todos() } },
      },
      detail: (row) => [
        heading(row.body.title || `To-do ${row.number}`, row.deleted_at ? status("idle", "Deleted") : status(...(STATUS[row.body.status] || ["idle", row.body.status]))),
        row.body.description ? h("p.said", {}, row.body.description) : null,
        facts([["Number", row.number], ["Due", (row.body.due || "").replace("T", " ")], ["Priority", priorityOf(row.body)], ["Tags", own(row.body.tags).join(", ")], ["Part of", row.body.parent && `to-do ${row.body.parent}`], ["Changed", ago(row.updated_at)], ["Created", ago(row.created_at)], ["Deleted", row.deleted_at && ago(row.deleted_at)]]),
        h("div.toolbar", {}, ...(row.deleted_at
          ? [button("Restore to-do", () => act("Restore", "tasks.restore", { id: row.number }, "To-do restored"), "primary")]
          : [row.body.status !== "done" ? button("Finish to-do", () => finish([row]), "primary") : "", button("Edit to-do", () => edit(row)), button("Delete to-do", () => forget([row], "to-do", "tasks.delete", (one) => ({ id: one.number })), "danger")])),
      ].filter(Boolean),
    });
  }

  function notes() {
    const titleOf = (path) => path.replace(/\.md$/, "");
    async function append(row) {
      const answer = await dialog({ title: `Add to ${row.title}`, fields: [{ name: "append", label: "Text", kind: "textarea", required: true }], confirm: "Add text" });
      if (answer) await act("Add", "notes.edit", { title: row.title, append: answer.append }, "Text added");
    }
    async function change(row) {
      const answer = await dialog({ title: `Change a text in ${row.title}`, fields: [{ name: "replace", label: "Text as it is", kind: "textarea", required: true }, { name: "with", label: "New text", kind: "textarea", required: true }], confirm: "Change text" });
      if (answer) await act("Change", "notes.edit", { title: row.title, replace: answer.replace, with: answer.with }, "Text changed");
    }
    async function rename(row) {
      const answer = await dialog({ title: `Rename ${row.title}`, fields: [{ name: "to", label: "New title", kind: "text", required: true, value: row.title }], confirm: "Rename note" });
      if (answer && (await act("Rename", "notes.rename", { title: row.title, to: answer.to }, "Note renamed"))) ctx.setQuery({ sel: null });
    }
    return listPage(places.notes, ctx, {
      load: async () => {
        const found = await runSkill(ctx, "notes.list", { deleted: isTrash(), limit: 500 });
        const evidence = found.evidence || { paths: [], total: 0 };
        return { rows: evidence.paths.map((path) => ({ path, title: titleOf(path), deleted: isTrash() })), total: evidence.total, more: evidence.total > evidence.paths.length };
      },
      on: [],
      everyMs: 20000,
      pick: "Select a note to read it.",
      table: {
        caption: "Notes",
        noun: "note",
        key: (row) => row.path,
        search: (row) => row.title,
        columns: [{ id: "title", label: "Note", grow: true, cell: (row) => row.title, sort: (row) => row.title }],
        empty: { title: "No notes", text: "Notes are Markdown files in the data folder. Ask Annie to write something down, or add a note.", command: "annie notes list", button: { label: "Add note", run: () => ADD.notes() } },
      },
      detail: (row) => {
        const text = h("pre.doc", { tabIndex: 0 }, "Loading…");
        if (row.deleted) replace(text, "A deleted note is read after it was restored.");
        else runSkill(ctx, "notes.read", { title: row.title, lines: 1000 }).then((found) => replace(text, found.text), (error) => { if (!ctx.signal.aborted) replace(text, error.detail || error.message); });
        return [
          heading(row.title, row.deleted ? status("idle", "Deleted") : ""),
          h("div.toolbar", {}, ...(row.deleted
            ? [button("Restore note", () => act("Restore", "notes.restore", { title: row.title }, "Note restored"), "primary")]
            : [button("Add text", () => append(row)), button("Change text", () => change(row)), button("Rename note", () => rename(row)), button("Delete note", () => forget([row], "note", "notes.delete", (one) => ({ title: one.title })), "danger")])),
          text,
        ];
      },
    });
  }

  function exportAll() {
    return ctx.act("Export", async () => {
      const [todo, memory] = await Promise.all([ctx.api.get("/data", { query: { kind: "todos" } }), ctx.api.get("/data", { query: { kind: "memories" } })]);
      const lines = [...todo.documents.map((row) => ({ kind: "todo", ...row })), ...memory.documents.map((row) => ({ kind: "memory", ...row }))].map((row) => JSON.stringify(row));
      download("annie-memory.ndjson", lines.join("\n") + "\n");
    }, { done: "Export saved" });
  }

  root.append(h("div.stack", {}, h("div.toolbar", {}, view.el, h("label.check", {}, trash, " Trash"), add, button("Export", exportAll, "quiet")), ...Object.values(places)));
  choose();
  let before = `${view.now()} ${isTrash()}`;
  ctx.route.subscribe(() => { const now = `${view.now()} ${isTrash()}`; if (now !== before) { before = now; choose(); } });
  ctx.keys({ n: ["Add", () => ADD[view.now()]()] });
  ctx.commands([{ title: "Add memory", hint: "Memory", run: ADD.memories }, { title: "Add to-do", hint: "Memory", run: ADD.todos }, { title: "Add note", hint: "Memory", run: ADD.notes }]);
}

/** Saves a text as a file of the viewer. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
