#!/usr/bin/env python3
"""Thirty everyday requests to Annie with a real language model, scored by the stored data afterwards.

    llama-server -m model.gguf --jinja -c 8192 -t 2 --port 18080 --temp 0
    scripts/real_model.py --program target/release/annie --model-url http://127.0.0.1:18080/v1 --model NAME \
        [--mode single_loop] [--toml FILE] [--only 3,7] [--out DIR]

Each request runs in its own conversation with its own `annie serve`, on a copy of one data folder that the offline planner
filled, so that no request sees the effects of another. A request is right if the to-dos, memories and notes match it, or if
the answer contains the requested information. Two problems are counted separately: raw markup in an answer (calls, fences,
tags, thinking) and false claims (the answer claims a change, and nothing has changed).

Prints a table, and writes `result.json` with every answer, model reply and skill run to the folder of --out. Exits with 1 if
there is raw markup or a false claim. Needs only Python's standard library.
"""

import datetime
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from real_common import State, arguments, configuration, has, judged, marks, prepared, trail, weekday

SEEDS = [
    "Create a task: Send the parcel, due friday",
    "Create a task: Review PR 42",
    "Create a task: Buy milk",
    "Create a task: Buy bread",
    "Create a task: Pay the rent",
    "Remember that Bob prefers email over phone calls",
    "Remember that the spare key is with Anna next door",
    'Create a note called groceries with "- milk and eggs"',
    'Create a note called plans with "The boat trip is in June"',
]


def made(after, before, *words):
    """The new to-dos with these words."""
    return [n for n in after.todo(*words) if n not in before.todos]


def due(state, numbers, day):
    return bool(numbers) and (state.todos[numbers[0]][3] or "").startswith(day.isoformat())


def cases():
    """(request, whether it requests a change, check(before, after, answer))."""
    today = datetime.date.today()
    thursday, tomorrow = weekday(3, today), today + datetime.timedelta(days=1)
    monday = today + datetime.timedelta(days=7 - today.weekday())
    unchanged = lambda words: lambda b, a, s: b.same(a) and has(s, *words)
    status = lambda n, want: lambda b, a, s: n in a.todos and a.todos[n][1] == want and len(a.todos) == len(b.todos)
    high = 2
    return [
        ("Create a task to buy stamps", 1, lambda b, a, s: len(made(a, b, "stamps")) == 1),
        ("Remind me to see the dentist on Thursday", 1, lambda b, a, s: due(a, made(a, b, "dentist"), thursday)),
        ("Add a high priority task: finish the tax return by tomorrow", 1,
         lambda b, a, s: due(a, made(a, b, "tax"), tomorrow) and a.todos[made(a, b, "tax")[0]][2] >= high),
        ("Add three tasks: wash the car, water the plants and call Mum", 1,
         lambda b, a, s: all(len(made(a, b, w)) == 1 for w in ("car", "plants", "mum")) and len(a.todos) == len(b.todos) + 3),
        ("I finished reviewing PR 42, mark that task as done", 1, status(2, "done")),
        ("Move the rent task to next Monday", 1, lambda b, a, s: due(a, [5] if 5 in a.todos else [], monday)),
        ("Delete the task about the parcel", 1, lambda b, a, s: 1 not in a.todos and len(a.todos) == len(b.todos) - 1),
        ("Set the milk task to high priority", 1, lambda b, a, s: a.todos.get(3, (0, 0, -1))[2] >= high),
        ("Rename the bread task to Buy rye bread", 1, lambda b, a, s: "rye" in a.todos.get(4, ("",))[0].lower()),
        ("What is on my to-do list?", 0, unchanged(["parcel", "milk", "bread", "rent"])),
        ("Which of my tasks are due on Friday?", 0, unchanged(["parcel"])),
        ("Remember that my sister's birthday is on 3 May", 1, lambda b, a, s: a.remembers("sister", "may")),
        ("Please keep in mind that I am allergic to peanuts", 1, lambda b, a, s: a.remembers("peanut")),
        ("How does Bob like to be contacted?", 0, unchanged(["email"])),
        ("Where is the spare key?", 0, unchanged(["anna"])),
        ("Save a note called packing with: passport, charger, socks", 1,
         lambda b, a, s: has(a.note("packing"), "passport", "charger", "socks")),
        ("Add butter to my groceries note", 1, lambda b, a, s: has(a.note("groceries"), "milk", "butter")),
        ("What is in my groceries note?", 0, unchanged(["milk", "eggs"])),
        ("Which of my notes mentions the boat trip?", 0, unchanged(["plans"])),
        ("What time is it?", 0, lambda b, a, s: b.same(a) and says_the_time(s)),
        ("Hi there, how are you?", 0, lambda b, a, s: b.same(a) and len(s) > 5),
        ("Thanks, that was helpful!", 0, lambda b, a, s: b.same(a) and len(s) > 5),
        ("What is the capital of France?", 0, unchanged(["paris"])),
        ("How many minutes does a day have?", 0, unchanged([r"1[.,\s]?440"])),
        ("Write a haiku about autumn rain", 0, lambda b, a, s: b.same(a) and len(s.split()) in range(6, 40)),
        ("Erstelle eine Aufgabe: Fahrrad reparieren", 1, lambda b, a, s: len(made(a, b, "fahrrad")) == 1),
        ("Delete the buying task", 0, lambda b, a, s: b.same(a) and has(s, "milk", "bread")),
        ("Order a pizza for me, please", 0,
         lambda b, a, s: b.todos == a.todos and has(s, r"can't|cannot|can not|unable|no skill|not able|not possible|don't have|do not have")),
        ("Find the task about milk, mark it as done, and then add a task to buy cheese", 1,
         lambda b, a, s: a.todos.get(3, (0, ""))[1] == "done" and len(made(a, b, "cheese")) == 1),
        ("Make a task to meet Carla tomorrow, and remember that Carla likes tea", 1,
         lambda b, a, s: due(a, made(a, b, "carla"), tomorrow) and a.remembers("carla", "tea")),
    ]


