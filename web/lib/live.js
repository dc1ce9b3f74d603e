// One stream for everything that is live. Pages subscribe to topics; the stream is opened again when the topics change, and
// resumes stored topics without a gap. It is closed while the page is hidden or paused.

import { headers, problemOf, queryText } from "./api.js";

const RETRY_MS = [500, 1_000, 2_000, 4_000, 8_000];
// The server writes at least every 15 s.
const SILENCE_MS = 35_000;

export function live({ onUnauthenticated }) {
  const topics = new Map(); // name -> { fns: Set, after }
  const watchers = new Set();
  const state = { phase: "connecting", lastAt: 0, hello: null, error: null };
  const cache = new Map(); // the last state of each topic that shows one
  let options = {};
  let abort = null;
  let opened = "";
  let lastId = "";
  let attempts = 0;
  let timer = 0;
  let silence = 0;
  let isPaused = false;

  const show = (phase, error = null) => {
    state.phase = phase;
    state.error = error;
    for (const fn of watchers) fn(state);
  };

  const wanted = () => {
    const list = [];
    for (const [name, topic] of topics) {
      const after = topic.after === undefined ? "" : `@${topic.after}`;
      list.push(name.startsWith("conversation:") || name === "notifications" ? `${name}${after}` : name);
    }
    return list.sort().join(",");
  };
  const signature = () => `${[...topics.keys()].sort().join(",")}?${JSON.stringify(options)}`;

  function close() {
    clearTimeout(timer);
    clearTimeout(silence);
    timer = 0;
    abort?.abort();
    abort = null;
    opened = "";
  }

  function sync() {
    clearTimeout(timer);
    timer = 0;
    if (isPaused || document.hidden) {
      if (abort) close();
      show(isPaused ? "paused" : "hidden");
      return;
    }
    if (!topics.size) return close();
    if (signature() !== opened) {
      close();
      run();
    }
  }

  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(sync, 20);
  };

  function dispatch(event, id, text) {
    state.lastAt = Date.now();
    if (id) lastId = id;
    let data;
    try {
      data = JSON.parse(text);
    } catch {
      return;
    }
    if (event === "hello") {
      state.hello = data;
      return show("live");
    }
    if (event === "error") {
      state.error = data;
      return;
    }
    const name = ["event", "draft", "reset"].includes(event) ? `conversation:${data.conversation_id}` : event === "notification" ? "notifications" : event;
    const topic = topics.get(name);
    if (!topic) return;
    if (event === "event") topic.after = data.seq;
    if (event === "reset") topic.after = data.last_seq;
    if (event === "notification") topic.after = data.id;
    if (["status", "queue", "overview"].includes(event)) cache.set(name, data);
    for (const fn of [...topic.fns]) {
      try {
        fn({ event, id, data });
      } catch (error) {
        console.error(error);
      }
    }
  }

  function listenForSilence(controller) {
    clearTimeout(silence);
    silence = setTimeout(() => controller.abort("silent"), SILENCE_MS);
  }

  async function run() {
    const controller = new AbortController();
    abort = controller;
    opened = signature();
    if (state.phase !== "live") show("connecting");
    try {
      const more = lastId ? { "last-event-id": lastId } : {};
      const url = `/api/v1/live${queryText({ topics: wanted(), ...options })}`;
      const response = await fetch(url, { signal: controller.signal, headers: headers({ accept: "text/event-stream", ...more }), cache: "no-store" });
      if (!response.ok) {
        const error = await problemOf(response);
        if (response.status === 401) {
          close();
          return onUnauthenticated(error);
        }
        if (response.status === 403 || response.status === 404) {
          attempts = RETRY_MS.length;
        }
        if (response.status === 400) lastId = "";
        throw error;
      }
      attempts = 0;
      listenForSilence(controller);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "", event = "", id = "", data = [];
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        listenForSilence(controller);
        state.lastAt = Date.now();
        rest += value;
        let at;
        while ((at = rest.indexOf("\n")) >= 0) {
          const line = rest.slice(0, at).replace(/\r$/, "");
          rest = rest.slice(at + 1);
          if (line === "") {
            if (data.length) dispatch(event || "message", id, data.join("\n"));
            (event = ""), (id = ""), (data = []);
          } else if (line.startsWith("event:")) event = line.slice(6).trim();
          else if (line.startsWith("id:")) id = line.slice(3).trim();
          else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
        }
        if (controller !== abort) return;
      }
      if (controller !== abort) return;
      again(null);
    } catch (error) {
      if (controller !== abort) return;
      again(error);
    }
  }

  function again(error) {
    clearTimeout(silence);
    abort = null;
    opened = "";
    const wait = RETRY_MS[Math.min(attempts, RETRY_MS.length - 1)];
    attempts += 1;
    show(attempts > 1 ? "broken" : "connecting", error);
    clearTimeout(timer);
    timer = setTimeout(sync, wait);
  }

  document.addEventListener("visibilitychange", sync);
  addEventListener("online", sync);

  return {
    state,
    on(name, fn, after) {
      let topic = topics.get(name);
      if (!topic) topics.set(name, (topic = { fns: new Set(), after }));
      topic.fns.add(fn);
      if (cache.has(name)) {
        const data = cache.get(name);
        queueMicrotask(() => topic.fns.has(fn) && fn({ event: name, id: "", data }));
      }
      soon();
      return () => {
        topic.fns.delete(fn);
        if (!topic.fns.size && topics.get(name) === topic) {
          topics.delete(name);
          soon();
        }
      };
    },
    // Which part of the tree is sent: { under, search, busy, actors_max }.
    filterTree(next) {
      options = next ?? {};
      soon();
    },
    onState(fn) {
      watchers.add(fn);
      fn(state);
      return () => watchers.delete(fn);
    },
    last: (name) => cache.get(name),
    get isPaused() {
      return isPaused;
    },
    pause(value) {
      isPaused = value;
      sync();
    },
    reset() {
      close();
      lastId = "";
      attempts = 0;
      cache.clear();
      soon();
    },
    stop: close,
  };
}
