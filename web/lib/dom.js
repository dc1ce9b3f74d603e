// Elements. Text is always a text node, so that no text can become markup.

const SVG = "http://www.w3.org/2000/svg";

function append(el, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) append(el, child);
    else if (child instanceof Node) el.append(child);
    else el.append(document.createTextNode(String(child)));
  }
}

const isProps = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Node);

function build(namespace, spec, args) {
  const [tag, ...classes] = spec.split(".");
  const el = namespace ? document.createElementNS(namespace, tag || "g") : document.createElement(tag || "div");
  const props = isProps(args[0]) ? args.shift() : {};
  if (classes.length) el.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(props)) set(el, name, value, namespace);
  append(el, args);
  return el;
}

const AS_PROPERTY = new Set(["value", "checked", "selected", "disabled", "indeterminate", "open", "tabIndex", "readOnly", "multiple"]);

function set(el, name, value, namespace) {
  if (value === undefined || value === null) return;
  if (name === "class") {
    for (const one of String(value).split(/\s+/)) if (one) el.classList.add(one);
  } else if (name === "on") {
    for (const [type, fn] of Object.entries(value)) if (fn) el.addEventListener(type, fn);
  } else if (name === "style") {
    for (const [key, v] of Object.entries(value)) key.startsWith("--") ? el.style.setProperty(key, v) : (el.style[key] = v);
  } else if (name === "data") {
    for (const [key, v] of Object.entries(value)) if (v !== undefined && v !== null) el.dataset[key] = v;
  } else if (name === "aria") {
    for (const [key, v] of Object.entries(value)) if (v !== undefined && v !== null) el.setAttribute(`aria-${key}`, String(v));
  } else if (/^on/i.test(name)) {
    throw new Error(`handlers are given as on: {…}, not ${name}`);
  } else if (name === "href" && !/^(#|\/|https?:|blob:|mailto:)/i.test(String(value))) {
    // An address from data must not be a script.
    el.setAttribute("href", "#");
  } else if (!namespace && AS_PROPERTY.has(name)) {
    el[name] = value;
  } else if (value === true) {
    el.setAttribute(name, "");
  } else if (value !== false) {
    el.setAttribute(name, String(value));
  }
}

export const h = (spec, ...args) => build(null, spec, args);
export const svg = (spec, ...args) => build(SVG, spec, args);
export const frag = (...children) => {
  const fragment = document.createDocumentFragment();
  append(fragment, children);
  return fragment;
};

export function clear(el) {
  el.replaceChildren();
  return el;
}

export function replace(el, ...children) {
  el.replaceChildren(frag(...children));
  return el;
}

// Changes a text only if it differs, so that a selection survives.
export function patchText(el, text) {
  const next = String(text);
  if (el.textContent !== next) el.textContent = next;
}

// Keeps one child for each item, in the order of the items.
export function keyed(parent, items, keyOf, make, patch) {
  const before = parent.$keyed ?? (parent.$keyed = new Map());
  const after = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = before.get(key);
    if (!node) node = make(item);
    patch?.(node, item);
    after.set(key, node);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  for (const [key, node] of before) if (after.get(key) !== node) node.remove();
  parent.$keyed = after;
}
