// What operators did, as a list: who, what, why, and how it ended.

import { h } from "./dom.js";
import { ago, exactTime } from "./format.js";
import { mark } from "./states.js";

const RESULT = { done: ["good", "Done"], refused: ["warn", "Refused"], failed: ["bad", "Failed"] };

const WORD = {
  "actor.kill": "Killed", "actor.stop": "Stopped", "actor.restart": "Restarted", "actor.reset_budget": "Reset the restart budget of",
  "breaker.open": "Held the breaker open of", "breaker.close": "Closed the breaker of", "gate.release": "Opened the voice gate of",
  "class.pause": "Paused class", "class.resume": "Resumed class", "conversation.suspend": "Suspended", "conversation.continue": "Continued",
  "conversation.quarantine": "Put in quarantine", "conversation.resume": "Took out of quarantine", "task.cancel": "Cancelled", "task.suspend": "Suspended",
  "task.continue": "Continued", "task.priority": "Changed the class of", "dead_letter.retry": "Retried the dead letter of", "dead_letter.discard": "Discarded the dead letter of",
  "dead_letters.retry": "Retried many", "dead_letters.discard": "Discarded many", "log.level": "Set the log level to", "key.create": "Created", "key.revoke": "Revoked",
};

export function hrefOf(target) {
  if (target.startsWith("/")) return `#/actors?sel=${encodeURIComponent(target)}`;
  if (/^conv_[0-9a-f]+$/.test(target)) return `#/conversations/${target}`;
  return "";
}

export function actionsList(actions, { withTarget = true } = {}) {
  if (!actions.length) return h("p.dim", "No operator has acted here.");
  return h("ul.lines", actions.map((one) => {
    const [kind, word] = RESULT[one.result] ?? ["wait", "No end recorded"];
    const href = hrefOf(one.target);
    const target = !withTarget ? null : href ? h("a.cut", { href, title: one.target }, one.target) : h("span.cut.mono", { title: one.target }, one.target);
    return h("li.stack.tight",
      h("div.row", mark(kind, word), h("span.strong", WORD[one.action] ?? one.action), h("span.grow.row", target), h("span.dim", ago(one.at))),
      h("div.wrap.small", h("span.dim", "by "), one.by, one.reason ? [h("span.dim", ": "), one.reason] : null),
      one.detail ? h("div.wrap.small.dim", one.detail) : null,
      h("div.dim.small", { title: `node ${one.node}` }, `${exactTime(one.at)}, over ${one.channel}, number ${one.number}`));
  }));
}
