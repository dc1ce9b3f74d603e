#!/usr/bin/env python3
"""Removes the mechanisms of the invariants one after the other, in a copy of the last commit, and expects the named tests to fail.

  scripts/without.py                 all of tests/without/mechanisms.toml
  scripts/without.py 3 4             only those of invariants 3 and 4
  scripts/without.py --what PERMIT   only those whose name has this text
  scripts/without.py --jobs 4        so many tests at once (2)

Building the program for each mechanism would take days. So the copy has each function twice, with and without its mechanism, and
an environment variable chooses one when a test runs: everything is built once. What cannot be had in this way (constants, SQL,
functions of which the second form does not compile) is built separately, one after the other.

Build output goes to target/without, or to $ANNIE_TARGET_DIR/without. Needs Python 3.11 and cargo-nextest.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("ANNIE_TARGET_DIR", ROOT / "target")) / "without"
# The exit code of nextest if a test failed. Any code other than 0 and this one is a different problem.
FAILED = 100
# Names the mechanism that a process is without.
VARIABLE = "WITHOUT_MECHANISM"
CHOICE = f"""
#[allow(dead_code)]
pub(crate) fn without_mechanism(which: &str) -> bool {{
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("{VARIABLE}").ok()).as_deref() == Some(which)
}}
"""
# The longest time of one test, in seconds. A test that takes longer without its mechanism has noticed it.
TEST_S_MAX = 300
# A token of Rust that may contain braces or the word `fn` without meaning them.
OPAQUE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'""", re.DOTALL)


def blanked(text):
    """The text with spaces in place of comments and literals."""
    return OPAQUE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def functions(text):
    """Begin of the signature, begin and end of the body of each function of a file, the braces not included."""
    plain, found = blanked(text), []
    for match in re.finditer(r"\bfn\s+\w+", plain):
        at, depth = match.end(), 0
        while at < len(plain) and not (depth == 0 and plain[at] in "{;"):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(plain[at], 0)
            at += 1
        if at >= len(plain) or plain[at] == ";":
            continue
        begin, depth = at + 1, 1
        while depth:
            at += 1
            depth += {"{": 1, "}": -1}.get(plain[at], 0)
        line = plain.rfind("\n", 0, match.start()) + 1
        found.append((line, begin, at))
    return found


def crate_roots(tree, file):
    """The root files of the package that a file belongs to."""
    for folder in (tree / file).parents:
        if (folder / "Cargo.toml").exists():
            return [path for path in (folder / "src/lib.rs", folder / "src/main.rs") if path.exists()]
    return []


class Copy:
    """A copy of the sources in which each function can be had without its mechanism."""

    def __init__(self, tree, rows):
        self.tree, self.rows = tree, rows
        self.places = {}  # number of a row: its file, and the begin and end of the body in the original
        self.alone = {}  # number of a row: why it is built separately
        for number, row in rows.items():
            why = self.place(number, row)
            if why:
                self.alone[number] = why
        self.drop_nested()

    def place(self, number, row):
        if not row["file"].endswith(".rs"):
            return "no Rust"
        text = (self.tree / row["file"]).read_text()
        if text.count(row["old"]) != 1:
            return "`old` does not stand exactly once in the file"
        begin = text.index(row["old"])
        end = begin + len(row["old"])
        around = [span for span in functions(text) if span[1] <= begin and end <= span[2]]
        if not around or not crate_roots(self.tree, row["file"]):
            return "not within a function"
        self.places[number] = (row["file"], *max(around))
        return None

    def drop_nested(self):
        """Of functions of which one contains the other, only the inner one is had twice."""
        for number, (file, _, begin, end) in list(self.places.items()):
            if any(f == file and begin < b and e < end for f, _, b, e in self.places.values()):
                self.drop(number, "within the function is another one with a mechanism")

    def drop(self, number, why):
        self.alone[number] = why
        self.places.pop(number, None)

    def write(self, originals):
        """Writes all files with both forms of the functions. Returns the lines of each row, for errors of the compiler."""
        lines, chosen = {}, {}
        for number, (file, head, begin, end) in self.places.items():
            chosen.setdefault(file, {}).setdefault((head, begin, end), []).append(number)
        for file, text in originals.items():
            parts, at = [], 0
            for (head, begin, end), numbers in sorted(chosen.get(file, {}).items()):
                body = text[begin:end]
                forms = []
                for number in numbers:
                    row = self.rows[number]
                    without = body.replace(row["old"], row["new"])
                    forms.append(f'if crate::without_mechanism("{number}") {{{without}}} else ')
                # Both forms of a function that may run while the program is compiled would need the environment then.
                signature = re.sub(r"\bconst (?=(unsafe |async )?fn\b)", "", text[head:begin])
                parts += [text[at:head], signature, " ", *forms, "{", body, "}"]
                before = "".join(parts[:-len(forms) - 3]).count("\n")
                for n, number in enumerate(numbers):
                    span = forms[n].count("\n")
                    lines[number] = (file, before, before + span)
                    before += span
                at = end
            path = self.tree / file
            (path).write_text("".join(parts) + text[at:])
        for root in {root for file, *_ in self.places.values() for root in crate_roots(self.tree, file)}:
            text = root.read_text()
            if "fn without_mechanism" not in text:
                root.write_text(text + CHOICE)
        return lines


