// The filter language of lists: words, `key:value`, `key:>1h`, and `-key:value` for "not".

const UNITS = { ms: 0.001, s: 1, m: 60, min: 60, h: 3_600, d: 86_400 };

export function seconds(text) {
  const found = /^(\d+(?:\.\d+)?)(ms|s|min|m|h|d)?$/.exec(text);
  return found ? Number(found[1]) * (UNITS[found[2] ?? "s"] ?? 1) : null;
}

// The terms of a text. A value with spaces is quoted: why:"voice gate".
export function terms(text) {
  const found = [];
  for (const [, not, key, quoted, bare, word, words] of text.matchAll(/(-?)(?:([a-z_]+):(?:"([^"]*)"|(\S*)))|(?:"([^"]+)"|(\S+))/gi)) {
    if (key) found.push({ key: key.toLowerCase(), value: quoted ?? bare ?? "", not: not === "-" });
    else found.push({ key: "", value: (word ?? words ?? "").toLowerCase(), not: false });
  }
  return found;
}

// A function that says whether a row is shown. `keys`: { name: { of(row), kind: "text" | "number" | "duration" } }.
export function compile(text, keys, search) {
  const wanted = terms(text ?? "").filter((term) => term.value !== "");
  if (!wanted.length) return () => true;
  const tests = wanted.map((term) => {
    const known = term.key && keys?.[term.key];
    if (!known) {
      const word = (term.key ? `${term.key}:${term.value}` : term.value).toLowerCase();
      return (row) => search(row).includes(word);
    }
    const compare = /^(>=|<=|>|<)(.+)$/.exec(term.value);
    const number = known.kind === "duration" ? seconds : (v) => (v === "" || Number.isNaN(Number(v)) ? null : Number(v));
    let test;
    if (compare || known.kind === "number" || known.kind === "duration") {
      const limit = number(compare ? compare[2] : term.value);
      const sign = compare?.[1] ?? "=";
      test = (row) => {
        const value = known.of(row);
        if (limit === null || value === null || value === undefined) return false;
        return sign === ">" ? value > limit : sign === "<" ? value < limit : sign === ">=" ? value >= limit : sign === "<=" ? value <= limit : value === limit;
      };
    } else {
      const value = term.value.toLowerCase();
      test = (row) => {
        const found = known.of(row);
        const list = Array.isArray(found) ? found : [found];
        return list.some((one) => String(one ?? "").toLowerCase().includes(value));
      };
    }
    return term.not ? (row) => !test(row) : test;
  });
  return (row) => tests.every((test) => test(row));
}

// What could be typed next.
export function completions(text, keys) {
  const last = /(\S*)$/.exec(text)[1];
  const at = last.replace(/^-/, "").indexOf(":");
  const start = text.slice(0, text.length - last.length);
  const minus = last.startsWith("-") ? "-" : "";
  const bare = last.replace(/^-/, "");
  if (at < 0) {
    return Object.entries(keys ?? {}).filter(([name]) => name.startsWith(bare.toLowerCase()))
      .map(([name, known]) => ({ text: `${start}${minus}${name}:`, shown: `${name}:`, hint: known.label ?? "", more: true }));
  }
  const name = bare.slice(0, at).toLowerCase();
  const known = keys?.[name];
  if (!known) return [];
  const given = bare.slice(at + 1).toLowerCase();
  const values = typeof known.values === "function" ? known.values() : known.values ?? (known.kind === "duration" ? [">1min", ">10min", ">1h", ">1d"] : []);
  return [...new Set(values)].filter((v) => v !== null && v !== undefined && String(v).toLowerCase().startsWith(given) && String(v).toLowerCase() !== given).slice(0, 30)
    .map((v) => {
      const quoted = /\s/.test(String(v)) ? `"${v}"` : v;
      return { text: `${start}${minus}${name}:${quoted} `, shown: `${name}:${v}`, hint: "" };
    });
}
