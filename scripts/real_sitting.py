#!/usr/bin/env python3
"""One sitting of `annie chat` with a real language model behind it: a to-do is created, changed, completed and deleted, a
memory and a note are kept, and both are asked for again.

    llama-server -m model.gguf --jinja -c 8192 -t 2 --port 18080 --temp 0
    scripts/real_sitting.py --program target/release/annie --model-url http://127.0.0.1:18080/v1 --model NAME \
        [--mode single_loop] [--backend 'interface = "cmd"'] [--toml FILE] [--out DIR]

The lines go to one `annie chat` through a pipe, each after the answer to the one before, and after each the data folder is
read: a step counts if the to-dos, memories and notes are what it asked for, and if the answer says nothing else. Writes
`sitting.json` with everything that models said and skills did. Exit code 1 if a step did not count.
"""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from real_model import CLAIM, DENIAL, RAW, State, trail


def steps():
    """(what is said, whether it changes anything, check(before, after, answer))"""
    today = datetime.date.today()
    friday = (today + datetime.timedelta(days=(4 - today.weekday() - 1) % 7 + 1)).isoformat()

    def task(state):
        return [(n, t) for n, t in state.todos.items() if "dentist" in t[0].lower()]

    def has(text, *words):
        return all(re.search(word, text or "", re.IGNORECASE) for word in words)

    def only(after, check):
        return len(after.todos) == 1 and len(task(after)) == 1 and check(task(after)[0][1])

    return [
        ("Create a task to call the dentist", True, lambda b, a, s: only(a, lambda t: t[1] == "todo" and not t[3])),
        ("Move the dentist task to Friday", True, lambda b, a, s: only(a, lambda t: (t[3] or "").startswith(friday))),
        ("What is on my to-do list?", False, lambda b, a, s: b.same(a) and has(s, "dentist")),
        ("I have called the dentist, so that task is done", True, lambda b, a, s: only(a, lambda t: t[1] == "done")),
        ("Now delete the dentist task", True, lambda b, a, s: not a.todos),
        ("Remember that my sister Mia is allergic to nuts", True, lambda b, a, s: a.remembers("mia", "nuts")),
        ("Write a note called packing with: passport, charger, socks", True,
         lambda b, a, s: has(a.note("packing"), "passport", "charger", "socks")),
        ("What is my sister allergic to?", False, lambda b, a, s: b.same(a) and has(s, "nuts")),
        ("What is in my packing note?", False, lambda b, a, s: b.same(a) and has(s, "passport", "charger", "socks")),
        ("Thanks, that is all", False, lambda b, a, s: b.same(a) and len(s) > 3),
    ]


def nothing():
    """What a new data folder holds."""
    state = State.__new__(State)
    state.todos, state.memories, state.notes, state.events = {}, {}, {}, []
    return state


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
    settings = pathlib.Path(options.toml).read_text() if options.toml else ""
    toml = (
        f'mode = "{options.mode}"\ntimezone = "UTC"\n{settings}\n[[backend]]\nname = "real"\nprofile = "llamacpp"\n'
        f'base_url = "{options.model_url}"\nmodel = "{options.model}"\ncontext_tokens_max = {options.window}\n'
        f"temperature = 0.0\nfirst_token_ms_max = 300000\n{options.backend}\n"
    )
    folder = work / "sitting"
    folder.mkdir()
    chat = Chat(options.program, folder, toml)
    rows, before = [], nothing()
    for n, (words, changes, check) in enumerate(steps(), 1):
        started = time.monotonic()
        answer = chat.say(words)
        after = State(folder)
        lines = trail(after.events, before.events)
        claim = bool(CLAIM.search(answer)) and not DENIAL.search(answer) and changes and before.same(after)
        raw = bool(RAW.search(answer))
        right = bool(check(before, after, answer)) and not raw and not claim
        rows.append({"n": n, "said": words, "right": right, "raw": raw, "false_claim": claim,
                     "seconds": round(time.monotonic() - started, 1), "answer": answer, "trail": lines})
        marks = "".join(mark for mark, on in (("R", raw), ("F", claim)) if on)
        print(f"{n:2} {'ok ' if right else '-  '}{marks:2} {rows[-1]['seconds']:6.1f} s  {words[:44]:44}  "
              f"{' '.join(answer.split())[:120]}", flush=True)
        before = after
    chat.end()
    return rows


def main():
    about = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    about.add_argument("--program", default="target/debug/annie", help="the program to sit with")
    about.add_argument("--model-url", default="http://127.0.0.1:18080/v1", help="an OpenAI-compatible server")
    about.add_argument("--model", default="default", help="the model's name there")
    about.add_argument("--mode", default="single_loop", choices=["multi_agent", "single_loop", "direct"])
    about.add_argument("--window", type=int, default=8192, help="the model's context window, in tokens")
    about.add_argument("--toml", help="a file with more settings of the top level")
    about.add_argument("--backend", default="", help="more settings of the backend, as TOML")
    about.add_argument("--out", help="where to keep sitting.json and the data folder; default: a new temporary folder")
    options = about.parse_args()
    options.program = str(pathlib.Path(options.program).resolve())
    work = pathlib.Path(options.out or tempfile.mkdtemp(prefix="annie-real-sitting-")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    rows = sit(options, work)
    (work / "sitting.json").write_text(json.dumps(rows, indent=1))
    print(f"\n{sum(row['right'] for row in rows)} of {len(rows)} steps\n{work}/sitting.json")
    return 0 if all(row["right"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
