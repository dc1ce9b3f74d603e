// The place in time: how many events there were when, failures as ticks, and a handle.

import { h, svg, replace } from "./dom.js";
import { icon } from "./icons.js";
import { clockTime, num } from "./format.js";
import { isFailure } from "./story.js";

const BINS = 120;

export function scrubber({ onSeek, onLive, onTime }) {
  let events = [], at = 0, first = 0, last = 0, speed = 1, timer = 0, isLive = true;
  const strip = svg("svg", { viewBox: `0 0 ${BINS} 24`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const handle = h("div.scrubhandle");
  const track = h("div.scrubtrack", { role: "slider", tabindex: "0", aria: { label: "Place in the log", valuemin: 0, valuemax: 0, valuenow: 0 } }, strip, handle);
  const where = h("span.tabular.small.scrubwhere");
  const button = (name, label, run) => h("button.iconbtn", { type: "button", title: label, aria: { label }, on: { click: run } }, icon(name));
  const playButton = button("play", "Play", () => (timer ? stop() : play()));
  const speedButton = h("button.btn.small.speed", { type: "button", title: "Speed", aria: { label: "Speed of playing" }, on: { click: () => {
    speed = { 1: 4, 4: 16, 16: 1 }[speed];
    speedButton.textContent = `×${speed}`;
  } } }, "×1");
  const liveButton = h("button.btn.small", { type: "button", on: { click: () => (stop(), (isLive = true), onLive(), draw()) } }, "Live");
  const el = h("div.scrubber.panel", { role: "group", aria: { label: "Time travel" } }, button("prev", "Previous event", () => step(-1)), playButton, button("next", "Next event", () => step(1)), speedButton,
    h("button.btn.small", { type: "button", on: { click: nextFailure } }, icon("bad"), "Next failure"), onTime ? h("button.btn.small", { type: "button", on: { click: () => (stop(), onTime()) } }, icon("clock"), "Go to time") : null, track, where, liveButton);

  const eventAt = (seq) => events.find((event) => event.seq >= seq) ?? events.at(-1);
  function seek(seq) {
    isLive = false;
    at = Math.max(first, Math.min(last, seq));
    onSeek(at);
    draw();
  }
  const step = (n) => seek(at + n);
  function nextFailure() {
    const found = events.find((event) => event.seq > at && isFailure(event)) ?? events.find(isFailure);
    if (found) seek(found.seq);
  }
  function play() {
    if (at >= last) at = first;
    replace(playButton, icon("pause"));
    playButton.setAttribute("aria-label", "Pause");
    const next = () => {
      const now = eventAt(at), after = events.find((event) => event.seq > at);
      if (!after) return stop();
      const wait = Math.min(1_500, Math.max(40, new Date(after.at) - new Date(now.at))) / speed;
      timer = setTimeout(() => {
        seek(after.seq);
        next();
      }, wait);
    };
    next();
  }
  function stop() {
    clearTimeout(timer);
    timer = 0;
    replace(playButton, icon("play"));
    playButton.setAttribute("aria-label", "Play");
  }
  track.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 50, PageDown: -50 }[event.key];
    if (by) step(by);
    else if (event.key === "Home") seek(first);
    else if (event.key === "End") seek(last);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const drag = (event) => {
    const box = track.getBoundingClientRect();
    seek(Math.round(first + ((event.clientX - box.left) / box.width) * (last - first)));
  };
  track.addEventListener("pointerdown", (event) => {
    stop();
    track.setPointerCapture(event.pointerId);
    drag(event);
    track.onpointermove = drag;
  });
  track.addEventListener("pointerup", () => (track.onpointermove = null));

  function draw() {
    const share = last > first ? (at - first) / (last - first) : 1;
    handle.style.left = `${share * 100}%`;
    const event = eventAt(at);
    track.setAttribute("aria-valuemin", String(first));
    track.setAttribute("aria-valuemax", String(last));
    track.setAttribute("aria-valuenow", String(at));
    track.setAttribute("aria-valuetext", event ? `Event ${at} of ${last}, ${event.kind}, ${clockTime(event.at)}` : "No events");
    replace(where, `${num(at)} / ${num(last)}`, event ? h("span.dim", ` ${clockTime(event.at)}`) : null);
    liveButton.classList.toggle("primary", isLive);
    liveButton.setAttribute("aria-pressed", String(isLive));
  }

  function drawStrip() {
    const bins = new Array(BINS).fill(0);
    const bad = new Set();
    const span = Math.max(1, last - first);
    for (const event of events) {
      const bin = Math.min(BINS - 1, Math.floor(((event.seq - first) / span) * BINS));
      bins[bin] += weight(event);
      if (isFailure(event)) bad.add(bin);
    }
    const most = Math.max(1, ...bins);
    replace(strip, bins.map((n, x) => (n ? svg("rect.bin", { x, y: 24 - Math.max(2, (n / most) * 20), width: 0.8, height: Math.max(2, (n / most) * 20) }) : null)), [...bad].map((x) => svg("rect.badbin", { x, y: 0, width: 1, height: 24 })));
  }

  return {
    el, stop, seek,
    set(list, seq, live) {
      events = list;
      first = list[0]?.seq ?? 0;
      last = list.at(-1)?.seq ?? 0;
      isLive = live;
      at = live ? last : seq;
      drawStrip();
      draw();
    },
  };
}

// How much happened: a reply with calls counts more than a note.
const weight = (event) => (event.kind === "model_replied" ? 2 : event.kind === "received" ? 3 : 1);
