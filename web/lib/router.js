// The address holds everything: #/page/rest?query.

export function parse(hash) {
  const text = hash.replace(/^#\/?/, "");
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  const [page = "", ...rest] = path.split("/").filter(Boolean).map(safeDecode);
  return { page, rest, query: Object.fromEntries(new URLSearchParams(at < 0 ? "" : text.slice(at + 1))) };
}

function safeDecode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function address(page, rest = [], query = {}) {
  const path = [page, ...rest].map(encodeURIComponent).join("/");
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== null && value !== undefined && value !== "") params.set(name, value);
  const text = params.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function router() {
  const listeners = new Set();
  let now = parse(location.hash);
  const change = () => {
    now = parse(location.hash);
    for (const fn of [...listeners]) fn(now);
  };
  addEventListener("hashchange", change);
  return {
    get now() {
      return now;
    },
    go(to) {
      if (location.hash === to) change();
      else location.hash = to;
    },
    setQuery(more) {
      const query = { ...now.query, ...more };
      const to = address(now.page, now.rest, query);
      if (to === location.hash) return;
      history.replaceState(null, "", to);
      change();
    },
    subscribe(fn) {
      listeners.add(fn);
      return () => listeners.delete(fn);
    },
  };
}
