// Folds the events of a conversation into turns: what people asked, what worked on it, and how it ended. The same fold serves
// the chat, the story, the waterfall and the state at an event.

import { toDate } from "./format.js";

export const MAIN = "orchestrator";
const FINAL = new Set(["answered", "failed", "cancelled"]);
export const FAILURES = new Set(["failed", "model_failed", "cancelled"]);

export const isFailure = (event) =>
  event.kind === "failed" || event.kind === "model_failed" ||
  (event.kind === "skill_finished" && !["success", "ok"].includes(event.outcome?.status)) ||
  (event.kind === "agent_reported" && !["completed", "no_action"].includes(event.report?.status));

export class Story {
  constructor() {
    this.turns = new Map(); // task id -> turn
    this.order = [];
    this.last = 0;
    this.first = 0;
    this.events = [];
  }

  // Adds a stored event. Events are added once, in order.
  add(event) {
    if (event.seq <= this.last) return null;
    if (!this.first) this.first = event.seq;
    this.last = event.seq;
    this.events.push(event);
    if (event.kind === "copied" && !event.event) return this.addHistory(event);
    const seen = originalOf(event);
    const turn = this.turnOf(seen);
    fold(turn, seen, this);
    return turn;
  }

  // What a copy has of its original, if it has not the original's events: each exchange as a turn that has ended.
  addHistory(event) {
    if (!this.order.length) {
      for (const [n, exchange] of (event.history ?? []).entries()) {
        const turn = this.turnOf({ ...event, task_id: `${event.task_id}.${n}` });
        Object.assign(turn, { text: exchange.user, source: "copy", state: "answered", startedAt: event.at, endedAt: event.at, isCopied: true, final: { kind: "answered", seq: event.seq, text: exchange.answer } });
      }
    }
    return this.order.at(-1) ?? null;
  }

  turnOf(event) {
    let turn = this.turns.get(event.task_id);
    if (!turn) {
      turn = { task: event.task_id, conversation: event.conversation_id, seq: event.seq, at: event.at, text: "", source: "", priority: "", steers: [], rounds: [], agents: new Map(), skills: new Map(), approvals: new Map(), notes: [], draft: null, final: null, state: "queued", joined: null, lastAt: new Map(), mode: "", until: null };
      this.turns.set(event.task_id, turn);
      this.order.push(turn);
    }
    return turn;
  }

  // A piece of a round that is still being written.
  draft({ task_id: task, round, text, reasoning }) {
    const turn = this.turns.get(task);
    if (!turn || turn.final) return null;
    if (!turn.draft || turn.draft.round !== round) turn.draft = { round, text: "", reasoning: "" };
    turn.draft.text += text ?? "";
    turn.draft.reasoning += reasoning ?? "";
    if (turn.state === "queued") turn.state = "running";
    return turn;
  }

  get running() {
    return this.order.filter((turn) => !turn.final && !turn.joined);
  }
}

// The event of the original that an imported event has; any other event as it is. Stored times are in microseconds.
function originalOf(event) {
  if (event.kind !== "copied") return event;
  const { task, at, ...inner } = event.event;
  return { ...inner, task_id: task, at: toDate(at).toISOString(), seq: event.seq, conversation_id: event.conversation_id };
}

function agentOf(turn, id) {
  let agent = turn.agents.get(id);
  if (!agent) {
    agent = { id, mission: "", depends: [], skills: [], state: "planned", startedAt: null, endedAt: null, report: null, calls: 0, steered: [], isStopping: false };
    turn.agents.set(id, agent);
  }
  return agent;
}

