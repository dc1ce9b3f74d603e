"""Common code of the two measurements with a real language model: the patterns for raw markup and false claims, the content
of a data folder, the configuration, and the command-line arguments. Needs only Python's standard library."""

import argparse
import datetime
import json
import pathlib
import re
import sqlite3
import tempfile

RAW = re.compile(
    r"""```\s*(cmd|json|bash|sh|tool)|\{\s*"(name|skill|arguments|agent_id|tool|function|title)"|\[TOOL_CALLS|\[Context\]|"""
    r"""\[Command Result|</?\s*(think|tool|result|report|memory|tasks|function|invoke|parameter)\b|<\||use_skill|get_skill|"""
    r"""dispatch_agent|get_agent_results|\s--[a-z]+\s|^\s*(tasks|notes|memory|system)\.\w+\s+--""",
    re.MULTILINE,
)
CLAIM = re.compile(
    r"\b(i|i've|i have|has been|have been|was|were|is now|are now|successfully|task #\d+|note|it's|your)\b[^.?!\n]{0,60}"
    r"\b(created|added|saved|deleted|removed|marked|completed|updated|moved|renamed|set to|changed|rescheduled|noted|ordered|"
    r"placed|booked|remembered|remember that|done)\b"
    r"|\b(erstellt|hinzugefügt|gespeichert|gelöscht)\b|^(created|added|saved|deleted|updated|done)\b",
    re.IGNORECASE | re.MULTILINE,
)
DENIAL = re.compile(
    r"\b(not|n't|cannot|can't|could not|couldn't|unable|no task|nothing|failed|did not|didn't|nicht|would you|do you want|"
    r"which|shall i|should i)\b",
    re.IGNORECASE,
)

STORES = ("todos", "memories", "notes")


class State:
    """The content of the data folder of a stopped or running server; empty without a folder."""

    def __init__(self, folder=None):
        self.todos, self.memories, self.notes, self.events = {}, {}, {}, []
        if folder is not None:
            self.read(folder)

    def read(self, folder):
        with sqlite3.connect(f"file:{folder}/annie.db?mode=ro", uri=True) as db:
            rows = db.execute(
                "SELECT number, body ->> 'title', body ->> 'status', body ->> 'priority', body ->> 'due' FROM documents "
                "WHERE namespace = 'tasks' AND archived_at IS NULL"
            )
            self.todos = {number: tuple(rest) for number, *rest in rows}
            rows = db.execute("SELECT number, body ->> 'content' FROM documents WHERE namespace = 'memory'")
            self.memories = {number: text for number, text in rows}
            self.events = [
                (agent, kind, json.loads(body))
                for agent, kind, body in db.execute("SELECT agent_id, kind, body FROM events ORDER BY at, seq")
            ]
        self.notes = {
            str(path.relative_to(folder)): path.read_text(errors="replace") for path in sorted(folder.rglob("*.md"))
        }

    def todo(self, *words):
        """The numbers of the to-dos whose title has all words."""
        return [n for n, (title, *_) in self.todos.items() if all(w.lower() in title.lower() for w in words)]

    def same(self, other, *stores):
        """Whether these stores are equal; without arguments, all stores."""
        return all(getattr(self, store) == getattr(other, store) for store in stores or STORES)

    def note(self, name):
        return next((text for path, text in self.notes.items() if name in path.lower()), "")

    def remembers(self, *words):
        return any(all(w.lower() in text.lower() for w in words) for text in self.memories.values())


def weekday(day, after):
    """The first date with this weekday after a date."""
    return after + datetime.timedelta(days=(day - after.weekday() - 1) % 7 + 1)


def has(text, *words):
    return all(re.search(word, text or "", re.IGNORECASE) for word in words)


def trail(events, before):
    """The replies of the models and the skill runs, for manual review."""
    lines = []
    for agent, kind, body in events[len(before):]:
        if kind == "model_replied":
            calls = [f"{call.get('name')} {call.get('raw')}" for call in body.get("calls", [])]
            lines.append({"agent": agent, "said": body.get("text"), "calls": calls})
        elif kind == "skill_finished":
            outcome = body.get("outcome", {})
            lines.append({"agent": agent, "ran": body.get("skill"), "status": outcome.get("status"), "data": outcome.get("data")})
        elif kind in ("model_failed", "failed", "agent_reported"):
            lines.append({"agent": agent, kind: body.get("error") or body.get("text") or body.get("report")})
    return lines


def configuration(options):
    """The settings of both measurements: one model behind llama.cpp, with deterministic answers."""
    settings = pathlib.Path(options.toml).read_text() if options.toml else ""
    return (
        f'mode = "{options.mode}"\ntimezone = "UTC"\n{settings}\n[[backend]]\nname = "real"\nprofile = "llamacpp"\n'
        f'base_url = "{options.model_url}"\nmodel = "{options.model}"\ncontext_tokens_max = {options.window}\n'
        f"temperature = 0.0\nfirst_token_ms_max = 300000\n{options.backend}\n"
    )


def judged(answer, changes, untouched):
    """Whether an answer has raw markup, and whether it claims a requested change that was not made."""
    claim = bool(CLAIM.search(answer)) and not DENIAL.search(answer) and changes and untouched
    return bool(RAW.search(answer)), bool(claim)


def marks(raw, claim):
    return "".join(mark for mark, on in (("R", raw), ("F", claim)) if on)


def arguments(about):
    """The arguments of both scripts; `about` is the documentation of the script."""
    parser = argparse.ArgumentParser(description=about.split("\n\n")[0])
    parser.add_argument("--program", default="target/debug/annie", help="the program to measure")
    parser.add_argument("--model-url", default="http://127.0.0.1:18080/v1", help="an OpenAI-compatible server")
    parser.add_argument("--model", default="default", help="the model's name there")
    parser.add_argument("--mode", default="single_loop", choices=["multi_agent", "single_loop", "direct"])
    parser.add_argument("--window", type=int, default=8192, help="the model's context window, in tokens")
    parser.add_argument("--toml", help="a file with more settings of the top level")
    parser.add_argument("--backend", default="", help="more settings of the backend, as TOML")
    parser.add_argument("--out", help="where to keep the results and the data folders; default: a new temporary folder")
    return parser


def prepared(options, prefix):
    """The working folder; also makes the path of the program absolute."""
    options.program = str(pathlib.Path(options.program).resolve())
    work = pathlib.Path(options.out or tempfile.mkdtemp(prefix=prefix)).resolve()
    work.mkdir(parents=True, exist_ok=True)
    return work
