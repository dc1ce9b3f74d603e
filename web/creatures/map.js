// Which part of Annie each creature stands for, in the order of the way of a message, and which events of the log concern it.
//
// `is(f)` says whether the part exists in this server: true, or the reason why it does not. `f` has the skills, backends, MCP
// servers and channels of the server. A creature whose part does not exist never moves.
// `on` has, by kind of event, a function that returns [state, caption] or nothing. States: activating, working, completing,
// error, yielding, spawning.

import { DRAWINGS } from "./drawings.js";

const cut = (text, length = 44) => (text.length > length ? text.slice(0, length - 1) + "…" : text);
const ms = (n) => (n >= 1000 ? (n / 1000).toPrecision(3) + " s" : n + " ms");
const failed = (status) => !["success", "partial", "pending"].includes(status);
const waits = (n) => (n > 0 ? `, waited ${ms(n)}` : "");
const isVoice = (e) => e.source === "voice" || e.priority === "realtime" || e.spoken_as != null;

/** The events of the skills that a test accepts: they work from start to finish. */
function skills(test) {
  return {
    skill_started: (e) => test(e.skill) && ["working", e.skill],
    skill_finished: (e) => test(e.skill) && [failed(e.outcome.status) ? "error" : "completing", `${e.skill}, ${ms(e.duration_ms || 0)}${failed(e.outcome.status) ? ": " + (e.outcome.error_type || e.outcome.status) : ""}`],
  };
}

const skill = (name) => (f) => f.skills.has(name) || `The skill ${name} is not listed in this server.`;
const domain = (...names) => (f) => [...f.skills].some((s) => names.includes(s.split(".")[0])) || `No skill of ${names.join(" or ")} is installed.`;
const never = (why) => () => why;
const always = () => true;

/** The n-th local backend, the cloud backends, or the command backends. */
const locals = (f) => f.backends.filter((b) => b.kind === "local");
function backend(pick) {
  const fits = (e, f) => pick(f).some((b) => b.name === e.backend);
  return {
    round_began: (e, f) => fits(e, f) && ["working", `${e.backend}, round ${e.round}`],
    round_not_begun: (e, f) => fits(e, f) && ["yielding", `${e.backend} did not begin round ${e.round}`],
    model_replied: (e, f) => fits(e, f) && ["completing", `${e.backend} round ${e.round}${e.usage && e.usage.output_tokens ? `, ${e.usage.output_tokens} tokens` : ""}${waits(e.waited_ms)}`],
    model_failed: (e, f) => (!e.error || pick(f).some((b) => JSON.stringify(e.error).includes(b.name))) && ["error", "round " + e.round + ": " + cut((e.error && (e.error.kind || e.error.message || "failed")) || "failed")],
  };
}
const slot = (n) => ({
  is: (f) => (locals(f).length > n ? true : n === 0 ? "No local backend is configured." : `Fewer than ${n + 1} local backends are configured.`),
  on: backend((f) => locals(f).slice(n, n + 1)),
  actor: (f) => locals(f)[n] && "/resources/backends/backend:" + locals(f)[n].name,
});

/** A decision of one of these components. The component of a hook is `hook NAME`. */
const decided = (...names) => (e) => names.some((name) => e.component === name || e.component.startsWith(name + " ")) && [/refus|veto|block|\bden(y|ied)\b/i.test(e.decision) ? "error" : "activating", cut(`${e.component}: ${e.decision}`)];