function fold(turn, event, story) {
  const at = event.at;
  const agent = event.agent ?? MAIN;
  switch (event.kind) {
    case "received":
      Object.assign(turn, { text: event.text, source: event.source, channel: event.channel, priority: event.priority, isResult: Boolean(event.resumes), retry: event.retry ?? null, seq: event.seq, at });
      break;
    case "joined": {
      turn.joined = event.into;
      turn.state = "joined";
      const into = story.turns.get(event.into);
      into?.steers.push(turn);
      break;
    }
    case "turn_started":
      Object.assign(turn, { mode: event.mode, route: event.route ?? [], state: "running", startedAt: at, facts: event.facts, continues: event.continues ?? null });
      turn.lastAt.set(MAIN, at);
      break;
    case "round_began":
      turn.lastAt.set(`began:${agent}`, at);
      turn.state = "running";
      break;
    case "model_replied": {
      const start = turn.lastAt.get(`began:${agent}`) ?? turn.lastAt.get(agent) ?? turn.startedAt ?? turn.at;
      turn.lastAt.delete(`began:${agent}`);
      closeCalls(turn, agent, at);
      const round = { agent, number: event.round, start, end: at, waitedMs: event.waited_ms ?? 0, prefillMs: event.prefill_ms ?? 0, model: event.model, backend: event.backend, usage: event.usage ?? {}, text: event.text, calls: event.calls ?? [], finish: event.finish, judged: event.judged, seq: event.seq, event };
      turn.rounds.push(round);
      if (agent === MAIN) turn.draft = null;
      turn.state = "running";
      planCalls(turn, agent, round, event);
      turn.lastAt.set(agent, at);
      break;
    }
    case "model_failed":
      turn.rounds.push({ agent, number: event.round, start: turn.lastAt.get(agent) ?? at, end: at, waitedMs: event.waited_ms ?? 0, prefillMs: 0, error: event.error, calls: [], usage: {}, text: "", seq: event.seq, event });
      turn.lastAt.set(agent, at);
      break;
    case "skill_started": {
      const run = turn.skills.get(event.intent);
      if (run) run.startedAt = at;
      break;
    }
    case "skill_finished": {
      const run = turn.skills.get(event.intent) ?? { intent: event.intent, skill: event.skill, agent };
      const end = toDate(at).getTime();
      Object.assign(run, { endedAt: at, outcome: event.outcome, durationMs: event.duration_ms ?? 0, startMs: end - (event.duration_ms ?? 0), endSeq: event.seq });
      turn.skills.set(event.intent, run);
      turn.lastAt.set(agent, at);
      break;
    }
    case "agent_started":
      Object.assign(agentOf(turn, agent), { state: "running", startedAt: at });
      turn.lastAt.set(agent, at);
      break;
    case "agent_steered":
      agentOf(turn, agent).steered.push({ by: event.by, text: event.text, at });
      turn.notes.push({ kind: "steered", at, text: `${event.by} told ${agent}: ${event.text}` });
      break;
    case "agent_stop_requested":
      agentOf(turn, agent).isStopping = true;
      turn.notes.push({ kind: "cancel", at, text: `${event.by} asked ${agent} to stop${event.reason ? `: ${event.reason}` : ""}.` });
      break;
    case "agent_reported":
      closeCalls(turn, agent, at);
      Object.assign(agentOf(turn, agent), { state: event.report.status, endedAt: at, report: event.report });
      turn.lastAt.set(MAIN, at);
      break;
    case "approval_requested":
      turn.approvals.set(event.number, { number: event.number, skill: event.skill, arguments: event.arguments, agent, mode: event.mode, expiresAt: event.expires_at, verdict: null, at, intent: event.intent });
      break;
    case "approval_decided": {
      const approval = turn.approvals.get(event.number);
      if (approval) Object.assign(approval, { verdict: event.verdict, by: event.by, decidedAt: at });
      break;
    }
    case "suspended":
      turn.state = "suspended";
      break;
    case "continued":
      turn.state = "running";
      turn.until = null;
      break;
    case "deferred":
      Object.assign(turn, { state: "deferred", until: event.until, why: event.reason });
      break;
    case "reprioritised":
      turn.priority = event.priority;
      break;
    case "resumed":
      turn.draft = null;
      turn.notes.push({ kind: "resumed", at, text: event.cause === "crash" ? "The conversation's actor fell, and its next incarnation goes on." : event.cause === "restart" ? "Annie was restarted and goes on." : "Another turn made the actor fall; this one goes on." });
      break;
    case "retried":
      turn.notes.push({ kind: "retried", at, text: `Tried again with the strategy ${event.strategy}: ${event.reason}` });
      turn.draft = null;
      break;
    case "compacted":
      turn.notes.push({ kind: "compacted", at, text: `Compacted ${event.messages} ${event.messages === 1 ? "message" : "messages"}: later prompts contain a summary of them.`, reason: event.summary });
      break;
    case "cancel_requested":
      turn.notes.push({ kind: "cancel", at, text: `${event.by} asked to stop.` });
      break;
    case "decided":
      if (event.component === "plan") turn.plans = [...(turn.plans ?? []), { at, isNew: event.decision.startsWith("replan"), steps: event.alternatives ?? [] }];
      turn.notes.push({ kind: "decided", at, component: event.component, text: `${event.component}: ${event.decision}`, reason: event.reasoning });
      break;
    default:
      break;
  }
  if (FINAL.has(event.kind)) {
    turn.final = { ...event, kind: event.kind, text: event.text ?? "" };
    turn.state = event.kind;
    turn.draft = null;
    turn.endedAt = at;
    endOpenWork(turn, at);
  }
}

