// A table of which only the visible rows exist. Filter, order and place are in the address.

import { h, replace } from "./dom.js";
import { icon } from "./icons.js";
import { num, plural } from "./format.js";
import { menu } from "./overlay.js";
import { compile, completions } from "./filter.js";
import { empty as emptyState, skeleton, broken as brokenState } from "./states.js";

const NARROW = matchMedia("(max-width: 720px)");
const OVERSCAN = 8;
let ids = 0;

export function table(options) {
  const { ctx, columns, caption, key, empty, onOpen, actions = [], selectable = actions.length > 0, filterKeys = {}, search, noun = "row", rowClass, filterName = "filter", cards = true, toolbar = [], onFilter } = options;
  const searchOf = search ?? ((row) => (row.$text ??= JSON.stringify(row).toLowerCase()));
  const id = `table-${(ids += 1)}`;
  const state = { all: null, rows: [], at: 0, top: 0, selected: new Set(), sort: null, total: null, more: false, error: null, shown: new Map(), openKey: null };
  let filter = ctx?.route.query[filterName] ?? "";
  let isCards = cards && NARROW.matches;

  const scroll = h("div.scroll", { role: "grid", tabindex: "0", id, aria: { label: caption, rowcount: 0, multiselectable: selectable || undefined } });
  const head = h("div.thead", { role: "row", aria: { rowindex: 1 } });
  const body = h("div.tbody", { role: "rowgroup" });
  const message = h("div.message");
  const foot = h("div.foot", { role: "status", aria: { live: "polite" } });
  const bulk = h("div.bulk", { role: "toolbar", aria: { label: "Actions for the selection" }, hidden: true });
  scroll.append(head, body);
  const box = h("div.vtable", bulk, scroll, message, foot);
  const input = h("input", { type: "search", placeholder: `Filter ${noun}s`, value: filter, spellcheck: "false", autocomplete: "off", role: "combobox", aria: { label: `Filter ${noun}s`, expanded: "false", controls: `${id}-suggest`, autocomplete: "list" } });
  const suggest = h("div.suggest", { role: "listbox", id: `${id}-suggest`, aria: { label: "Completions" }, hidden: true });
  const filterbar = h("div.filterbar", icon("filter"), input, suggest);
  const tools = h("div.toolbar", filterbar, toolbar);
  const el = h("div.stack.tablebox", tools, box);

  const widthOf = (column) => (column.width ? { flex: `${column.grow ? 1 : 0} 0 ${column.width}` } : { flex: "1 1 160px", minWidth: "120px" });
  const visible = () => columns.filter((column) => !(column.hideNarrow && isCards));
  const rowHeight = () => {
    if (isCards) return 20 + 24 + (visible().length - 1) * 22;
    return parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10) || 36;
  };

  function drawHead() {
    box.classList.toggle("cards", isCards);
    box.style.setProperty("--card", `${rowHeight()}px`);
    const cells = visible().map((column) => {
      const isSorted = state.sort?.id === column.id;
      const label = column.sort ? h("button", { type: "button", on: { click: () => sortBy(column) } }, column.label, isSorted ? icon(state.sort.down ? "down" : "up") : null) : column.label;
      return h("div.th", { role: "columnheader", class: column.num ? "num" : "", style: widthOf(column), aria: { sort: isSorted ? (state.sort.down ? "descending" : "ascending") : undefined } }, label || h("span.visually-hidden", column.id));
    });
    const all = selectable ? h("div.th.check", { role: "columnheader" }, checkAll) : null;
    replace(head, all, cells);
  }

  const checkAll = h("input", { type: "checkbox", aria: { label: `Select all ${noun}s shown` }, on: { change: () => selectAll(checkAll.checked) } });

  function sortBy(column) {
    const before = state.sort;
    state.sort = before?.id !== column.id ? { id: column.id, of: column.sort, down: Boolean(column.num) } : before.down === Boolean(column.num) ? { ...before, down: !before.down } : null;
    if (ctx) ctx.setQuery({ order: state.sort ? `${state.sort.down ? "-" : ""}${state.sort.id}` : null });
    apply();
  }

  function readSort() {
    const text = ctx?.route.query.order;
    if (!text) return;
    const column = columns.find((one) => one.id === text.replace(/^-/, "") && one.sort);
    if (column) state.sort = { id: column.id, of: column.sort, down: text.startsWith("-") };
  }

  function apply() {
    drawHead();
    if (state.error) return drawMessage(brokenState(state.error, state.retry));
    if (state.all === null) return drawMessage(skeleton());
    const test = compile(filter, filterKeys, searchOf);
    let rows = filter.trim() ? state.all.filter(test) : state.all;
    if (state.sort) {
      const { of, down } = state.sort;
      rows = rows.map((row, n) => [of(row), n, row]).sort((a, b) => (a[0] === b[0] ? a[1] - b[1] : (a[0] ?? "") > (b[0] ?? "") ? 1 : -1) * (down && a[0] !== b[0] ? -1 : 1)).map((one) => one[2]);
    }
    const current = state.rows[state.at] && key(state.rows[state.at]);
    state.rows = rows;
    const at = current === undefined ? -1 : rows.findIndex((row) => key(row) === current);
    state.at = at >= 0 ? at : Math.min(state.at, Math.max(0, rows.length - 1));
    if (state.selected.size) {
      const known = new Set(state.all.map(key));
      for (const one of state.selected) if (!known.has(one)) state.selected.delete(one);
    }
    if (!rows.length) {
      const what = state.all.length ? emptyState({ small: true, title: `No ${noun} fits the filter`, text: `${plural(state.all.length, noun)} without it.`, button: { label: "Clear filter", run: () => setFilter("") } }) : emptyState(empty ?? { title: `No ${noun}s` });
      drawMessage(what);
      scroll.setAttribute("aria-rowcount", "1");
      return drawBulk();
    } else {
      message.replaceChildren();
      scroll.hidden = false;
    }
    scroll.setAttribute("aria-rowcount", String(rows.length + 1));
    body.style.height = `${rows.length * rowHeight()}px`;
    drawRows();
    drawFoot();
    drawBulk();
  }

  function drawMessage(node) {
    replace(message, node);
    scroll.hidden = true;
    foot.textContent = "";
    state.shown.clear();
    body.replaceChildren();
  }

  function drawFoot() {
    const shown = state.rows.length === state.all.length ? plural(state.rows.length, noun) : `${num(state.rows.length)} of ${plural(state.all.length, noun)}`;
    const total = state.total !== null && state.total > state.all.length ? ` loaded of ${num(state.total)}` : state.more ? " loaded, there are more" : "";
    const text = shown + total;
    if (foot.textContent !== text) foot.textContent = text;
  }

  function drawRows() {
    if (scroll.hidden) return;
    const height = rowHeight();
    const headHeight = isCards ? 0 : 32;
    const first = Math.max(0, Math.floor((scroll.scrollTop - headHeight) / height) - OVERSCAN);
    const last = Math.min(state.rows.length, Math.ceil((scroll.scrollTop + (scroll.clientHeight || 600)) / height) + OVERSCAN);
    const wanted = new Map();
    for (let n = first; n < last; n += 1) wanted.set(key(state.rows[n]), n);
    for (const [k, row] of state.shown) {
      if (!wanted.has(k)) {
        row.el.remove();
        state.shown.delete(k);
      }
    }
    for (const [k, n] of wanted) {
      const data = state.rows[n];
      let row = state.shown.get(k);
      if (!row || row.data !== data || row.cards !== isCards) {
        const made = makeRow(data, k);
        if (row) row.el.replaceWith(made);
        else body.append(made);
        row = { el: made, data, cards: isCards };
        state.shown.set(k, row);
      }
      row.el.style.top = `${n * height}px`;
      row.el.id = `${id}-${n}`;
      row.el.$n = n;
      row.el.setAttribute("aria-rowindex", String(n + 2));
      row.el.classList.toggle("at", n === state.at);
      row.el.classList.toggle("open", k === state.openKey);
      if (selectable) {
        row.el.setAttribute("aria-selected", String(state.selected.has(k)));
        row.el.firstChild.firstChild.checked = state.selected.has(k);
      }
    }
    if (state.at >= first && state.at < last) scroll.setAttribute("aria-activedescendant", `${id}-${state.at}`);
    else scroll.removeAttribute("aria-activedescendant");
  }

  function makeRow(row, k) {
    const cells = visible().map((column, n) => {
      const content = column.cell(row);
      const inner = typeof content === "string" ? h("span.cut", { title: content.length > 24 ? content : undefined }, content) : content;
      return h("div.td", { role: "gridcell", class: `${column.num && !isCards ? "num" : ""} ${n === 0 ? "lead" : ""}`, style: widthOf(column), data: { label: column.label } }, inner);
    });
    const check = selectable ? h("div.td.check", { role: "gridcell" }, h("input", { type: "checkbox", tabindex: "-1", aria: { label: `Select ${noun} ${k}` }, on: { change: (event) => select(k, event.target.checked), click: (event) => event.stopPropagation() } })) : null;
    const el = h("div.tr", { role: "row", class: rowClass?.(row) ?? "", on: {
      click: (event) => {
        if (event.target.closest("a, button, input")) return;
        state.at = el.$n;
        drawRows();
        onOpen?.(row);
      },
      contextmenu: (event) => {
        if (!actions.length) return;
        event.preventDefault();
        state.at = el.$n;
        drawRows();
        actionMenu({ left: event.clientX, bottom: event.clientY, top: event.clientY });
      },
    } }, check, cells);
    if (onOpen) el.style.cursor = "pointer";
    return el;
  }

  function select(k, on) {
    if (on) state.selected.add(k);
    else state.selected.delete(k);
    drawRows();
    drawBulk();
  }

  function selectAll(on) {
    state.selected = new Set(on ? state.rows.map(key) : []);
    drawRows();
    drawBulk();
  }

  const selectedRows = () => state.all?.filter((row) => state.selected.has(key(row))) ?? [];

  function drawBulk() {
    if (!selectable) return;
    const n = state.selected.size;
    checkAll.checked = n > 0 && n === state.rows.length;
    checkAll.indeterminate = n > 0 && n < state.rows.length;
    bulk.hidden = n === 0;
    if (!n) return replace(bulk);
    const rows = selectedRows();
    const buttons = actions.filter((action) => !action.when || action.when(rows)).map((action) =>
      h("button.btn.small", { type: "button", class: action.danger ? "danger" : "", on: { click: () => action.run(rows) } }, action.icon ? icon(action.icon) : null, action.label(n)));
    const all = n < state.rows.length ? h("button.btn.small.quiet", { type: "button", on: { click: () => selectAll(true) } }, `Select all ${num(state.rows.length)} that match`) : null;
    replace(bulk, h("span.strong", `${num(n)} selected`), buttons, all, h("button.btn.small.quiet", { type: "button", on: { click: () => selectAll(false) } }, "Clear"));
  }

  function actionMenu(anchor) {
    const rows = state.selected.size ? selectedRows() : state.rows[state.at] ? [state.rows[state.at]] : [];
    if (!rows.length) return;
    const items = actions.filter((action) => !action.when || action.when(rows)).map((action) => ({ label: action.label(rows.length), icon: action.icon, danger: action.danger, run: () => action.run(rows) }));
    if (items.length) menu(anchor ?? state.shown.get(key(state.rows[state.at]))?.el ?? scroll, items);
  }

  function move(to) {
    if (!state.rows.length) return;
    state.at = Math.max(0, Math.min(state.rows.length - 1, to));
    const height = rowHeight();
    const headHeight = isCards ? 0 : 32;
    const top = state.at * height;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top + height + headHeight > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + height + headHeight - scroll.clientHeight;
    drawRows();
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("dialog, .menu, .drawer, .palette")) return;
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select");
    if (typing) return;
    const inTable = scroll.contains(event.target) || event.target === document.body || event.target.closest("main");
    if (!inTable || !el.isConnected || el.offsetParent === null) return;
    const page = Math.max(1, Math.floor(scroll.clientHeight / rowHeight()) - 2);
    const isIn = event.target === scroll;
    const done = () => event.preventDefault();
    if (event.key === "j" || (isIn && event.key === "ArrowDown")) (move(state.at + 1), done());
    else if (event.key === "k" || (isIn && event.key === "ArrowUp")) (move(state.at - 1), done());
    else if (isIn && event.key === "PageDown") (move(state.at + page), done());
    else if (isIn && event.key === "PageUp") (move(state.at - page), done());
    else if (isIn && event.key === "Home") (move(0), done());
    else if (isIn && event.key === "End") (move(state.rows.length - 1), done());
    else if (event.key === "Enter" && (isIn || event.target === document.body) && state.rows[state.at]) (onOpen?.(state.rows[state.at]), done());
    else if (event.key === "x" && selectable && state.rows[state.at]) {
      const k = key(state.rows[state.at]);
      select(k, !state.selected.has(k));
      done();
    } else if (event.key === "." && actions.length) (actionMenu(), done());
    else if (event.key === "/") (input.focus(), input.select(), done());
    else if (event.key === "Escape" && state.selected.size) (selectAll(false), done());
  }
  document.addEventListener("keydown", keys);

  let lateFilter = 0;
  function setFilter(text) {
    filter = text;
    if (input.value !== text) input.value = text;
    ctx?.setQuery({ [filterName]: text || null });
    onFilter?.(text);
    scroll.scrollTop = 0;
    state.at = 0;
    apply();
  }
  let choice = -1;
  function drawSuggest() {
    const list = document.activeElement === input ? completions(input.value, filterKeys) : [];
    suggest.hidden = !list.length;
    input.setAttribute("aria-expanded", String(list.length > 0));
    choice = Math.min(choice, list.length - 1);
    replace(suggest, list.map((one, n) => h("div", { role: "option", id: `${id}-option-${n}`, aria: { selected: String(n === choice) }, on: { pointerdown: (event) => (event.preventDefault(), take(one)) } }, h("span.mono", one.shown), h("span.dim", one.hint))));
    if (choice >= 0) input.setAttribute("aria-activedescendant", `${id}-option-${choice}`);
    else input.removeAttribute("aria-activedescendant");
    suggest.$list = list;
  }
  function take(one) {
    input.value = one.text;
    choice = -1;
    setFilter(one.text.trimEnd() === one.text ? one.text : one.text.trimEnd());
    input.value = one.text;
    drawSuggest();
  }
  input.addEventListener("input", () => {
    choice = -1;
    drawSuggest();
    clearTimeout(lateFilter);
    lateFilter = setTimeout(() => {
      const text = input.value;
      setFilter(text);
    }, 60);
  });
  input.addEventListener("focus", drawSuggest);
  input.addEventListener("blur", () => (suggest.hidden = true));
  input.addEventListener("keydown", (event) => {
    const list = suggest.hidden ? [] : suggest.$list ?? [];
    if (event.key === "ArrowDown" && list.length) (choice = (choice + 1) % list.length), drawSuggest();
    else if (event.key === "ArrowUp" && list.length) (choice = (choice + list.length) % list.length === 0 ? list.length - 1 : choice - 1), drawSuggest();
    else if ((event.key === "Enter" || event.key === "Tab") && choice >= 0) take(list[choice]);
    else if (event.key === "Enter" || (event.key === "Escape" && suggest.hidden)) scroll.focus();
    else if (event.key === "Escape") suggest.hidden = true;
    else return;
    event.preventDefault();
    event.stopPropagation();
  });

  let frame = 0;
  const onScroll = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      drawRows();
    });
  };
  scroll.addEventListener("scroll", onScroll, { passive: true });
  const observer = new ResizeObserver(() => drawRows());
  observer.observe(scroll);
  const narrow = () => {
    isCards = cards && NARROW.matches;
    state.shown.forEach((row) => row.el.remove());
    state.shown.clear();
    apply();
  };
  NARROW.addEventListener("change", narrow);
  addEventListener("annie:density", narrow);
  const unroute = ctx?.route.subscribe?.(() => {
    const text = ctx.route.query[filterName] ?? "";
    if (text !== filter && document.activeElement !== input) {
      filter = text;
      input.value = text;
      apply();
    }
  });

  const handle = {
    el, tools,
    // null shows that the rows are being loaded.
    setRows(rows, { total = null, more = false } = {}) {
      Object.assign(state, { all: rows, total, more, error: null });
      apply();
    },
    setError(error, retry) {
      Object.assign(state, { error, retry });
      apply();
    },
    get rows() {
      return state.rows;
    },
    get all() {
      return state.all ?? [];
    },
    get filter() {
      return filter;
    },
    setFilter,
    selected: selectedRows,
    clearSelection: () => selectAll(false),
    open(k) {
      const isNew = state.openKey !== k;
      state.openKey = k;
      const n = k === null || k === undefined ? -1 : state.rows.findIndex((row) => key(row) === k);
      if (n >= 0 && isNew) move(n);
      else drawRows();
    },
    focus: () => scroll.focus(),
    redraw() {
      state.shown.forEach((row) => row.el.remove());
      state.shown.clear();
      apply();
    },
    destroy() {
      document.removeEventListener("keydown", keys);
      NARROW.removeEventListener("change", narrow);
      removeEventListener("annie:density", narrow);
      observer.disconnect();
      unroute?.();
    },
  };
  ctx?.signal?.addEventListener("abort", handle.destroy, { once: true });
  readSort();
  apply();
  return handle;
}
