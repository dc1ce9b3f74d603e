// Usage: what the model calls cost, by day, user, conversation, skill and backend, and against which cap.

import { bars } from "../lib/chart.js";
import { h, replace } from "../lib/dom.js";
import { money, num, percent, shortId } from "../lib/format.js";
import { table } from "../lib/table.js";
import { broken } from "../lib/states.js";
import { tabs } from "./listing.js";

const SPANS = [["1", "Today"], ["7", "7 days"], ["30", "30 days"], ["", "All"]];
const BARS_MAX = 14;
const day = (ago) => new Date(Date.now() - ago * 86400e3).toISOString().slice(0, 10);

export function mount(root, ctx) {
  ctx.title("Usage");
  const query = () => ctx.route.query;
  const by = tabs(ctx, "by", [["day", "By day"], ["backend", "By backend"], ["skill", "By skill"], ["conversation", "By conversation"], ["user", "By user"]], "Sum by", () => reload());
  const span = h("select", { aria: { label: "Time" } }, ...SPANS.map(([days, label]) => h("option", { value: days }, label)));
  span.value = query().days ?? "30";
  const all = h("input", { type: "checkbox" });
  all.checked = query().all === "1";
  const figures = h("div.figures", {});
  const chart = h("div.panel.chart", {});
  const notice = h("div.list-notice", { aria: { live: "polite" } });

  const cell = (of, show = num) => (row) => show(of(row));
  const name = (row) => {
    const kind = by.now();
    if (!row.key) return h("span.dim", {}, kind === "skill" ? "no skill" : "–");
    return kind === "conversation" ? shortId(row.key, `#/conversations/${row.key}`) : row.key;
  };
  const share = (row) => (row.input_tokens ? row.cached_tokens / row.input_tokens : 0);
  const list = table({
    ctx,
    caption: "Usage",
    noun: "row",
    key: (row) => row.key,
    search: (row) => row.key.toLowerCase(),
    columns: [
      { id: "key", label: "Of", grow: true, width: "12rem", cell: name, sort: (row) => row.key },
      { id: "rounds", label: "Rounds", num: true, width: "6rem", cell: cell((row) => row.rounds), sort: (row) => row.rounds },
      { id: "in", label: "Tokens in", num: true, width: "7rem", cell: cell((row) => row.input_tokens), sort: (row) => row.input_tokens },
      { id: "cached", label: "Cached", num: true, width: "6rem", hideNarrow: true, cell: cell(share, percent), sort: share },
      { id: "out", label: "Tokens out", num: true, width: "7rem", cell: cell((row) => row.output_tokens), sort: (row) => row.output_tokens },
      { id: "reasoning", label: "Reasoning", num: true, width: "7rem", hideNarrow: true, cell: cell((row) => row.reasoning_tokens), sort: (row) => row.reasoning_tokens },
      { id: "cost", label: "Cost", num: true, width: "6rem", cell: cell((row) => row.cost_usd, money), sort: (row) => row.cost_usd },
    ],
    empty: { title: "No usage", text: "Each answer of a model is counted here with its tokens and its cost. Backends without prices cost nothing.", command: "annie usage" },
  });

  const figure = (label, value, below) => h("div.panel.figure", {}, h("p.dim", {}, label), h("p.value", {}, value), below ? h("p.dim.small", {}, below) : "");

  async function caps() {
    const found = await ctx.api.get("/settings").catch(() => ({ settings: [] }));
    return found.settings.filter((one) => one.key.startsWith("spend.") && one.key.endsWith("_usd_max") && Number(one.value) > 0);
  }

  const words = (key) => key.replace("spend.", "").replace("_usd_max", "").replaceAll("_", " ");

  async function reload() {
    const days = span.value;
    const wanted = { by: by.now() === "day" ? undefined : by.now(), from: days ? day(Number(days) - 1) : undefined, all: all.checked ? true : undefined, limit: 200 };
    try {
      const [found, limits, today] = await Promise.all([ctx.api.get("/usage", { query: wanted }), caps(), ctx.api.get("/usage", { query: { from: day(0), all: all.checked ? true : undefined } })]);
      const { total } = found;
      replace(notice);
      replace(figures,
        figure("Cost", money(total.cost_usd), `${money(today.total.cost_usd)} today`),
        figure("Rounds", num(total.rounds)),
        figure("Tokens in", num(total.input_tokens), `${percent(share(total))} from the cache`),
        figure("Tokens out", num(total.output_tokens), total.reasoning_tokens ? `${num(total.reasoning_tokens)} of them reasoning` : undefined),
        ...limits.map((one) => figure(`Cap: ${words(one.key)}`, money(Number(one.value)), one.key.includes("day") ? `${percent(today.total.cost_usd / Number(one.value))} used today` : undefined)));
      const isMoney = total.cost_usd > 0;
      const rows = found.usage.slice(0, BARS_MAX);
      const of = (row) => (isMoney ? row.cost_usd : row.input_tokens + row.output_tokens);
      chart.hidden = rows.length === 0;
      const drawn = bars(rows.map((row) => ({ label: row.key || "none", value: of(row) })), { row: 24, format: isMoney ? money : num });
      drawn.setAttribute("preserveAspectRatio", "none");
      drawn.setAttribute("height", String(rows.length * 24));
      replace(chart, h("div.panel-head", {}, h("h2", {}, isMoney ? "Cost" : "Tokens")), h("div.bars", {},
        h("ol", {}, ...rows.map((row) => h("li", {}, h("span.cut", {}, row.key || "–")))),
        drawn,
        h("ol.num", {}, ...rows.map((row) => h("li", {}, isMoney ? money(of(row)) : num(of(row)))))));
      list.setRows(found.usage, { total: found.usage.length, more: found.usage.length >= 200 });
    } catch (error) {
      if (!ctx.signal.aborted) replace(notice, broken(error, reload));
    }
  }

  function changed() {
    ctx.setQuery({ days: span.value === "30" ? null : span.value, all: all.checked ? "1" : null });
    reload();
  }
  span.addEventListener("change", changed);
  all.addEventListener("change", changed);
  root.append(h("div.stack", {}, h("div.toolbar", {}, by.el, span, ctx.can("admin") ? h("label.check", {}, all, " All users") : ""), notice, figures, chart, h("div.list-place", {}, list.el)));
  ctx.refresh(reload, { on: ["status"], everyMs: 15000 });
}
