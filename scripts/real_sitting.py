#!/usr/bin/env python3
"""One sitting of `annie chat` with a real language model behind it: a to-do is created, changed, completed and deleted, a
memory and a note are kept, and both are asked for again.

    llama-server -m model.gguf --jinja -c 8192 -t 2 --port 18080 --temp 0
    scripts/real_sitting.py --program target/release/annie --model-url http://127.0.0.1:18080/v1 --model NAME \
        [--mode single_loop] [--backend 'interface = "cmd"'] [--toml FILE] [--out DIR]

The lines go to one `annie chat` through a pipe, each after the answer to the one before, and after each the data folder is
read: a step counts if the to-dos, memories and notes are what it asked for, those that it did not ask for are as they were,
an answer to a question has what was asked, and no answer shows raw markup or claims a change that was not made. The answers to
the three questions are not searched for claims, since what they tell of may have been changed before: read them. Writes
`sitting.json` with everything that models said and skills did. Exit code 1 if a step did not count.
"""

import datetime
import json
import subprocess
import sys
import time

from real_common import STORES, State, arguments, configuration, has, judged, marks, prepared, trail, weekday


def steps():
    """(what is said, the only store that may change, or none, check(after, answer), whether a claim of a change can be false)"""
    friday = weekday(4, datetime.date.today()).isoformat()

    def only(after, check):
        """Whether the one to-do is about the dentist, and is as it should be."""
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
    """Whether a step counts, whether its answer has raw markup and a false claim, and the stores that it must not have changed.

    All three stores are compared: one that was not asked for stays as it was.
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
        """The answer, as the person reads it."""
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
