// Talk to it.

import { h, replace, keyed } from "../lib/dom.js";
import { icon } from "../lib/icons.js";
import { ago, last6, num, relative } from "../lib/format.js";
import { empty, mark, skeleton, status } from "../lib/states.js";
import { Story, activity, stateOf } from "../lib/story.js";
import { prose } from "../lib/prose.js";
import { approvalCard, costLine, finalBlock, noteLine, workChips } from "./work.js";
import { newId } from "./listing.js";

const WINDOW = 1_000;
const FILE_BYTES_MAX = 200_000;
const DRAFTS = "annie.drafts";

export function mount(root, ctx) {
  ctx.box.classList.add("fill", "chatpage");
  root.className = "chat content";
  let id = "", story = new Story(), off = null, isSending = false, isAtEnd = true, generation = 0;
  let commands = [];
  let files = [];

  const list = h("ul.chatlist", { aria: { label: "Conversations" } });
  const thread = h("div.thread", { role: "log", aria: { label: "Messages", live: "off" }, tabindex: "0" });
  const said = h("div.visually-hidden", { role: "status", aria: { live: "polite" } });
  const box = h("textarea", { rows: 1, placeholder: "Message Annie, / for skills", aria: { label: "Message", autocomplete: "list", controls: "slash", haspopup: "listbox" } });
  const slash = h("div.suggest.slash", { role: "listbox", id: "slash", aria: { label: "Skills" }, hidden: true });
  const fileRow = h("div.row.wraps.files", { hidden: true });
  const picker = h("input", { type: "file", multiple: true, hidden: true, aria: { label: "Attach text files" }, on: { change: () => (attach(picker.files), (picker.value = "")) } });
  const send = h("button.btn.primary.send", { type: "submit", aria: { label: "Send message" } }, icon("send"));
  const stop = h("button.btn.danger.send", { type: "button", hidden: true, aria: { label: "Stop" }, title: "Stop what runs", on: { click: stopRunning } }, icon("stop"), "Stop");
  const steer = h("label.checkline.small.steerline", { hidden: true }, h("input", { type: "checkbox", checked: true }), "Add to what Annie is doing now (steer)");
  const form = h("form.composer", { on: { submit: (event) => (event.preventDefault(), post()) } }, slash, fileRow, h("div.composer-row", h("button.iconbtn", { type: "button", title: "Attach text files", aria: { label: "Attach text files" }, on: { click: () => picker.click() } }, icon("attach")), picker, box, stop, send), steer);
  const jump = h("button.btn.small.jump", { type: "button", hidden: true, on: { click: () => toEnd(true) } }, icon("down"), "Newest");
  replace(root, h("aside.chatside.panel", h("div.panel-head", h("h2", "Conversations"), h("div.right", h("a.iconbtn", { href: "#/chat", title: "New conversation", aria: { label: "New conversation" } }, icon("plus")))), list), h("div.chatmain", thread, jump, form, said));

  const drafts = () => {
    try {
      return JSON.parse(sessionStorage.getItem(DRAFTS) ?? "{}");
    } catch {
      return {};
    }
  };
  const keepDraft = () => sessionStorage.setItem(DRAFTS, JSON.stringify({ ...drafts(), [id || "new"]: box.value }));

  async function show() {
    const next = ctx.route.rest[0] ?? "";
    if (next === id && generation) return;
    generation += 1;
    const mine = generation;
    id = next;
    off?.();
    off = null;
    story = new Story();
    thread.$keyed = null;
    thread.replaceChildren();
    box.value = drafts()[id || "new"] ?? "";
    grow();
    markList();
    if (!id) {
      ctx.title("Chat");
      replace(thread, welcome());
      draw();
      return box.focus();
    }
    ctx.title(last6(id), Object.assign([{ text: "Chat", href: "#/chat" }], { current: last6(id) }), [h("a.btn", { href: `#/conversations/${id}` }, icon("conversations"), "What happened here")]);
    replace(thread, skeleton(6));
    try {
      const row = await ctx.api.get(`/conversations/${id}`);
      if (mine !== generation) return;
      ctx.title(row.title || last6(id), Object.assign([{ text: "Chat", href: "#/chat" }], { current: last6(id) }), [h("a.btn", { href: `#/conversations/${id}` }, icon("conversations"), "What happened here")]);
      let after = Math.max(0, row.last_seq - WINDOW);
      for (;;) {
        const page = await ctx.api.get(`/conversations/${id}/events`, { query: { after, limit: 500 } });
        if (mine !== generation) return;
        for (const event of page.events) story.add(event);
        if (page.events.length < 500) break;
        after = page.events.at(-1).seq;
      }
      thread.replaceChildren();
      thread.$keyed = null;
      off = ctx.live.on(`conversation:${id}`, heard, story.last);
      draw();
      toEnd(true);
      box.focus({ preventScroll: true });
    } catch (error) {
      if (error.name === "AbortError" || mine !== generation) return;
      replace(thread, empty({ title: error.title ?? "This conversation cannot be shown", text: error.detail ?? error.message, button: { label: "New conversation", run: () => ctx.go("#/chat") } }));
    }
  }

  function welcome() {
    const ideas = ["What is due this week?", "Remember that Bob prefers email", "Create a task: review PR 42, due tomorrow"];
    return h("div.empty.welcome", h("p.empty-title", "Write a message."), h("p", "Annie answers, runs skills, and asks you before what needs your approval. Nothing that you send is lost, even if an actor or the server crashes."), h("div.row.wraps.ideas", ideas.map((text) => h("button.btn", { type: "button", on: { click: () => ((box.value = text), grow(), box.focus()) } }, text))));
  }

  let frame = 0;
  function heard({ event, data }) {
    if (event === "event") {
      const turn = story.add(data);
      if (data.kind === "answered") said.textContent = `Annie answered: ${String(data.text).slice(0, 200)}`;
      if (data.kind === "approval_requested") said.textContent = `Annie asks for your approval of ${data.skill}`;
      if (turn?.final) listSoon();
    } else if (event === "draft") story.draft(data);
    // The server was restored from a backup and has fewer events than the page.
    else if (event === "reset" && data.conversation_id === id) return void show();
    else return;
    frame ||= setTimeout(() => {
      frame = 0;
      draw();
    }, 30);
  }

  const turns = () => story.order.filter((turn) => turn.text || turn.final);

  function draw() {
    const running = story.running;
    stop.hidden = !running.length;
    steer.hidden = !running.some((turn) => turn.startedAt);
    send.disabled = isSending;
    if (!turns().length) return;
    thread.querySelector(".welcome")?.remove();
    keyed(thread, turns(), (turn) => turn.task, () => {
      const el = h("article.turn", { aria: { label: "Turn" } });
      el.$user = h("div.message.is-user");
      el.$work = h("div.work");
      el.$draft = h("div.answer.is-draft");
      el.$final = h("div.final");
      el.$annie = h("div.message.is-annie", el.$work, el.$draft, el.$final);
      el.append(el.$user, el.$annie);
      return el;
    }, patch);
    if (isAtEnd) toEnd(false);
    else jump.hidden = false;
  }

  function patch(el, turn) {
    part(el.$user, turn.text + (turn.isPending ?? "") + turn.source, () => [prose(turn.text)]);
    el.$user.title = relative(turn.at);
    el.$annie.hidden = Boolean(turn.joined);
    const works = [turn.state, activity(turn), [...turn.agents.values()].map((a) => `${a.id}${a.state}`).join(), [...turn.skills.values()].map((s) => s.outcome?.status ?? "-").join(), [...turn.approvals.values()].map((a) => `${a.number}${Boolean(a.verdict)}`).join(), turn.notes.length, turn.steers.length, Boolean(turn.final)].join("|");
    part(el.$work, works, () => [
      turn.steers.map((one) => h("div.steer", icon("fork"), h("span.wrap", one.text))),
      workChips(turn, ctx),
      turn.notes.filter((note) => note.kind !== "decided").map(noteLine),
      [...turn.approvals.values()].map((approval) => approvalCard(turn, approval, ctx)),
      turn.final ? null : h("div.doing", turn.state === "queued" || turn.state === "deferred" || turn.state === "suspended" ? mark(...stateOf(turn.state)) : h("span.pulse", { aria: { hidden: "true" } }), h("span", activity(turn)), turn.until && turn.state === "deferred" ? ["until ", ago(turn.until)] : null),
    ]);
    const draft = turn.final ? "" : turn.draft?.text ?? "";
    part(el.$draft, draft, () => (draft ? [prose(draft)] : []));
    el.$draft.hidden = !draft;
    part(el.$final, String(turn.final?.seq ?? ""), () => (turn.final ? [finalBlock(turn), foot(turn)] : []));
  }

  function part(el, text, make) {
    if (el.$text === text) return;
    el.$text = text;
    replace(el, ...make());
  }

  function foot(turn) {
    return h("div.answerfoot.small.dim",
      turn.final.paused ? h("button.btn.small", { type: "button", on: { click: () => post("continue") } }, icon("play"), "Continue") : null,
      turn.final.kind === "failed" ? h("button.btn.small", { type: "button", on: { click: () => post(turn.text) } }, icon("restart"), "Ask again") : null,
      turn.final.outcome && turn.final.outcome !== "done" ? status("warn", `Not done: ${String(turn.final.outcome.kind ?? turn.final.outcome).replaceAll("_", " ")}`) : null,
      h("span.tabular.costline", costLine(turn)), ago(turn.final.at),
      h("a", { href: `#/conversations/${id}?view=waterfall&task=${turn.task}` }, "Where the time went"));
  }

  function toEnd(force) {
    if (force) isAtEnd = true;
    jump.hidden = true;
    thread.scrollTop = thread.scrollHeight;
  }
  thread.addEventListener("scroll", () => {
    isAtEnd = thread.scrollHeight - thread.scrollTop - thread.clientHeight < 60;
    if (isAtEnd) jump.hidden = true;
  }, { passive: true });

  async function post(given) {
    const text = given ?? [box.value.trim(), ...files.map((file) => `\n\nFile ${file.name}:\n\`\`\`\n${file.text}\n\`\`\``)].join("").trim();
    if (!text || isSending) return;
    isSending = true;
    draw();
    const body = { text, client_id: `page-${newId()}` };
    if (id) body.conversation_id = id;
    if (!given && id && !steer.hidden && steer.querySelector("input").checked) body.steer = true;
    try {
      const accepted = await ctx.api.post("/messages", body);
      if (!given) {
        box.value = "";
        files = [];
        drawFiles();
        keepDraft();
        grow();
      }
      isAtEnd = true;
      if (!id) ctx.go(`#/chat/${accepted.conversation_id}`);
      listSoon();
    } catch (error) {
      if (error.name !== "AbortError") ctx.toast("The message was not sent", { kind: "bad", detail: error.detail });
    } finally {
      isSending = false;
      draw();
    }
  }

  async function stopRunning() {
    for (const turn of story.running) await ctx.act("Stopping", () => ctx.api.post(`/tasks/${turn.task}/cancel`), {});
  }

  // Files: their text becomes a part of the message.
  async function attach(chosen) {
    for (const file of chosen) {
      if (file.size > FILE_BYTES_MAX) {
        ctx.toast(`${file.name} is too large`, { kind: "bad", detail: `A file may have ${num(FILE_BYTES_MAX / 1000)} kB.` });
        continue;
      }
      const text = await file.text();
      if (text.includes("\u0000")) ctx.toast(`${file.name} is not a text file`, { kind: "bad" });
      else files.push({ name: file.name, text });
    }
    drawFiles();
  }
  function drawFiles() {
    fileRow.hidden = !files.length;
    replace(fileRow, files.map((file) => h("button.chip", { type: "button", title: "Remove", aria: { label: `Remove ${file.name}` }, on: { click: () => ((files = files.filter((f) => f !== file)), drawFiles()) } }, icon("attach"), file.name, icon("close"))));
  }
  ctx.listen(root, "dragover", (event) => event.preventDefault());
  ctx.listen(root, "drop", (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    attach(event.dataTransfer.files);
  });

  // Completion of skills
  let choice = 0, shownCommands = [];
  function drawSlash() {
    const typed = /^\/(\S*)$/.exec(box.value);
    shownCommands = typed ? commands.filter((c) => c.name.toLowerCase().includes(typed[1].toLowerCase())).slice(0, 40) : [];
    slash.hidden = !shownCommands.length;
    choice = Math.min(choice, Math.max(0, shownCommands.length - 1));
    replace(slash, shownCommands.map((c, n) => h("div", { role: "option", id: `slash-${n}`, aria: { selected: String(n === choice) }, on: { pointerdown: (event) => (event.preventDefault(), take(c)) } }, h("span.mono", c.name, c.argument_hint ? h("span.dim", ` ${c.argument_hint}`) : null), h("span.dim.cut", c.description))));
    if (slash.hidden) box.removeAttribute("aria-activedescendant");
    else {
      box.setAttribute("aria-activedescendant", `slash-${choice}`);
      document.getElementById(`slash-${choice}`)?.scrollIntoView({ block: "nearest" });
    }
  }
  function take(command) {
    box.value = `${command.name} `;
    drawSlash();
    grow();
    box.focus();
  }
  function grow() {
    box.style.height = "auto";
    box.style.height = `${Math.min(220, box.scrollHeight + 2)}px`;
  }
  box.addEventListener("input", () => {
    choice = 0;
    grow();
    drawSlash();
    keepDraft();
  });
  box.addEventListener("blur", () => (slash.hidden = true));
  box.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (!slash.hidden && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      choice = (choice + (event.key === "ArrowDown" ? 1 : shownCommands.length - 1)) % shownCommands.length;
      drawSlash();
    } else if (!slash.hidden && (event.key === "Tab" || event.key === "Enter") && shownCommands[choice]) take(shownCommands[choice]);
    else if (event.key === "Escape" && !slash.hidden) slash.hidden = true;
    else if (event.key === "Enter" && !event.shiftKey) post();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  ctx.api.get("/commands").then((found) => (commands = found.commands)).catch(() => {});

  // The list of conversations
  let rows = [], timer = 0;
  async function loadList() {
    try {
      rows = (await ctx.api.get("/conversations", { query: { limit: 60 } })).conversations;
      drawList();
    } catch {
      // The thread shows what is wrong.
    }
  }
  const listSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(loadList, 400);
  };
  function drawList() {
    if (!rows.length) return replace(list, h("li.pad.dim", "None yet."));
    if (!list.$keyed) list.replaceChildren();
    keyed(list, rows, (row) => row.id, (row) => {
      const title = h("span.cut");
      const when = h("span.dim.small");
      return Object.assign(h("li", h("a.chatitem", { href: `#/chat/${row.id}` }, title, when)), { $title: title, $when: when });
    }, (el, row) => {
      el.$title.textContent = row.title || last6(row.id);
      if (el.$at !== row.updated_at) replace(el.$when, ago((el.$at = row.updated_at)));
    });
    markList();
  }
  function markList() {
    for (const link of list.querySelectorAll("a")) {
      if (link.getAttribute("href") === `#/chat/${id}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  loadList();
  ctx.route.subscribe(show);
  ctx.every(1_000, () => story.running.length && draw());
  show();
  return () => {
    clearTimeout(timer);
    generation += 1;
    off?.();
  };
}
