// The plan of a turn as a graph: an agent stands to the right of those that it waits for.

import { h, svg } from "./dom.js";
import { duration } from "./format.js";
import { stateOf } from "./story.js";

const W = 148, H = 44, GAP_X = 36, GAP_Y = 12;

export function dag(agents, onOpen) {
  const byId = new Map(agents.map((agent) => [agent.id, agent]));
  const level = new Map();
  const levelOf = (agent, seen = new Set()) => {
    if (level.has(agent.id)) return level.get(agent.id);
    if (seen.has(agent.id)) return 0;
    seen.add(agent.id);
    const own = Math.max(0, ...agent.depends.map((id) => (byId.has(id) ? levelOf(byId.get(id), seen) + 1 : 0)));
    level.set(agent.id, own);
    return own;
  };
  agents.forEach((agent) => levelOf(agent));
  const columns = [];
  for (const agent of agents) (columns[level.get(agent.id)] ??= []).push(agent);
  const place = new Map();
  columns.forEach((column, x) => column.forEach((agent, y) => place.set(agent.id, { x: x * (W + GAP_X), y: y * (H + GAP_Y) })));
  const width = columns.length * (W + GAP_X) - GAP_X;
  const height = Math.max(...columns.map((column) => column.length)) * (H + GAP_Y) - GAP_Y;
  const lines = agents.flatMap((agent) => agent.depends.filter((id) => place.has(id)).map((id) => {
    const from = place.get(id), to = place.get(agent.id);
    const x1 = from.x + W, y1 = from.y + H / 2, x2 = to.x, y2 = to.y + H / 2;
    return svg("path.edge", { d: `M${x1} ${y1}C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2} ${y2}` });
  }));
  const back = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  back.append(...lines);
  const nodes = agents.map((agent) => {
    const [kind, word] = stateOf(agent.state);
    const at = place.get(agent.id);
    const time = agent.report?.duration_ms;
    return h("button.dagnode", { type: "button", class: kind, title: agent.label || agent.mission, style: { left: `${at.x}px`, top: `${at.y}px`, width: `${W}px`, height: `${H}px` }, on: { click: () => onOpen(agent) } },
      h("span.strong.cut", agent.id), h("span.small", time ? `${word}, ${duration(time)}` : word));
  });
  return h("div.dag", { tabindex: "0", role: "group", aria: { label: `Plan: ${agents.length} agents` } }, h("div.dagbox", { style: { width: `${width}px`, height: `${height}px` } }, back, nodes));
}
