// Workflows: what the files define, a form to run one, and how far its runs are.

import { h, replace } from "../lib/dom.js";
import { schemaForm } from "../lib/form.js";
import { ago, plural } from "../lib/format.js";
import { status, ticks } from "../lib/states.js";
import { button, facts, heading, listPage, newId } from "./listing.js";

const STEP = { pending: ["idle", "Not reached"], running: ["accent", "Running"], done: ["good", "Done"], failed: ["bad", "Failed"] };
const TASK = { queued: ["wait", "Queued"], deferred: ["warn", "Deferred"], running: ["accent", "Running"], suspended: ["idle", "Suspended"], completed: ["good", "Completed"], failed: ["bad", "Failed"], cancelled: ["idle", "Cancelled"] };
// How many of the newest runs of the selected workflow are shown with their steps.
const RUNS_MAX = 3;

const fileState = (row) => (row.problems.length ? status("bad", plural(row.problems.length, "problem")) : status("good", "Ready"));

export function mount(root, ctx) {
  ctx.title("Workflows");
  // A form stays while its workflow is read again, so that nothing that a person types is lost.
  const forms = new Map();

  async function load() {
    const [{ workflows }, { tasks }] = await Promise.all([ctx.api.get("/workflows"), ctx.api.get("/tasks", { query: { limit: 200 } })]);
    const runsOf = (name) => tasks.filter((task) => task.title === `/${name}` || task.title.startsWith(`/${name} `));
    const rows = workflows.map((workflow) => ({ ...workflow, runs: runsOf(workflow.name) }));
    const chosen = rows.find((row) => row.name === ctx.route.query.sel);
    if (chosen) {
      // A task of this name may be older than its workflow, and then it is no run.
      const states = await Promise.all(chosen.runs.slice(0, RUNS_MAX).map((task) => ctx.api.get(`/workflow-runs/${task.id}`).catch(() => null)));
      chosen.states = states.filter(Boolean);
    }
    return { rows };
  }

  function formOf(row) {
    const form = schemaForm(row.schema ?? {}, {});
    const isPrivate = h("input", { type: "checkbox", id: `private-${row.name}` });
    const refused = h("div", { aria: { live: "polite" } });
    // A repetition of a request that was lost is the same run.
    let key = newId();
    const run = async () => {
      const args = form.value();
      if (!args) return;
      replace(refused);
      try {
        await ctx.api.post(`/workflows/${encodeURIComponent(row.name)}/run`, { arguments: args, key, private: isPrivate.checked });
        key = newId();
        page.reload();
      } catch (error) {
        if (error.status) key = newId();
        if (!form.show(error)) replace(refused, status("bad", error.title || "Refused"), h("pre.doc", { tabIndex: 0 }, error.detail || error.message));
      }
    };
    return h("form.stack", { on: { submit: (event) => { event.preventDefault(); run(); } } }, form.el,
      h("div.field", {}, h("div.checkline", {}, isPrivate, h("label", { for: isPrivate.id }, "Private")), h("span.hint", {}, "Only local models work on it, and nothing reaches other machines.")),
      refused, h("div.toolbar", {}, h("button.btn.primary", { type: "submit" }, `Run ${row.name}`)));
  }

  function runBlock(state) {
    const step = (one) => h("li.stack.tight", {},
      h("div.row", {}, status(...(STEP[one.state] ?? ["idle", one.state])), h("span.strong.mono", {}, one.id), h("span.dim.grow.cut", {}, one.work), one.visits > 1 ? h("span.tabular", {}, `${one.visits} times`) : null),
      one.text || one.error ? h("p.dim.small.wrap", {}, [one.error, one.text].filter(Boolean).join(": ")) : null);
    return h("section.stack", {},
      h("div.row.wraps", {}, status(...(state.awaits_approval ? ["warn", "Waits for you"] : TASK[state.status] ?? ["idle", state.status])),
        h("span.dim", {}, plural(state.calls, "call")),
        h("a", { href: `#/conversations/${state.conversation_id}` }, "Open the conversation"),
        state.awaits_approval ? h("a", { href: "#/approvals" }, "Decide the call") : null),
      state.failure ? h("p.wrap", {}, state.failure) : null,
      h("ol.events", {}, ...state.steps.map(step)));
  }

  const page = listPage(root, ctx, {
    load,
    on: ["queue", "status"],
    everyMs: 4000,
    pick: "Select a workflow to run it and to follow its runs.",
    table: {
      caption: "Workflows",
      noun: "workflow",
      key: (row) => row.name,
      search: (row) => `${row.name} ${row.description}`,
      filterKeys: { state: { label: "State", values: ["ready", "problems"], of: (row) => (row.problems.length ? "problems" : "ready") } },
      columns: [
        { id: "state", label: "File", width: "8rem", cell: fileState, sort: (row) => row.problems.length },
        { id: "name", label: "Workflow", width: "13rem", cell: (row) => h("span.mono", {}, row.name), sort: (row) => row.name },
        { id: "description", label: "What it does", grow: true, cell: (row) => row.description },
        { id: "steps", label: "Steps", num: true, width: "5rem", hideNarrow: true, cell: (row) => String(row.steps.length), sort: (row) => row.steps.length },
        { id: "last", label: "Last run", num: true, width: "8rem", hideNarrow: true, cell: (row) => (row.runs[0] ? ago(row.runs[0].received_at) : h("span.dim", {}, "none")), sort: (row) => (row.runs[0] ? -Date.parse(row.runs[0].received_at) : 1) },
      ],
      empty: { title: "No workflows", text: "A workflow is a file that lists steps: skills, agents, loops and branches. They run in order and survive a restart. Put one into the folder workflows of the data folder; it appears within a second.", command: "annie workflows validate FILE" },
    },
    detail: (row) => {
      if (!row.states) page.reload();
      // A file with other arguments has another form.
      const formKey = `${row.name} ${JSON.stringify(row.schema)}`;
      if (!row.problems.length && !forms.has(formKey)) forms.set(formKey, formOf(row));
      return [
        heading(row.name, fileState(row)),
        h("p", {}, row.description),
        row.problems.length
          ? h("div.stack", {}, h("p", {}, "The file has problems and is not run:"), h("ul.events", {}, ...row.problems.map((problem) => h("li.wrap", {}, ticks(problem)))))
          : forms.get(formKey),
        facts([["Usage", row.synopsis && h("code.mono.wrap", {}, row.synopsis)], ["Steps", row.steps.join(", ")]]),
        h("h3", {}, "Newest runs"),
        ...(row.states?.length ? row.states.map(runBlock) : [h("p.dim", {}, row.states ? "No run yet." : "Reading the runs…")]),
      ];
    },
  });
}
