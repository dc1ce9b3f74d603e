// Backends: which models answer, how well, and what keeps one from being used.

import { h, keyed, replace } from "../lib/dom.js";
import { ago, duration, num } from "../lib/format.js";
import { dialog } from "../lib/overlay.js";
import { broken, empty, skeleton, status } from "../lib/states.js";
import { button, facts } from "./listing.js";

const STATE = { up: ["good", "Up"], failing: ["warn", "Failing"], down: ["bad", "Down"] };
const FROM = { server: "reported by the server", configured: "configured", default: "the default", learned: "learned from its answers" };
const valued = (setting) => (setting && setting.value !== undefined && setting.value !== null ? `${num(setting.value)}, ${FROM[setting.from] || setting.from}` : undefined);

export function mount(root, ctx) {
  ctx.title("Backends");
  const place = h("div.tiles", {});
  const notice = h("div", { aria: { live: "polite" } });
  root.append(h("div.stack", {}, notice, place));
  let queue = null;
  let read = null;
  const slow = setTimeout(() => { if (!read) replace(place, skeleton(4)); }, 200);

  async function reload() {
    try {
      const [answer, now] = await Promise.all([ctx.api.get("/status"), ctx.api.get("/queue").catch(() => null)]);
      queue = now || queue;
      if (!read) replace(place);
      read = answer;
      replace(notice);
      place.classList.remove("stale");
      show();
    } catch (error) {
      if (ctx.signal.aborted) return;
      if (read) place.classList.add("stale");
      else replace(place);
      replace(notice, broken(error, reload));
    } finally {
      clearTimeout(slow);
    }
  }

  async function hold(name) {
    const answer = await dialog({ title: `Close the voice gate of ${name}?`, body: "Until it opens, only rounds of voice turns start on this backend. All others wait.", fields: [{ name: "seconds", label: "Seconds", kind: "number", value: 30, required: true, hint: "1 to 60" }], confirm: "Close voice gate", danger: true });
    if (!answer) return;
    await ctx.act("Close", () => ctx.api.post("/gate/hold", { backend: name, holder: "page", ttl_ms: Math.round(Number(answer.seconds) * 1000) }), { done: `The voice gate of ${name} is closed` });
    reload();
  }

  const release = (name, holder) => ctx.act("Open", () => ctx.api.post("/gate/release", { backend: name, holder }), { done: `The voice gate of ${name} is open` }).then(reload);

  function card(backend) {
    return fill(h("article.panel.backend", {}), backend);
  }

  function fill(node, backend) {
    const seen = queue && queue.backends ? queue.backends.find((one) => one.backend === backend.name) : undefined;
    const text = JSON.stringify([backend, seen]);
    if (node.dataset.text === text) return node;
    node.dataset.text = text;
    const gate = seen && seen.gate;
    const slots = backend.slots && backend.slots.value;
    const error = backend.last_error;
    replace(node,
      h("div.panel-head", {}, h("h2", {}, backend.name), status(...(STATE[backend.state] || ["idle", "Unknown"]))),
      error && backend.state !== "up" ? h("p.problem", {}, `${error.kind}: ${error.detail}`) : "",
      facts([
        ["Model", h("span.mono.wrap", {}, backend.model)],
        ["About", backend.about],
        ["Server", backend.server],
        ["Profile", backend.profile && `${backend.profile.value}, ${FROM[backend.profile.from] || backend.profile.from}`],
        ["Slots in use", seen && slots ? `${seen.running} of ${valued(backend.slots)}` : valued(backend.slots)],
        ["Context, tokens", valued(backend.context_tokens_max)],
        ["A round takes", seen && seen.round_ms ? `about ${duration(seen.round_ms)}` : undefined],
        ["Ready to run", seen ? `${seen.ready} ${seen.ready === 1 ? "task" : "tasks"}` : undefined],
        ["Failed in a row", backend.failed_rounds ? String(backend.failed_rounds) : undefined],
        ["Failing since", backend.failing_since && ago(backend.failing_since)],
        ["Last error", error && backend.state === "up" ? `${error.kind}: ${error.detail}` : undefined],
        ["Window", seen && seen.window ? (seen.window.others || `${seen.window.used} ${seen.window.used === 1 ? "request" : "requests"} in this window`) : undefined],
        ["Voice gate", gate ? (gate.closed ? `closed by ${gate.holder || "a voice turn"}` : "open") : undefined],
        ["Opens", gate && gate.closed && gate.until ? ago(gate.until) : undefined],
        ["Closed in all", gate && gate.closed_ms_total ? duration(gate.closed_ms_total) : undefined],
      ]),
      slots && seen ? h("div.meter", { role: "img", aria: { label: `${seen.running} of ${slots} slots in use` } }, ...Array.from({ length: Math.min(slots, 32) }, (_, n) => h(n < seen.running ? "span.on" : "span", {}))) : "",
      gate ? h("div.toolbar", {}, gate.closed && gate.holder ? button("Open voice gate", () => release(backend.name, gate.holder)) : gate.closed ? "" : button("Close voice gate", () => hold(backend.name), "quiet"), h("a.btn.quiet", { href: `#/actors?sel=${encodeURIComponent("/resources/backends/backend:" + backend.name)}` }, "Show actor")) : "");
    return node;
  }

  function show() {
    if (!read.backends.length) {
      replace(place, empty({ title: "No backends", text: "A backend is a model that answers. Without one Annie's offline planner works.", command: "annie setup" }));
      return;
    }
    keyed(place, read.backends, (backend) => backend.name, card, fill);
  }

  ctx.refresh(reload, { on: ["queue", "status"], everyMs: 5000 });
}
