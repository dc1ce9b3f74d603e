// What floats above the page: drawer, dialog, menu, toasts.

import { h, replace } from "./dom.js";
import { icon } from "./icons.js";

let ids = 0;
const fresh = (name) => `${name}-${(ids += 1)}`;

let openDrawer = null;

// A panel at the right. One at a time; Esc closes it, and the focus returns to where it was.
export function drawer({ title, label, body = [], actions = [], onClose, focus = true }) {
  const before = document.activeElement;
  openDrawer?.close({ quiet: true });
  const id = fresh("drawer");
  const content = h("div.body", body);
  content.tabIndex = 0;
  const foot = h("footer", actions);
  foot.hidden = !actions.length;
  const heading = h("h2", { id }, title);
  const el = h("aside.drawer", { role: "complementary", aria: { labelledby: id }, tabindex: "-1" },
    h("header", heading, h("button.iconbtn", { type: "button", aria: { label: `Close ${label ?? "details"}` }, on: { click: () => handle.close() } }, icon("close"))),
    content, foot);
  const keys = (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open], .menu")) {
      event.preventDefault();
      handle.close();
    }
  };
  const handle = {
    el, body: content,
    setTitle: (...text) => replace(heading, ...text),
    setActions(list) {
      replace(foot, ...list);
      foot.hidden = !list.length;
    },
    close({ quiet } = {}) {
      if (!el.isConnected) return;
      document.removeEventListener("keydown", keys);
      el.remove();
      if (openDrawer === handle) openDrawer = null;
      onClose?.({ quiet: Boolean(quiet) });
      if (!quiet && before?.isConnected) before.focus({ preventScroll: true });
    },
  };
  document.addEventListener("keydown", keys);
  document.body.append(el);
  openDrawer = handle;
  if (focus) el.focus({ preventScroll: true });
  return handle;
}

export const closeDrawer = () => openDrawer?.close({ quiet: true });

// A question. Resolves to the values, or to null.
export function dialog({ title, body = [], fields = [], confirm = "OK", danger = false, reason = false, typeName, cancel = "Cancel" }) {
  return new Promise((resolve) => {
    const id = fresh("dialog");
    const all = [...fields];
    if (reason) all.push({ name: "reason", label: "Reason", kind: "text", required: reason === "required" || danger, hint: "Kept in the log with your name.", max: 200 });
    if (typeName) all.push({ name: "typed", label: `Type ${typeName} to confirm`, kind: "text", required: true, equals: typeName });
    const inputs = new Map();
    const rows = all.map((field) => {
      const fieldId = fresh("field");
      const problem = h("span.problem", { id: `${fieldId}-problem`, hidden: true });
      const common = { id: fieldId, name: field.name, aria: { describedby: `${fieldId}-problem` }, autocomplete: "off" };
      let input;
      if (field.kind === "select") {
        input = h("select", common, field.options.map((o) => h("option", { value: o.value ?? o, selected: (o.value ?? o) === field.value }, o.label ?? o)));
      } else if (field.kind === "textarea") {
        input = h("textarea", { ...common, rows: field.rows ?? 6, maxlength: field.max }, field.value ?? "");
        if (field.mono) input.classList.add("mono");
      } else if (field.kind === "check") {
        input = h("input", { ...common, type: "checkbox", checked: Boolean(field.value) });
      } else {
        input = h("input", { ...common, type: field.kind === "number" ? "number" : field.kind === "password" ? "password" : "text", value: field.value ?? "", maxlength: field.max, placeholder: field.placeholder });
      }
      inputs.set(field.name, { field, input, problem });
      if (field.kind === "check") return h("div.field", h("label.checkline", input, field.label), field.hint ? h("span.hint", field.hint) : null, problem);
      return h("div.field", h("label", { for: fieldId }, field.label), input, field.hint ? h("span.hint", field.hint) : null, problem);
    });
    let answer = null;
    const el = h("dialog", { aria: { labelledby: id } },
      h("form", { method: "dialog", novalidate: true, on: { submit } },
        h("header", h("h2", { id }, title)),
        h("div.body", Array.isArray(body) ? body : [typeof body === "string" ? h("p", body) : body], rows),
        h("footer", cancel === null ? null : h("button.btn", { type: "button", on: { click: () => el.close() } }, cancel),
          h("button.btn.primary", { type: "submit", class: danger ? "danger" : "" }, confirm))));
    function submit(event) {
      event.preventDefault();
      const values = {};
      let first = null;
      for (const [name, { field, input, problem }] of inputs) {
        const value = field.kind === "check" ? input.checked : field.kind === "number" && input.value !== "" ? Number(input.value) : input.value;
        let wrong = "";
        if (field.required && String(value).trim() === "") wrong = `${field.label} is missing.`;
        else if (field.equals && value !== field.equals) wrong = `This is not ${field.equals}.`;
        else wrong = field.check?.(value) ?? "";
        problem.textContent = wrong;
        problem.hidden = !wrong;
        input.setAttribute("aria-invalid", String(Boolean(wrong)));
        if (wrong) first ??= input;
        values[name] = value;
      }
      if (first) return first.focus();
      answer = values;
      el.close();
    }
    el.addEventListener("close", () => {
      el.remove();
      resolve(answer);
    });
    document.body.append(el);
    el.showModal();
    (inputs.values().next().value?.input ?? el.querySelector("footer .btn"))?.focus();
  });
}

