// Parts of a turn that the chat and the story share: agents as chips, skill runs, approvals, the answer with its cost.

import { h, replace } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { ago, duration, money, num, plural, percent, clockTime } from "../lib/format.js";
import { status, mark, jsonView } from "../lib/states.js";
import { dialog, drawer } from "../lib/overlay.js";
import { cost, stateOf, turnMs, MAIN } from "../lib/story.js";
import { prose } from "../lib/prose.js";

const ms = (from, to) => (from && to ? new Date(to) - new Date(from) : null);

// The agents and runs of a turn as chips; one that is pressed opens.
export function workChips(turn, ctx) {
  const agents = [...turn.agents.values()];
  const own = [...turn.skills.values()].filter((run) => run.agent === MAIN || !turn.agents.has(run.agent));
  if (!agents.length && !own.length) return null;
  const chips = [
    ...agents.map((agent) => {
      const [kind, word] = stateOf(agent.state);
      const time = agent.report?.duration_ms ?? ms(agent.startedAt, agent.endedAt);
      return h("button.chip", { type: "button", class: kind, aria: { label: `Agent ${agent.id}, ${word}: open` }, on: { click: () => openAgent(turn, agent, ctx) } }, icon("agent"), agent.id, time !== null && time !== undefined && !["running", "refused"].includes(agent.state) ? h("span", duration(time)) : h("span", word.toLowerCase()));
    }),
    ...own.map((run) => {
      const [kind, word] = run.outcome ? stateOf(run.outcome.status) : ["accent", "Running"];
      return h("button.chip", { type: "button", class: run.outcome ? (kind === "good" ? "" : kind) : "accent", aria: { label: `Skill ${run.skill}, ${word}: open` }, on: { click: () => openRun(run) } }, icon("bolt"), run.skill, h("span", run.outcome?.isNoRun ? word.toLowerCase() : run.outcome ? duration(run.durationMs) : "running"));
    }),
  ];
  return h("div.workchips", chips);
}

// The most bytes of a text for an agent.
const STEER_BYTES_MAX = 4096;

// What a person can do with an agent that has not reported.
function agentActions(turn, agent, ctx, close) {
  if (agent.report || agent.isStopping || agent.state === "refused" || turn.final) return [];
  const act = (verb, body, done) => ctx.act(verb, () => ctx.api.post(`/agents/${turn.conversation}/${verb.toLowerCase()}`, { agent: agent.id, task_id: turn.task, ...body }), { done });
  const steer = async () => {
    const tooLong = (text) => (new TextEncoder().encode(text).length > STEER_BYTES_MAX ? `At most ${num(STEER_BYTES_MAX)} bytes.` : "");
    const answer = await dialog({ title: `Add to the mission of ${agent.id}`, body: "The agent reads it in its next round.", confirm: "Add to mission", fields: [{ name: "text", label: "What it is to know or to do differently", kind: "textarea", required: true, check: tooLong }] });
    if (answer && await act("Steer", { text: answer.text }, `${agent.id} reads it in its next round`)) close();
  };
  const stop = async () => {
    const answer = await dialog({ title: `Stop agent ${agent.id}?`, body: "The other agents of the turn go on. What this one has done stays, and the answer takes account of it.", confirm: "Stop agent", danger: true, fields: [{ name: "why", label: "Reason (optional)", kind: "text", max: 500 }] });
    if (answer && await act("Stop", { reason: answer.why }, `${agent.id} is stopped`)) close();
  };
  return [
    h("button.btn", { type: "button", on: { click: steer } }, icon("fork"), "Add to mission"),
    h("button.btn.danger", { type: "button", on: { click: stop } }, icon("stop"), "Stop agent"),
  ];
}