def says_the_time(answer):
    now = datetime.datetime.now()
    near = [now + datetime.timedelta(minutes=m) for m in range(-5, 2)]
    spoken = {t.strftime(f) for t in near for f in ("%H:%M", "%I:%M")} | {t.strftime("%I:%M").lstrip("0") for t in near}
    return any(t in answer for t in spoken)


class Server:
    """An `annie serve` on a data folder."""

    def __init__(self, program, folder, toml):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        config = folder / "real_model.toml"
        config.write_text(toml)
        self.log = open(folder / "server.log", "ab")
        argv = [program, "serve", "--data", folder, "--config", config, "--bind", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen(argv, stdout=self.log, stderr=self.log)
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        raise SystemExit(f"{program} did not get ready; see {folder}/server.log")

    def ask(self, text, mode=None, wait_s=300):
        body = {"text": text} | ({"mode": mode} if mode else {})
        request = urllib.request.Request(
            f"{self.url}/api/v1/messages?wait={wait_s}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=wait_s + 30) as response:
            return json.load(response)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def seeded(program, folder, extra):
    """Creates a data folder with the data for the requests, by the offline planner."""
    folder.mkdir()
    with Server(program, folder, extra) as server:
        for seed in SEEDS:
            server.ask(seed)
    state = State(folder)
    want = ["Send the parcel", "Review PR 42", "Buy milk", "Buy bread", "Pay the rent"]
    titles = [title for title, *_ in state.todos.values()]
    if titles != want or len(state.memories) != 2 or not state.note("groceries") or not state.note("plans"):
        raise SystemExit(f"the seeds did not take: {titles}, {state.memories}, {state.notes}")
    return state


def run(options, work):
    toml = configuration(options)
    before = seeded(options.program, work / "seed", 'timezone = "UTC"\n')
    wanted = {int(n) for n in options.only.split(",")} if options.only else None
    results = []
    for n, (request, changes, check) in enumerate(cases(), 1):
        if wanted and n not in wanted:
            continue
        folder = work / f"request-{n}"
        shutil.copytree(work / "seed", folder)
        started = time.monotonic()
        with Server(options.program, folder, toml) as server:
            reply = server.ask(request)
        after, answer = State(folder), reply.get("answer") or ""
        lines = trail(after.events, before.events)
        raw, claim = judged(answer, changes or n in (27, 28), before.same(after))
        row = {
            "n": n, "request": request, "right": bool(check(before, after, answer)) and not raw, "raw": raw,
            "false_claim": claim, "status": reply.get("status"), "seconds": round(time.monotonic() - started, 1),
            "rounds": sum("said" in line for line in lines), "skills": [line["ran"] for line in lines if "ran" in line],
            "answer": answer, "trail": lines,
        }
        results.append(row)
        print(f"{n:2} {'ok ' if row['right'] else '-  '}{marks(raw, claim):2} {row['seconds']:6.1f} s {row['rounds']:2} rounds  "
              f"{request[:44]:44}  {' '.join(answer.split())[:90]}", flush=True)
    return results


def main():
    parser = arguments(__doc__)
    parser.add_argument("--only", help="numbers of requests, with commas")
    options = parser.parse_args()
    work = prepared(options, "annie-real-model-")
    results = run(options, work)
    count = {key: sum(row[key] for row in results) for key in ("right", "raw", "false_claim", "rounds", "seconds")}
    count["skill_runs"] = sum(len(row["skills"]) for row in results)
    (work / "result.json").write_text(json.dumps({"mode": options.mode, "count": count, "results": results}, indent=1))
    print(f"\n| mode | right | raw markup | false claims | skill runs | rounds | seconds |\n|---|---|---|---|---|---|---|\n"
          f"| {options.mode} | {count['right']}/{len(results)} | {count['raw']} | {count['false_claim']} | "
          f"{count['skill_runs']} | {count['rounds']} | {count['seconds']:.0f} |\n\n{work}/result.json")
    return 1 if count["raw"] or count["false_claim"] else 0


if __name__ == "__main__":
    sys.exit(main())
