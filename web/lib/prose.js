// Text of a model or a person as elements: paragraphs, lists, headings, code, emphasis. Anything else stays text; markup in the
// text is shown as it was written.

import { h } from "./dom.js";

export function prose(text) {
  const box = h("div.prose");
  for (const part of split(String(text ?? ""))) box.append(part);
  return box;
}

function* split(text) {
  const fence = /^```([^\n`]*)\n([\s\S]*?)(?:^```[ \t]*$|(?![\s\S]))/gm;
  let at = 0;
  for (const found of text.matchAll(fence)) {
    yield* blocks(text.slice(at, found.index));
    yield h("pre.code", { tabindex: "0", aria: { label: found[1].trim() ? `Code, ${found[1].trim()}` : "Code" } }, found[2].replace(/\n$/, ""));
    at = found.index + found[0].length;
  }
  yield* blocks(text.slice(at));
}

function* blocks(text) {
  for (const block of text.split(/\n{2,}/)) {
    const lines = block.split("\n").filter((line, n, all) => line.trim() || (n > 0 && n < all.length - 1));
    if (!lines.length) continue;
    let run = [];
    let kind = "";
    const flush = () => {
      if (!run.length) return null;
      const done = kind === "ul" || kind === "ol" ? h(kind, run.map((line) => h("li", inline(line)))) : h("p", run.flatMap((line, n) => (n ? [h("br"), ...inline(line)] : inline(line))));
      run = [];
      return done;
    };
    for (const line of lines) {
      const bullet = /^\s*[-*•]\s+(.*)$/.exec(line);
      const number = /^\s*\d+[.)]\s+(.*)$/.exec(line);
      const heading = /^(#{1,4})\s+(.*)$/.exec(line);
      const next = bullet ? "ul" : number ? "ol" : "p";
      if (heading || next !== kind) {
        const done = flush();
        if (done) yield done;
        kind = next;
      }
      if (heading) {
        yield h("h3", inline(heading[2]));
        kind = "";
      } else run.push(bullet?.[1] ?? number?.[1] ?? line);
    }
    const done = flush();
    if (done) yield done;
  }
}

function inline(text) {
  const parts = [];
  const mark = /(`[^`\n]+`)|(\*\*[^*\n]+\*\*)|(https?:\/\/[^\s<>"')\]]+)/g;
  let at = 0;
  for (const found of text.matchAll(mark)) {
    if (found.index > at) parts.push(text.slice(at, found.index));
    const [whole, code, bold, link] = found;
    if (code) parts.push(h("code", code.slice(1, -1)));
    else if (bold) parts.push(h("strong", bold.slice(2, -2)));
    else parts.push(h("a", { href: link, rel: "noopener noreferrer nofollow", target: "_blank" }, link));
    at = found.index + whole.length;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}