let toasts = null;
// A message that goes by itself, unless it is an error.
export function toast(text, { kind = "info", action, detail } = {}) {
  toasts ??= document.body.appendChild(h("div.toasts", { role: "status", aria: { live: "polite" } }));
  const el = h("div.toast", { class: kind }, icon(kind === "info" ? "info" : kind),
    h("div.grow", h("div.wrap", text), detail ? h("div.dim.small.wrap", detail) : null,
      action ? h("button.btn.small", { type: "button", on: { click: () => (el.remove(), action.run()) } }, action.label) : null),
    h("button.iconbtn", { type: "button", aria: { label: "Dismiss" }, on: { click: () => el.remove() } }, icon("close")));
  toasts.append(el);
  while (toasts.children.length > 4) toasts.firstChild.remove();
  setTimeout(() => el.remove(), kind === "bad" ? 12_000 : 5_000);
  return el;
}

// A menu at an element or at a point. `items`: { label, icon, run, danger, disabled }.
export function menu(anchor, items) {
  document.querySelector(".menu")?.remove();
  const before = document.activeElement;
  const buttons = items.filter(Boolean).map((item) =>
    h("button", { type: "button", role: "menuitem", class: item.danger ? "danger" : "", disabled: Boolean(item.disabled), on: { click: () => (close(), item.run()) } }, item.icon ? icon(item.icon) : null, item.label));
  const el = h("div.menu", { role: "menu", aria: { label: "Actions" } }, buttons);
  const close = () => {
    el.remove();
    removeEventListener("pointerdown", outside, true);
    if (before?.isConnected) before.focus({ preventScroll: true });
  };
  const outside = (event) => el.contains(event.target) || close();
  el.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    if (event.key === "ArrowDown" || event.key === "j") buttons[(at + 1) % buttons.length]?.focus();
    else if (event.key === "ArrowUp" || event.key === "k") buttons[(at + buttons.length - 1) % buttons.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  document.body.append(el);
  const box = anchor.getBoundingClientRect?.() ?? anchor;
  const top = box.bottom + 4 + el.offsetHeight > innerHeight ? box.top - el.offsetHeight - 4 : box.bottom + 4;
  el.style.left = `${Math.max(8, Math.min(box.left, innerWidth - el.offsetWidth - 8))}px`;
  el.style.top = `${Math.max(8, top)}px`;
  addEventListener("pointerdown", outside, true);
  buttons[0]?.focus();
  return { close };
}
