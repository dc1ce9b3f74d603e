#!/usr/bin/env python3
"""Removes the mechanisms of the invariants one after the other, in a copy of the last commit, and expects the named tests to fail.

  scripts/without.py             all of tests/without/mechanisms.toml
  scripts/without.py 3 4         only those of invariants 3 and 4

Build output goes to target/without, or to $ANNIE_TARGET_DIR/without. Needs Python 3.11 and cargo-nextest.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The exit code of nextest if a test failed. Any code other than 0 and this one is a different problem.
FAILED = 100


def cargo(tree, *args):
    target = pathlib.Path(os.environ.get("ANNIE_TARGET_DIR", ROOT / "target")) / "without"
    env = {**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_TERM_COLOR": "never", "RUST_BACKTRACE": "0"}
    done = subprocess.run(["cargo", "nextest", "run", "--locked", *args], cwd=tree, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def verdict(tree, one):
    """None if all named tests fail without the mechanism; otherwise the problem."""
    which = " | ".join(f"test({name})" for name in one["tests"])
    where = ["--package", one["package"], "-E", which]
    code, said = cargo(tree, *where, "--no-run")
    if code != 0:
        return "it does not build:\n" + said[-2000:]
    code, said = cargo(tree, *where, "--no-fail-fast")
    if code not in (0, FAILED):
        return "the tests could not run:\n" + said[-2000:]
    failed = re.findall(r"^\s*(?:FAIL|SIGABRT|TIMEOUT) \[.*?\] (?:\(.*?\) )?\S+ (\S+)$", said, re.MULTILINE)
    proofless = [name for name in one["tests"] if not any(name in test for test in failed)]
    return f"these pass all the same: {', '.join(proofless)}" if proofless else None


def main():
    wanted = {int(n) for n in sys.argv[1:]}
    with open(ROOT / "tests/without/mechanisms.toml", "rb") as file:
        every = [m for m in tomllib.load(file)["mechanism"] if not wanted or m["invariant"] in wanted]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "annie"
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(tree)], check=True)
        for one in every:
            path = tree / one["file"]
            before = path.read_text()
            if before.count(one["old"]) != 1:
                why = "`old` does not stand exactly once in the file"
            else:
                path.write_text(before.replace(one["old"], one["new"]))
                why = verdict(tree, one)
                path.write_text(before)
            wrong += why is not None
            print(f"{one['invariant']:>2}  {one['what']:<55} {'noticed' if why is None else 'NOT NOTICED: ' + why}", flush=True)
    print(f"{len(every) - wrong} noticed, {wrong} not")
    return 1 if wrong or not every else 0


sys.exit(main())