export const CREATURES = [
  // Listening
  { id: "jellyfish", zone: "listening", is: (f) => f.channels > 0 || "No channel is configured.", part: "Webhooks and wearable audio in", actor: () => "/listeners", on: { received: (e) => (e.source || "").startsWith("channel:") && ["activating", "message from " + e.source] } },
  { id: "siren", zone: "listening", is: never("Annie has no speech recognition of its own: voice clients send text."), part: "Speech to text", on: {} },
  { id: "cerberus", zone: "listening", is: always, part: "Who speaks: key or linked address", actor: () => "/listeners", on: { received: (e) => ["activating", "accepted from " + (e.source || "a front end")] } },
  { id: "hydra", zone: "listening", is: always, part: "Emotion of the speaker", on: { received: (e) => e.mood && ["activating", "mood noted" + (e.mood.brevity ? ": shorter answers" : "")] } },
  { id: "ibis", zone: "listening", is: always, part: "Input checks and clean-up", on: { received: (e) => ["activating", `${(e.text || "").length} characters checked`], decided: decided("guard") } },
  { id: "gargoyle", zone: "listening", is: never("Annie has no WebSocket voice transport yet."), part: "WebSocket voice transport", on: {} },
  // Thinking
  { id: "golem", zone: "thinking", is: always, part: "Kernel: admission and job commands", actor: () => "/scheduler", on: { received: (e) => ["activating", "admitted: " + cut(e.text || e.source, 32)], ordered: (e) => ["activating", "job command: " + e.verb], joined: () => ["activating", "message joined a running task"], decided: decided("engine", "orchestrator"), cancel_requested: (e) => ["activating", "cancel asked by " + e.by], cancelled: () => ["completing", "task cancelled"] } },
  { id: "hawk", zone: "thinking", is: always, part: "Classifier", on: { decided: decided("classify", "classifier", "intent") } },
  { id: "basilisk", zone: "thinking", is: always, part: "Authorisation and approvals", on: { approval_requested: (e) => ["working", `${e.skill} waits for approval ${e.number}`], approval_decided: (e) => [e.verdict && e.verdict.do === "deny" ? "error" : "completing", `approval ${e.number} decided by ${e.by}`] } },
  { id: "clockwork", zone: "thinking", is: always, part: "Scheduler", actor: () => "/scheduler", on: { turn_started: (e) => ["activating", "turn begins" + (e.route && e.route.length ? " on " + e.route[0] : "")], suspended: (e) => ["yielding", "suspended by " + e.by], continued: (e) => ["activating", "continued by " + e.by], deferred: (e) => ["yielding", "deferred: " + cut(e.reason)], reprioritised: (e) => ["activating", "class now " + e.priority], deadline_passed: (e) => ["error", (e.hard ? "hard" : "soft") + " deadline passed"] } },
  { id: "ouroboros", zone: "thinking", is: always, part: "Log writer", actor: () => "/infra/log", on: { "*": (e) => ["activating", `event ${e.seq} stored: ${e.kind}`] } },
  { id: "dragon", zone: "thinking", is: always, part: "Database", on: { commit: (e) => ["activating", `${e.count} ${e.count === 1 ? "commit" : "commits"}`] } },
  { id: "sphinx", zone: "thinking", is: always, part: "Context assembly", on: { turn_started: (e) => ["activating", `context for ${e.mode}`], results_given: () => ["activating", "agents' results put into the context"] } },
  { id: "griffin", zone: "thinking", is: always, part: "Resolver of calls, routes", on: { model_replied: (e) => e.calls && e.calls.length > 0 && ["activating", `${e.calls.length} ${e.calls.length === 1 ? "call" : "calls"} resolved: ${cut(e.calls.map((c) => c.name).join(", "), 28)}`], decided: decided("route"), interface_changed: (e) => ["activating", "interface now " + e.to] } },
  { id: "spider", zone: "thinking", is: always, part: "Plan of agents", on: { model_replied: (e) => { const n = (e.calls || []).filter((c) => c.action && c.action.action === "dispatch").length; return n > 0 && ["activating", `${n} ${n === 1 ? "agent" : "agents"} planned`]; } } },
  { id: "eagle", zone: "thinking", is: always, part: "Guardrails", on: { decided: decided("guard", "hook", "trust", "spend"), loop_detected: (e) => ["error", "loop: " + e.detector], answered: (e) => e.redacted && e.redacted.length > 0 && ["activating", `${e.redacted.length} redacted`] } },
  { id: "oracle", zone: "thinking", is: always, part: "Result checks", on: { skill_finished: (e) => e.outcome && e.outcome.confidence < 0.5 ? ["error", `${e.skill}: confidence ${e.outcome.confidence}`] : ["activating", `${e.skill}: ${e.outcome.status}`] } },
  { id: "phoenix-ash", zone: "thinking", is: always, part: "Error router", on: { retried: (e) => ["spawning", "retry: " + (typeof e.strategy === "string" ? e.strategy : cut(JSON.stringify(e.strategy)))], resumed: (e) => ["spawning", "resumed after " + e.cause], dead_letter_due: (e) => ["spawning", "dead letter due, asked by " + e.by], failed: (e) => ["error", "failed: " + e.code], decided: decided("error_router") } },
  { id: "archivist", zone: "thinking", is: always, part: "Compaction", on: { compacted: (e) => ["completing", `${e.messages} messages compacted`] } },
  { id: "owl", zone: "thinking", is: always, part: "Skill folder watcher", actor: () => "/resources/services", on: { skills_changed: (e) => ["activating", `skills reloaded, version ${e.version}`] } },
  { id: "starfish", zone: "thinking", is: domain("tasks", "notes"), part: "Full-text search", actor: () => "/breakers/breaker:tasks.search", on: skills((s) => s === "tasks.search" || s === "notes.search") },
  { id: "narwhal", zone: "thinking", is: never("Memories are found by words: there is no vector search yet."), part: "Vector search", on: {} },
  { id: "mnemosyne", zone: "thinking", is: domain("memory"), part: "Memory search", actor: () => "/breakers/breaker:memory.search", on: { ...skills((s) => s === "memory.search" || s === "memory.list"), turn_started: (e) => { const n = (e.facts && (e.facts.recalled || e.facts.memories) || []).length; return n > 0 && ["activating", `${n} ${n === 1 ? "memory" : "memories"} recalled`]; } } },
  { id: "seahorse", zone: "thinking", is: domain("tasks", "files"), part: "Documents and to-dos", actor: () => "/breakers/breaker:tasks.create", on: skills((s) => /^(tasks\.(create|update|delete|get|restore)|files\.)/.test(s)) },
  { id: "kraken", zone: "thinking", is: domain("memory"), part: "Memory extraction", actor: () => "/breakers/breaker:memory.save", on: skills((s) => /^memory\.(save|update|delete|restore)/.test(s)) },
  { id: "pythia", zone: "thinking", is: always, part: "Sub-agents", actor: () => "/conversations", on: { agent_started: (e) => ["working", `agent ${e.agent}, ${e.calls_granted} calls granted`], agent_reported: (e) => [["completed", "no_action"].includes(e.report && e.report.status) ? "completing" : "error", `agent ${(e.report && e.report.agent) || e.agent} ${e.report ? e.report.status : "reported"}`] } },
  { id: "phoenix", zone: "thinking", is: domain("schedules"), part: "Schedules and reflection", actor: () => "/infra/schedules", on: { received: (e) => e.source === "schedule" && ["activating", "schedule: " + cut(e.text || "")], ...skills((s) => s.startsWith("schedules.")) } },
  { id: "luna-moth", zone: "thinking", is: always, part: "Voice turns", on: { received: (e) => isVoice(e) && ["activating", "voice turn"], turn_started: (e) => e.facts && e.facts.spoken_as && ["activating", "spoken request"] } },
  { id: "butterfly", zone: "thinking", is: always, part: "Long-running operations", actor: () => "/infra/expiry", on: { skill_finished: (e) => e.outcome && e.outcome.status === "pending" && ["working", `${e.skill} continues elsewhere`], received: (e) => e.source === "operation" && ["completing", "a result arrived"] } },
  { id: "firefly", zone: "thinking", is: always, part: "Notifications", actor: () => "/infra/notifier", on: { notification: (e) => ["activating", cut(e.text || "notification")] } },
  { id: "hummingbird", zone: "thinking", is: domain("tasks"), part: "Reminders", actor: () => "/infra/reminders", on: { received: (e) => e.source === "reminder" && ["activating", "reminder: " + cut(e.text || "")] } },
  { id: "chameleon", zone: "thinking", is: always, part: "Format and tone", on: { turn_started: (e) => e.facts && e.facts.tone && ["activating", "tone: " + cut(e.facts.tone)], answered: (e) => e.spoken && e.spoken.length > 0 && ["activating", "made fit for speech: " + cut(e.spoken.join(", "))] } },
  // Acting
  { id: "minotaur", zone: "acting", is: always, part: "Voice rounds", on: { model_replied: (e, f) => f.voiceTasks.has(e.task_id) && ["completing", `${e.backend}, voice round ${e.round}`] } },
  { id: "unicorn", zone: "acting", part: "First local backend", ...slot(0) },
  { id: "fairy", zone: "acting", part: "Second local backend", ...slot(1) },
  { id: "lion", zone: "acting", part: "Third local backend", ...slot(2) },
  { id: "centaur", zone: "acting", part: "Cloud backends", is: (f) => f.backends.some((b) => b.kind === "cloud") || "No cloud backend is configured.", on: backend((f) => f.backends.filter((b) => b.kind === "cloud")), actor: () => "/resources/backends" },
  { id: "djinn", zone: "acting", part: "Command backends", is: (f) => f.backends.some((b) => b.kind === "command") || "No program is configured as a backend.", on: backend((f) => f.backends.filter((b) => b.kind === "command")), actor: () => "/resources/backends" },
  { id: "chimera", zone: "acting", part: "Web search", is: skill("web.search"), actor: () => "/breakers/breaker:web.search", on: skills((s) => s === "web.search") },
  { id: "selkie", zone: "acting", part: "Page fetch", is: skill("web.fetch"), actor: () => "/breakers/breaker:web.fetch", on: skills((s) => s === "web.fetch") },
  { id: "roc", zone: "acting", part: "Media and downloads", is: domain("media", "youtube", "download"), on: skills((s) => /^(media|youtube|download)\./.test(s)) },
  { id: "manticore", zone: "acting", part: "Research workflow", is: domain("research", "workflow"), on: skills((s) => /^(research|workflow)/.test(s)) },
  { id: "scribe", zone: "acting", part: "Notes and writing", is: domain("notes"), actor: () => "/breakers/breaker:notes.create", on: skills((s) => s.startsWith("notes.") && s !== "notes.search") },
  { id: "librarian", zone: "acting", part: "Skills that Annie writes", is: skill("system.build_skill"), on: skills((s) => s === "system.build_skill") },
  { id: "pegasus", zone: "acting", part: "MCP servers", is: (f) => f.servers > 0 || "No MCP server is configured.", on: skills((s) => s.startsWith("mcp.")) },
  { id: "nymph", zone: "acting", part: "Answers to the page", is: always, actor: () => "/listeners", on: { answered: (e) => ["completing", `answer, ${(e.text || "").length} characters`], failed: (e) => ["error", "failure shown: " + e.code] } },
  { id: "leviathan", zone: "acting", part: "Text to speech", is: never("Annie has no speech output of its own: voice clients speak the text."), on: {} },
  { id: "serpent", zone: "acting", part: "Voice dialogue", is: never("Voice clients keep the dialogue; Annie receives its turns."), on: {} },
].map((c) => ({ ...c, drawing: DRAWINGS[c.id] }));

export const ZONES = [
  { id: "listening", title: "Listening" },
  { id: "thinking", title: "Thinking" },
  { id: "acting", title: "Acting" },
];

/** How long each state lasts, in milliseconds. `working` lasts until another state. */
export const LASTS_MS = { activating: 300, completing: 500, error: 900, yielding: 400, spawning: 600 };

/** The kind of a backend, from the description that the status gives. */
export function kindOf(about) {
  const text = (about || "").toLowerCase();
  if (text.includes("program") || text.includes("command")) return "command";
  return text.includes("cloud") ? "cloud" : "local";
}

/** What an event moves: [{ id, state, caption }], in the order of the way of a message. */
export function effects(event, facts) {
  const found = [];
  for (const creature of CREATURES) {
    const react = creature.on[event.kind] || (event.seq != null ? creature.on["*"] : undefined);
    const reaction = react && react(event, facts);
    if (reaction) found.push({ id: creature.id, state: reaction[0], caption: reaction[1] });
  }
  return found;
}