// The calls of a reply. A call that a policy of the kernel refused never runs: its result is the text of the refusal.
function planCalls(turn, agent, round, event) {
  const at = event.at;
  const verdictOf = (call) => (event.judged?.verdicts ?? []).find((one) => one.call_id === call.id && one.do === "refuse");
  const dispatched = [];
  for (const call of round.calls) {
    const action = call.action ?? {};
    const refusal = verdictOf(call);
    if (action.action === "dispatch") {
      const known = turn.agents.get(action.agent);
      // A name is accepted once in a turn: a repetition changes nothing about the agent that has it.
      if (known && known.state !== "refused") continue;
      const one = Object.assign(agentOf(turn, action.agent), { mission: action.mission, label: action.options?.label ?? "", depends: action.depends_on ?? [], skills: action.skills ?? [], plannedAt: at, endedAt: null, state: "planned", refusal: "", maxCalls: action.max_tool_calls });
      if (refusal) refuse(one, at, refusal.text);
      else dispatched.push(one);
    } else if (action.action === "skill") {
      const run = { intent: action.intent, skill: action.skill, agent, arguments: action.arguments, effect: action.effect, external: action.external, plannedAt: at, startedAt: null, endedAt: null, outcome: null, raw: call.raw, seq: event.seq };
      if (refusal) neverRuns(run, at, refusal.why === "done_already" ? "done_already" : "refused", refusal.text);
      turn.skills.set(action.intent, run);
    }
  }
  // A dispatch is refused if it needs the result of an agent that was not dispatched, or of one that was refused. Without the
  // beginning of the turn nothing is known about the agents before.
  if (!turn.startedAt) return;
  for (let changed = true; changed;) {
    changed = false;
    for (const one of dispatched) {
      const missing = one.state === "planned" && one.depends.find((id) => !turn.agents.has(id) || turn.agents.get(id).state === "refused");
      if (missing) {
        refuse(one, at, `It needs the result of ${missing}, which is no agent of this turn.`);
        changed = true;
      }
    }
  }
}

const refuse = (agent, at, why) => Object.assign(agent, { state: "refused", endedAt: at, refusal: why });
const neverRuns = (run, at, status, why) => Object.assign(run, { endedAt: at, durationMs: 0, startMs: toDate(at).getTime(), outcome: { status, data: why, isNoRun: true } });

// An agent replies again only when all calls of its last reply have results: those that are still open then were never run.
function closeCalls(turn, agent, at) {
  for (const run of turn.skills.values()) if (run.agent === agent && !run.outcome && !run.startedAt) neverRuns(run, at, "not_run", "A call before it failed, or its time was up before it began.");
}

// Nothing of an ended turn is still under way.
function endOpenWork(turn, at) {
  for (const one of turn.agents.values()) {
    if (one.state === "planned") refuse(one, at, "The plan did not accept the dispatch.");
    else if (!one.endedAt) one.endedAt = at;
  }
  for (const run of turn.skills.values()) {
    if (run.outcome) continue;
    if (run.startedAt) Object.assign(run, { endedAt: at, durationMs: toDate(at) - toDate(run.startedAt), startMs: toDate(run.startedAt).getTime(), outcome: { status: "unknown", data: "The turn ended before a result was recorded: the call may have taken effect." } });
    else neverRuns(run, at, "not_run", "The turn ended before it began.");
  }
}

// What the turn does now, in a few words.
export function activity(turn) {
  if (turn.state === "suspended") return "suspended";
  if (turn.state === "deferred") return `deferred: ${turn.why ?? ""}`;
  const waiting = [...turn.approvals.values()].find((a) => !a.verdict);
  if (waiting) return `waits for your approval of ${waiting.skill}`;
  const agents = [...turn.agents.values()].filter((a) => a.state === "running");
  if (agents.length) return agents.length === 1 ? `${agents[0].id} is at work` : `${agents.length} agents are at work`;
  const runs = [...turn.skills.values()].filter((s) => !s.outcome);
  if (runs.length) return `runs ${runs[0].skill}`;
  if (turn.draft?.text) return "writes";
  if (turn.draft?.reasoning) return "thinks";
  return turn.startedAt ? "thinks" : "waits for its turn";
}

// Tokens and money of a turn.
export function cost(turn) {
  const total = { input: 0, output: 0, cached: 0, usd: 0, rounds: turn.rounds.length };
  for (const round of turn.rounds) {
    total.input += round.usage.input_tokens ?? 0;
    total.output += round.usage.output_tokens ?? 0;
    total.cached += round.usage.cached_tokens ?? 0;
    total.usd += round.usage.cost_usd ?? 0;
  }
  return total;
}

// `now` is the time of the last event that is shown, if that is in the past.
export const turnMs = (turn, now = Date.now()) => (turn.endedAt ? toDate(turn.endedAt) : now) - toDate(turn.at);

export const STATE = {
  queued: ["wait", "Queued"], running: ["accent", "Running"], suspended: ["wait", "Suspended"], deferred: ["wait", "Deferred"], joined: ["idle", "Joined"],
  answered: ["good", "Answered"], completed: ["good", "Done"], failed: ["bad", "Failed"], cancelled: ["idle", "Cancelled"], planned: ["wait", "Planned"], no_action: ["warn", "No action"],
  timeout: ["bad", "Timed out"], crashed: ["bad", "Crashed"], skipped: ["idle", "Skipped"], refused: ["bad", "Refused"], not_run: ["idle", "Not run"], done_already: ["idle", "Done before"], success: ["good", "Done"], ok: ["good", "Done"],
};
export const stateOf = (word) => STATE[word] ?? [/fail|error|denied|unknown|timeout/.test(word ?? "") ? "bad" : "idle", word ? word[0].toUpperCase() + word.slice(1).replaceAll("_", " ") : "–"];
