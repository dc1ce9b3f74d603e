// A form made of a JSON Schema: an object of strings, numbers, booleans, enumerations, and lists of these.

import { h } from "./dom.js";

let ids = 0;

export function schemaForm(schema, value = {}) {
  const required = new Set(schema?.required ?? []);
  const inputs = [];
  const entries = Object.entries(schema?.properties ?? {}).sort(([a], [b]) => required.has(b) - required.has(a));
  const rows = entries.map(([name, property]) => {
    const id = `form-${(ids += 1)}`;
    const type = Array.isArray(property.type) ? property.type.find((t) => t !== "null") : property.type;
    const preset = value[name] ?? property.default;
    const problem = h("span.problem", { id: `${id}-problem`, hidden: true });
    const common = { id, aria: { describedby: `${id}-problem` }, autocomplete: "off" };
    let input;
    let read;
    if (Array.isArray(property.enum)) {
      input = h("select", common, required.has(name) ? null : h("option", { value: "" }, "–"), property.enum.map((one) => h("option", { value: String(one), selected: one === preset }, String(one))));
      read = () => (input.value === "" ? undefined : property.enum.find((one) => String(one) === input.value));
    } else if (type === "boolean") {
      input = h("input", { ...common, type: "checkbox", checked: Boolean(preset) });
      read = () => (input.checked || preset !== undefined || required.has(name) ? input.checked : undefined);
    } else if (type === "integer" || type === "number") {
      input = h("input", { ...common, type: "number", step: type === "integer" ? "1" : "any", min: property.minimum, max: property.maximum, value: preset ?? "" });
      read = () => (input.value === "" ? undefined : Number(input.value));
    } else if (type === "array") {
      input = h("textarea", { ...common, rows: 3, placeholder: "One in each line" }, (preset ?? []).join("\n"));
      read = () => {
        const lines = input.value.split("\n").map((line) => line.trim()).filter(Boolean);
        const isNumber = ["integer", "number"].includes(property.items?.type);
        return lines.length ? lines.map((line) => (isNumber ? Number(line) : line)) : undefined;
      };
    } else if (type === "object") {
      input = h("textarea.mono", { ...common, rows: 4, placeholder: "{ }" }, preset ? JSON.stringify(preset, null, 2) : "");
      read = () => (input.value.trim() ? JSON.parse(input.value) : undefined);
    } else {
      input = (property.maxLength ?? 0) > 200 ? h("textarea", { ...common, rows: 3 }, preset ?? "") : h("input", { ...common, type: "text", value: preset ?? "", placeholder: property.examples?.[0] });
      read = () => (input.value === "" ? undefined : input.value);
    }
    inputs.push({ name, read, input, problem });
    const label = h("label", { for: id }, name, required.has(name) ? null : h("span.dim", " (optional)"));
    const hint = property.description ? h("span.hint", property.description) : null;
    return type === "boolean" ? h("div.field", h("div.checkline", input, label), hint, problem) : h("div.field", label, input, hint, problem);
  });
  const el = h("div.stack", rows.length ? rows : h("p.dim", "No arguments."));
  return {
    el,
    // The values, or null if one of them is wrong, which is then shown.
    value() {
      const found = {};
      let first = null;
      for (const { name, read, input, problem } of inputs) {
        let wrong = "";
        try {
          const one = read();
          if (one === undefined && required.has(name)) wrong = `${name} is missing.`;
          if (one !== undefined) found[name] = one;
        } catch (error) {
          wrong = `This is not JSON: ${error.message}`;
        }
        problem.textContent = wrong;
        problem.hidden = !wrong;
        input.setAttribute("aria-invalid", String(Boolean(wrong)));
        if (wrong) first ??= input;
      }
      first?.focus();
      return first ? null : found;
    },
    // Shows an error of the server at its field.
    show(error) {
      const one = inputs.find((input) => error.field && error.field.split(".").pop() === input.name);
      if (!one) return false;
      one.problem.textContent = error.detail;
      one.problem.hidden = false;
      one.input.focus();
      return true;
    },
  };
}
