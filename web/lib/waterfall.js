// A turn over time: rounds, skill runs and agents as bars, each with its wait, its tokens and its cost.

import { h } from "./dom.js";
import { duration, money, num, percent, unit } from "./format.js";
import { MAIN, stateOf } from "./story.js";

const t = (at) => new Date(at).getTime();

// The rows of a turn, in order of their start, sub-agents with what belongs to them below.
export function rowsOf(turn) {
  const own = (agent) => [
    ...turn.rounds.filter((r) => r.agent === agent).map((r) => ({ kind: "round", label: `Round ${r.number}`, hint: r.model || r.backend || "", start: t(r.start), end: t(r.end), waitMs: r.waitedMs, prefillMs: r.prefillMs, usage: r.usage, bad: Boolean(r.error), round: r })),
    ...[...turn.skills.values()].filter((s) => s.agent === agent).map((s) => {
      const end = s.endedAt ? t(s.endedAt) : turn.endedAt ? t(turn.endedAt) : Date.now();
      const start = s.startMs ?? t(s.startedAt ?? s.plannedAt ?? turn.at);
      return { kind: "skill", label: s.skill, hint: "", start, end, bad: s.outcome ? stateOf(s.outcome.status)[0] === "bad" : false, open: !s.outcome, run: s };
    }),
  ].sort((a, b) => a.start - b.start);
  const rows = own(MAIN).map((row) => ({ ...row, depth: 1 }));
  const begun = turn.startedAt ?? turn.endedAt;
  if (begun && t(begun) - t(turn.at) > 0) rows.unshift({ kind: "wait", label: "Before it began", hint: "", start: t(turn.at), end: t(begun), depth: 1 });
  for (const agent of turn.agents.values()) {
    const inner = own(agent.id);
    const start = t(agent.startedAt ?? agent.plannedAt ?? turn.at);
    const end = agent.endedAt ? t(agent.endedAt) : Date.now();
    const usage = agent.report?.usage;
    rows.push({ kind: "agent", label: agent.id, hint: agent.label || agent.mission, start, end: Math.max(start, end), depth: 1, bad: stateOf(agent.state)[0] === "bad", usage, agent, open: !agent.endedAt, plannedMs: agent.plannedAt && agent.startedAt ? t(agent.startedAt) - t(agent.plannedAt) : 0 }, ...inner.map((row) => ({ ...row, depth: 2 })));
  }
  for (const gap of gapsOf(turn, rows)) {
    const at = rows.findIndex((row) => row.depth === 1 && row.start >= gap.end);
    rows.splice(at < 0 ? rows.length : at, 0, gap);
  }
  return rows;
}

// Where nothing ran for a while: the process was away, or the turn waited.
const GAP_MS = 500;
function gapsOf(turn, rows) {
  const end = turn.endedAt ? t(turn.endedAt) : Date.now();
  const share = Math.max(GAP_MS, (end - t(turn.at)) / 20);
  const gaps = [];
  let until = t(turn.at);
  for (const row of [...rows.filter((one) => one.kind !== "agent"), { start: end, end }].sort((a, b) => a.start - b.start)) {
    if (row.start - until > share) {
      const [from, to] = [until, row.start];
      const fell = turn.notes.find((note) => note.kind === "resumed" && t(note.at) >= from - 50 && t(note.at) <= to + 1_000);
      const asked = [...turn.approvals.values()].some((one) => t(one.at) <= to && (!one.decidedAt || t(one.decidedAt) > from));
      gaps.push({ kind: "wait", label: fell ? "Interrupted" : asked ? "Waited for a person" : "Nothing ran", hint: fell?.text ?? "", start: from, end: to, depth: 1, bad: Boolean(fell), isGap: true });
    }
    until = Math.max(until, row.end);
  }
  return gaps;
}

export function waterfall(turn, { onOpen }) {
  const start = t(turn.at);
  const end = Math.max(start + 1, turn.endedAt ? t(turn.endedAt) : Date.now());
  const span = end - start;
  const x = (at) => Math.max(0, Math.min(100, ((at - start) / span) * 100));
  const rows = rowsOf(turn);
  const slowest = rows.filter((row) => row.kind !== "agent" && row.kind !== "wait").sort((a, b) => b.end - b.start - (a.end - a.start))[0];
  const ticks = [0, 0.5, 1].map((share) => h("span", { style: { left: `${share * 100}%` } }, duration(span * share)));
  const line = (row) => {
    const left = x(row.start), width = Math.max(0.4, x(row.end) - left);
    const wait = row.waitMs ? Math.min(100, (row.waitMs / Math.max(1, row.end - row.start)) * 100) : 0;
    const usage = row.usage ?? {};
    return h("button.wfrow", { type: "button", class: `${row.kind} ${row.bad ? "is-bad" : ""} ${row === slowest ? "is-slowest" : ""}`, on: { click: () => onOpen(row) }, aria: { label: `${row.label}, ${duration(row.end - row.start)}${row.bad ? ", failed" : ""}${row === slowest ? ", slowest step" : ""}` } },
      h("span.wflabel", { style: { paddingLeft: `${(row.depth - 1) * 16}px` } }, h("span.cut", row.label), row.hint ? h("span.dim.cut.small", row.hint) : null),
      h("span.wftrack", h("span.wfbar", { style: { left: `${left}%`, width: `${width}%` } }, wait ? h("span.wfwait", { style: { width: `${wait}%` } }) : null)),
      h("span.num.tabular", unit(duration(row.end - row.start))),
      h("span.num.tabular.wide", usage.input_tokens ? `${num(usage.input_tokens)} / ${num(usage.output_tokens)}` : ""),
      h("span.num.tabular.wide", usage.cached_tokens ? percent(usage.cached_tokens / Math.max(1, usage.input_tokens)) : ""),
      h("span.num.tabular.wide", usage.cost_usd ? money(usage.cost_usd) : ""));
  };
  const hasTokens = rows.some((row) => row.usage?.input_tokens);
  return h("div.waterfall", { class: hasTokens ? "" : "no-tokens", role: "group", aria: { label: "Waterfall" } },
    h("div.wfhead.small.dim", h("span", slowest ? `Slowest: ${slowest.label}` : "Step"), h("span.wfticks", ticks), h("span.num", "Time"), h("span.num.wide", "Tokens in / out"), h("span.num.wide", "Cached"), h("span.num.wide", "Cost")),
    rows.length ? rows.map(line) : h("p.pad.dim", "Nothing ran for this message."),
    h("div.wflegend.small.dim", h("span.swatch.round"), "model", h("span.swatch.wait"), "wait in the queue", h("span.swatch.skill"), "skill", h("span.swatch.agent"), "agent"));
}