export function openAgent(turn, agent, ctx) {
  const panel = drawer({ title: agent.label ? `Agent ${agent.id}: ${agent.label}` : `Agent ${agent.id}`, label: "agent" });
  panel.setActions(agentActions(turn, agent, ctx, () => panel.close()));
  const [kind, word] = stateOf(agent.state);
  const runs = [...turn.skills.values()].filter((run) => run.agent === agent.id);
  const rounds = turn.rounds.filter((round) => round.agent === agent.id);
  replace(panel.body,
    h("div.row.wraps", status(kind, word), agent.report ? h("span.chip", duration(agent.report.duration_ms)) : null, agent.depends.length ? h("span.chip", `after ${agent.depends.join(", ")}`) : null),
    h("div.stack.tight", h("h3", "Mission"), h("p.wrap", agent.mission || "–"), agent.steered.map((one) => h("p.wrap.small", h("span.dim", `${one.by} added: `), one.text))),
    h("div.stack.tight", h("h3", `Calls (${num(runs.length)})`), runs.length ? h("ul.lines", runs.map(runLine)) : h("p.dim", "None.")),
    h("div.stack.tight", h("h3", `Rounds (${num(rounds.length)})`), rounds.length ? h("ul.lines", rounds.map((round) => h("li.stack.tight", h("div.row", h("span.strong", `Round ${round.number}`), h("span.dim.grow", round.model || round.backend || ""), h("span.tabular", duration(ms(round.start, round.end)))), round.text ? h("div.wrap.small", round.text) : null, round.error ? h("div.bad.small", `${round.error.kind}: ${round.error.detail ?? ""}`) : null))) : h("p.dim", "None yet.")),
    agent.refusal ? h("div.stack.tight", h("h3", "Why it was refused"), h("p.wrap", agent.refusal)) : null,
    agent.report ? h("div.stack.tight", h("h3", "Result"), h("pre.block", { tabindex: "0" }, agent.report.result)) : null);
}

function runLine(run) {
  const [kind, word] = run.outcome ? stateOf(run.outcome.status) : ["accent", "Running"];
  return h("li", h("button.plainrow", { type: "button", on: { click: () => openRun(run) } }, mark(kind, word), h("span.strong", run.skill), h("span.dim.cut.grow", argumentText(run.arguments)), h("span.tabular", run.outcome?.isNoRun ? word.toLowerCase() : run.outcome ? duration(run.durationMs) : "…")));
}

export const argumentText = (args) => {
  const text = args === undefined || args === null ? "" : JSON.stringify(args);
  return text.length > 120 ? `${text.slice(0, 119)}…` : text;
};

export function openRun(run) {
  const panel = drawer({ title: run.skill, label: "skill run" });
  const [kind, word] = run.outcome ? stateOf(run.outcome.status) : ["accent", "Running"];
  const o = run.outcome;
  replace(panel.body,
    h("div.row.wraps", status(kind, word), run.effect ? h("span.chip", run.effect) : null, run.external ? h("span.chip.warn", "reaches outside") : null, o && !o.isNoRun ? h("span.chip", duration(run.durationMs)) : null),
    h("div.stack.tight", h("h3", "Arguments"), jsonView(run.arguments ?? {})),
    o ? [h("div.stack.tight", h("h3", o.isNoRun ? "Why it did not run" : "Result"), h("pre.block", { tabindex: "0" }, o.data || "–")), o.error_type ? h("div.stack.tight", h("h3", "Error"), h("p.wrap", `${o.error_type}: ${o.error_detail ?? ""}`)) : null, o.requests?.length ? h("div.stack.tight", h("h3", "Requests to other machines"), jsonView(o.requests)) : null] : h("p.dim", "No result yet."));
}

// What a call is about, in words: a number says nothing to the person who decides.
const GET = { tasks: "tasks.get", memory: "memory.get" };
export async function subject(call, ctx) {
  const id = call.arguments?.id;
  const skill = GET[call.skill.split(".")[0]];
  if (!skill || !Number.isInteger(id)) return "";
  const found = await ctx.api.post("/run", { command: `${skill} --id ${id}`, key: `approval ${skill} ${id}` }).catch(() => null);
  return found?.status === "success" ? found.text.split("\n").find((line) => line.trim()) ?? "" : "";
}

