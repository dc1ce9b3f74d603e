#!/usr/bin/env python3
"""One session of `annie chat` with a real language model: a to-do is created, changed, completed and deleted, a memory and a
note are stored, and both are requested again.

    llama-server -m model.gguf --jinja -c 8192 -t 2 --port 18080 --temp 0
    scripts/real_sitting.py --program target/release/annie --model-url http://127.0.0.1:18080/v1 --model NAME \
        [--mode single_loop] [--backend 'interface = "cmd"'] [--toml FILE] [--out DIR]

The lines go to one `annie chat` through a pipe, each after the answer to the previous one, and the data folder is read after
each. A step is right if the to-dos, memories and notes match the request, the other stores are unchanged, an answer to a
question contains the requested information, and no answer has raw markup or claims a change that was not made. The answers to
the three questions are not checked for claims, because they may report earlier changes: review them manually. Writes
`sitting.json` with all model replies and skill runs. Exits with 1 if a step is not right.
"""

import datetime
import json
import subprocess
import sys
import time

from real_common import STORES, State, arguments, configuration, has, judged, marks, prepared, trail, weekday


def steps():
    """(message, the only store that may change or None, check(after, answer), whether a claim of a change can be false)"""
    friday = weekday(4, datetime.date.today()).isoformat()

    def only(after, check):
        """Whether there is exactly one to-do, about the dentist, and it passes the check."""
        todos = list(after.todos.values())
        return len(todos) == 1 and has(todos[0][0], "dentist") and check(*todos[0])

    def one_note(after):
        return len(after.notes) == 1 and has(after.note("packing"), "passport", "charger", "socks")

    said = [
        ("Create a task to call the dentist", "todos",
         lambda a, s: only(a, lambda title, status, priority, due: status == "todo" and not due)),
        ("Move the dentist task to Friday", "todos",
         lambda a, s: only(a, lambda title, status, priority, due: status == "todo" and (due or "").startswith(friday))),
        ("What is on my to-do list?", None, lambda a, s: has(s, "dentist")),
        ("I have called the dentist, so that task is done", "todos",
         lambda a, s: only(a, lambda title, status, *_: status == "done")),
        ("Now delete the dentist task", "todos", lambda a, s: not a.todos),
        ("Remember that my sister Mia is allergic to nuts", "memories",
         lambda a, s: len(a.memories) == 1 and a.remembers("mia", "nuts")),
        ("Write a note called packing with: passport, charger, socks", "notes", lambda a, s: one_note(a)),
        ("What is my sister allergic to?", None, lambda a, s: has(s, "nuts")),
        ("What is in my packing note?", None, lambda a, s: has(s, "passport", "charger", "socks")),
        ("Thanks, that is all", None, lambda a, s: len(s) > 3),
    ]
    return [(text, store, check, not text.startswith("What is")) for text, store, check in said]


def score(step, before, after, answer):
    """Whether a step is right, whether its answer has raw markup or a false claim, and the stores that it changed wrongly.

    All three stores are compared: a store that the step does not name must be unchanged.
    """
    _, store, check, may_claim_falsely = step
    touched = [other for other in STORES if other != store and not before.same(after, other)]
    raw, claim = judged(answer, may_claim_falsely, before.same(after))
    return bool(check(after, answer)) and not touched and not raw and not claim, raw, claim, touched


class Chat:
    """An `annie chat` through a pipe."""

    def __init__(self, program, folder, toml):
        config = folder / "sitting.toml"
        config.write_text(toml)
        self.log = open(folder / "chat.log", "ab")
        argv = [program, "chat", "--json", "--data", folder, "--config", config]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)

    def say(self, text):
        """Sends a message and returns the answer text."""
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            event = json.loads(line)
            if event.get("kind") == "result":
                return event.get("text") or ""
        raise SystemExit("annie chat ended in the middle of an answer")

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.log.close()


def sit(options, work):
    folder = work / "sitting"
    folder.mkdir()
    chat = Chat(options.program, folder, configuration(options))
    rows, before = [], State()
    for n, step in enumerate(steps(), 1):
        started = time.monotonic()
        answer = chat.say(step[0])
        after = State(folder)
        right, raw, claim, touched = score(step, before, after, answer)
        rows.append({"n": n, "said": step[0], "right": right, "raw": raw, "false_claim": claim, "touched": touched,
                     "seconds": round(time.monotonic() - started, 1), "answer": answer,
                     "trail": trail(after.events, before.events)})
        wrong = f" (changed: {', '.join(touched)})" if touched else ""
        print(f"{n:2} {'ok ' if right else '-  '}{marks(raw, claim):2} {rows[-1]['seconds']:6.1f} s  {step[0][:44]:44}  "
              f"{' '.join(answer.split())[:120]}{wrong}", flush=True)
        before = after
    chat.end()
    return rows


def main():
    options = arguments(__doc__).parse_args()
    work = prepared(options, "annie-real-sitting-")
    rows = sit(options, work)
    (work / "sitting.json").write_text(json.dumps(rows, indent=1))
    print(f"\n{sum(row['right'] for row in rows)} of {len(rows)} steps\n{work}/sitting.json")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