def cargo(tree, *args):
    env = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), "CARGO_TERM_COLOR": "never", "RUST_BACKTRACE": "0"}
    done = subprocess.run(["cargo", *args], cwd=tree, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return done.returncode, done.stdout


def compile_errors(said):
    """File, line and text of each error."""
    found = []
    for line in said.splitlines():
        message = json.loads(line).get("message") if line.startswith("{") else None
        if not isinstance(message, dict) or message.get("level") != "error":
            continue
        spans = message["spans"] + [span for child in message["children"] for span in child["spans"]]
        found.append(([(span["file_name"], span["line_start"]) for span in spans], message["rendered"] or message["message"]))
    return found


def build_both_forms(copy, originals):
    """Compiles the copy, and drops the rows whose second form does not compile."""
    while True:
        lines = copy.write(originals)
        code, said = cargo(copy.tree, "check", "--locked", "--workspace", "--keep-going", "--message-format", "json")
        if code == 0:
            return
        dropped = set()
        for places, text in compile_errors(said):
            hit = {n for n, (file, first, last) in lines.items() for f, line in places if f == file and first < line <= last + 1}
            if not hit:
                # A constant that calls a function which is not `const` any more.
                names = {name for name in re.findall(r"`(?:[\w:<>]*::)?(\w+)`", text)}
                hit = {n for n, (file, head, begin, _) in copy.places.items()
                       if (name := re.search(r"const (?:unsafe |async )?fn (\w+)", originals[file][head:begin])) and name[1] in names}
            if not hit and "aborting due to" not in text and "could not compile" not in text:
                sys.exit("the copy does not compile:\n" + text)
            dropped |= hit
        if not dropped:
            sys.exit("the copy does not compile:\n" + said[-3000:])
        for number in dropped:
            copy.drop(number, "the second form does not compile")
        print(f"{len(dropped)} second forms do not compile, {len(copy.places)} are left", flush=True)


def pass_the_choice_on(tree):
    """Programs that begin with an empty environment get the variable."""
    handed = f'.env_clear().envs(std::env::var_os("{VARIABLE}").map(|which| ("{VARIABLE}", which)))'
    for path in tree.rglob("*.rs"):
        text = path.read_text()
        if ".env_clear()" in text:
            path.write_text(text.replace(".env_clear()", handed))


def all_tests(tree):
    """Program, folder and name of each test, by package."""
    code, said = cargo(tree, "nextest", "list", "--locked", "--workspace", "--message-format", "json")
    listed = next((line for line in reversed(said.splitlines()) if line.startswith("{")), None)
    if code != 0 or listed is None:
        sys.exit("the tests do not build:\n" + said[-3000:])
    found = {}
    for suite in json.loads(listed)["rust-suites"].values():
        for name in suite["testcases"]:
            found.setdefault(suite["package-name"], []).append((suite["binary-path"], suite["cwd"], name))
    return found


def passes(test, without=None):
    program, folder, name = test
    env = {**os.environ, "RUST_BACKTRACE": "0", "CARGO_MANIFEST_DIR": folder, "NEXTEST": "1"}
    env |= {VARIABLE: str(without)} if without is not None else {}
    try:
        done = subprocess.run([program, "--exact", name, "--nocapture"], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TEST_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def verdict_of_built(row, number, tests):
    """None if all named tests fail without the mechanism; otherwise the problem."""
    passed = []
    for name in row["tests"]:
        chosen = [test for test in tests.get(row["package"], []) if name in test[2]]
        if all(passes(test, number) for test in chosen):
            passed.append(name)
    return f"these pass all the same: {', '.join(passed)}" if passed else None


def verdict_alone(tree, row):
    """The same, with a build of its own."""
    path = tree / row["file"]
    before = path.read_text()
    if before.count(row["old"]) != 1:
        return "`old` does not stand exactly once in the file"
    path.write_text(before.replace(row["old"], row["new"]))
    try:
        which = " | ".join(f"test({name})" for name in row["tests"])
        where = ["nextest", "run", "--locked", "--workspace", "-E", f"package({row['package']}) & ({which})"]
        code, said = cargo(tree, *where, "--no-run")
        if code != 0:
            return "it does not build:\n" + said[-2000:]
        code, said = cargo(tree, *where, "--no-fail-fast")
        if code not in (0, FAILED):
            return "the tests could not run:\n" + said[-2000:]
        failed = re.findall(r"^\s*(?:FAIL|SIGABRT|TIMEOUT) \[.*?\] (?:\(.*?\) )?\S+ (\S+)$", said, re.MULTILINE)
        passed = [name for name in row["tests"] if not any(name in test for test in failed)]
        return f"these pass all the same: {', '.join(passed)}" if passed else None
    finally:
        path.write_text(before)


def run_built(copy, tests, jobs):
    """Yields the number and the verdict of each row whose function is there twice."""
    needed = {number: [test for name in copy.rows[number]["tests"] for test in tests.get(copy.rows[number]["package"], [])
                       if name in test[2]] for number in copy.places}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        every = sorted({test for chosen in needed.values() for test in chosen})
        print(f"{len(every)} tests with all mechanisms", flush=True)
        sound = dict(zip(every, pool.map(passes, every)))
        for number, chosen in needed.items():
            failing = [test[2] for test in chosen if not sound[test]]
            if failing or not chosen:
                # Such a test would seem to notice everything.
                del copy.places[number]
                yield number, f"these fail with all mechanisms as well: {', '.join(failing)}" if chosen else "it names no test"
        runs = {pool.submit(verdict_of_built, copy.rows[n], n, tests): n for n in copy.places}
        for run in concurrent.futures.as_completed(runs):
            yield runs[run], run.result()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("invariants", nargs="*", type=int)
    arguments.add_argument("--what", default="")
    arguments.add_argument("--jobs", type=int, default=2)
    wanted = arguments.parse_args()
    with open(ROOT / "tests/without/mechanisms.toml", "rb") as file:
        listed = enumerate(tomllib.load(file)["mechanism"])
    rows = {n: row for n, row in listed
            if (not wanted.invariants or row["invariant"] in wanted.invariants) and wanted.what in row["what"]}
    wrong = 0

    def report(number, why):
        nonlocal wrong
        wrong += why is not None
        row = rows[number]
        print(f"{row['invariant']:>2}  {row['what']:<55} {'noticed' if why is None else 'NOT NOTICED: ' + why}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        # The same path each time: cargo builds again what it finds at another one.
        tree = TARGET / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(tree)], check=True)
        pass_the_choice_on(tree)
        copy = Copy(tree, rows)
        touched = {file for file, *_ in copy.places.values()}
        roots = {root.relative_to(tree).as_posix() for file in touched for root in crate_roots(tree, file)}
        originals = {file: (tree / file).read_text() for file in touched | roots}
        os.environ["TMPDIR"] = folder
        if copy.places:
            build_both_forms(copy, originals)
            for number, why in run_built(copy, all_tests(tree), wanted.jobs):
                report(number, why)
        for file, text in originals.items():
            (tree / file).write_text(text)
        print(f"{len(copy.alone)} are built separately", flush=True)
        for number, why in sorted(copy.alone.items()):
            print(f"    {rows[number]['what']}: {why}", flush=True)
            report(number, verdict_alone(tree, rows[number]))
    print(f"{len(rows) - wrong} noticed, {wrong} not")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