// A call that waits for a person.
export function approvalCard(turn, approval, ctx) {
  const head = h("div.row.wraps", icon("approvals"), h("span.strong", approval.verdict ? verdictWord(approval) : `May it run ${approval.skill}?`), h("span.push.dim", approval.verdict ? ago(approval.decidedAt) : ["expires ", ago(approval.expiresAt)]));
  const card = h("div.approval", { class: approval.verdict ? "is-decided" : "", role: "group", aria: { label: `Approval of ${approval.skill}` } }, head,
    h("dl.kv.small", Object.entries(approval.arguments ?? {}).map(([name, value]) => [h("dt", name), h("dd.wrap.mono", typeof value === "string" ? value : JSON.stringify(value))])));
  if (approval.verdict) return card;
  const about = h("p.small.dim", { hidden: true });
  card.append(about);
  subject(approval, ctx).then((text) => {
    about.hidden = !text;
    about.textContent = text;
  });
  const decide = (verb, body, done) => ctx.act(verb, () => ctx.api.post(`/approvals/${turn.task}/${verb}`, { number: approval.number, ...body }), { done });
  card.append(h("div.row.wraps",
    h("button.btn.primary", { type: "button", on: { click: () => decide("approve", {}, `Approved ${approval.skill}`) } }, icon("check"), "Approve"),
    h("button.btn", { type: "button", on: { click: async () => {
      const answer = await dialog({ title: `Edit the arguments of ${approval.skill}`, confirm: "Approve with these", fields: [{ name: "text", label: "Arguments (JSON)", kind: "textarea", mono: true, rows: 10, value: JSON.stringify(approval.arguments, null, 2), required: true, check: (text) => {
        try {
          const value = JSON.parse(text);
          return value && typeof value === "object" && !Array.isArray(value) ? "" : "Arguments are a JSON object.";
        } catch (error) {
          return `This is not JSON: ${error.message}`;
        }
      } }] });
      if (answer) decide("approve", { arguments: JSON.parse(answer.text) }, `Approved ${approval.skill} with your arguments`);
    } } }, "Edit"),
    approval.mode !== "always" ? h("button.btn", { type: "button", on: { click: () => decide("approve", { for_conversation: true }, `Approved ${approval.skill} in this conversation`) } }, "Approve in this conversation") : null,
    h("button.btn.danger", { type: "button", on: { click: async () => {
      const answer = await dialog({ title: `Deny ${approval.skill}?`, body: "The call is not made. The model reads your reason.", confirm: "Deny call", danger: true, fields: [{ name: "why", label: "Reason (optional)", kind: "text", max: 1000 }] });
      if (answer) decide("deny", { reason: answer.why }, `Denied ${approval.skill}`);
    } } }, "Deny")));
  return card;
}

function verdictWord(approval) {
  const v = approval.verdict;
  const word = v.verdict ?? v.do ?? v.kind ?? (typeof v === "string" ? v : Object.keys(v)[0]);
  const words = { approve: "Approved", deny: "Denied", expire: "Expired", withdraw: "No longer wanted" };
  return `${words[word] ?? word} ${approval.skill}${approval.by ? ` by ${approval.by}` : ""}`;
}

// Duration, tokens and money of a turn, in one line.
export function costLine(turn) {
  const c = cost(turn);
  const parts = [duration(turnMs(turn)), plural(c.rounds, "round")];
  if (c.input || c.output) parts.push(`${num(c.input)} in, ${num(c.output)} out`);
  if (c.cached) parts.push(`${percent(c.cached / Math.max(1, c.input))} cached`);
  if (c.usd) parts.push(money(c.usd));
  return parts.join(" · ");
}

export function finalBlock(turn) {
  const f = turn.final;
  if (!f) return null;
  if (f.kind === "answered") return h("div.answer", prose(f.text));
  if (f.kind === "failed") return h("div.answer.is-failed", { role: "alert" }, h("div.row", mark("bad", "Failed"), h("code", f.code)), prose(f.text), f.detail ? h("details.small", h("summary", "Details"), h("pre.block", { tabindex: "0" }, f.detail)) : null);
  return h("div.answer.is-cancelled", mark("idle", "Cancelled"), f.text ? prose(f.text) : null);
}

export const noteLine = (note) => h("div.note.small", { title: note.reason ?? "" }, icon(note.kind === "resumed" ? "restart" : note.kind === "retried" ? "restart" : "info"), h("span.cut", note.text), h("span.dim", clockTime(note.at)));
