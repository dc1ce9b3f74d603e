#!/usr/bin/env bash
# Runs all checks, the cheapest first. Installs missing Debian and PyPI packages if it may; checks that cannot run are reported
# and counted as skipped. The last line is `N passed, N failed, N skipped`.
#
#   scripts/test.sh            all checks
#   scripts/test.sh --quick    formatting, lints and tests only
#
# Build output goes to CARGO_TARGET_DIR, ANNIE_TARGET_DIR, ~/.cache/annie-target if that folder exists, or ./target.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
quick=${1:-}
case $quick in
  '' | --quick) ;;
  *) echo "usage: scripts/test.sh [--quick]" >&2; exit 2 ;;
esac

if [ -z "${CARGO_TARGET_DIR:-}" ]; then
  if [ -n "${ANNIE_TARGET_DIR:-}" ]; then
    export CARGO_TARGET_DIR=$ANNIE_TARGET_DIR
  elif [ -d "${HOME:-/nonexistent}/.cache/annie-target" ]; then
    export CARGO_TARGET_DIR=$HOME/.cache/annie-target
  fi
fi
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p "$target" || exit 2
annie=$target/debug/annie
# A build from scratch and the files of the tests take about 3 GB. On a full disk the errors do not name the cause.
room_kb_min=$((5 * 1024 * 1024))
room_kb=$(df -Pk "$target" 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ ! -d "$target/debug/deps" ] && [ "${room_kb:-$room_kb_min}" -lt "$room_kb_min" ]; then
  echo "WARNING: $((room_kb / 1024)) MB are free for $target, a build from nothing wants $((room_kb_min / 1024)) MB: free some, or set ANNIE_TARGET_DIR to a larger disk" >&2
fi
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# The developer's own settings must not affect the tests.
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(ANNIE_|OPENAI_|OPENROUTER_)' || true)

passed=0 failed=0 skipped=0 failures=() skips=() server='' fake=''
scratch=$(mktemp -d) || exit 2
log=$scratch/part.log
export ANNIE_TEST_SKIPS=$scratch/skipped.log
cleanup() {
  [ -n "$server" ] && kill -9 "$server" 2>/dev/null
  [ -n "$fake" ] && kill -9 "$fake" 2>/dev/null
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say() { printf '\n== %s\n' "$*"; }
pass() { passed=$((passed + 1)); echo "passed: $1"; }
fail() { failed=$((failed + 1)); failures+=("$1"); echo "FAILED: $1"; }
skip() { skipped=$((skipped + 1)); skips+=("$1"); echo "SKIPPED: $1"; }
# part NAME COMMAND...: runs one check, which passes or fails.
part() {
  local name=$1 started=$SECONDS
  shift
  say "$name"
  if "$@"; then pass "$name ($((SECONDS - started)) s)"; else fail "$name"; fi
}
# want COMMAND PACKAGE: installs a Debian package if its command is missing and the script runs as root.
want() {
  command -v "$1" >/dev/null && return 0
  install_package "$2" && command -v "$1" >/dev/null
}
install_package() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  echo "installing $1"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get install -y -q "$1" || { apt-get update -q && apt-get install -y -q "$1"; }; } >"$log" 2>&1
}
# Installs PostgreSQL where crates/testkit searches for it. The tests start their own servers, so the package must not create one.
want_postgres() {
  local made=/etc/postgresql-common/createcluster.conf
  has_postgres && return 0
  if [ "$(id -u)" = 0 ] && [ ! -e "$made" ]; then
    mkdir -p "${made%/*}" && echo 'create_main_cluster = false' >"$made"
  fi
  install_package postgresql && has_postgres
}
has_postgres() {
  command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || [ -x /usr/local/pgsql/bin/initdb ]
}

# Adds the counts of a test run to the totals. nextest: `Summary [..] 9 tests run: 8 passed, 1 failed, 2 skipped`;
# cargo test: `test result: ok. 8 passed; 0 failed; 0 ignored; ..`, once for each binary.
count_tests() {
  local line
  while IFS= read -r line; do
    passed=$((passed + $(number_of "$line" 'passed')))
    failed=$((failed + $(number_of "$line" 'failed|timed out|exec failed')))
    skipped=$((skipped + $(number_of "$line" 'skipped|ignored')))
  done < <(grep -E '^ *Summary \[|^test result:' "$log")
}
# number_of LINE WORDS: the sum of the numbers before these words.
number_of() {
  local sum=0 n
  while read -r n; do sum=$((sum + n)); done < <(grep -oE "[0-9]+ ($2)" <<<"$1" | grep -oE '^[0-9]+')
  echo "$sum"
}

# tests NAME COMMAND...: a test run, whose cases are counted individually.
tests() {
  local name=$1 before=$failed
  shift
  say "$name"
  local status=0 ran=$((passed + failed))
  "$@" 2>&1 | tee "$log" || status=1
  count_tests
  count_skipped
  if [ "$status" != 0 ]; then
    [ "$failed" = "$before" ] && failed=$((failed + 1))
    failures+=("$name: see above")
  elif [ "$ran" = $((passed + failed)) ] && [ "$name" != "doc tests" ]; then
    fail "$name: no test ran"
  fi
}

# A test that cannot run passes and writes a line to this file; it is counted as skipped.
count_skipped() {
  local line
  while IFS= read -r line; do
    passed=$((passed - 1))
    skip "${line#SKIPPED: }"
  done < <(cat "$ANNIE_TEST_SKIPS" 2>/dev/null)
  rm -f "$ANNIE_TEST_SKIPS"
}

part "formatting" cargo fmt --all --check
part "lints" cargo clippy --locked --workspace --all-targets -- -D warnings
want_postgres || echo "PostgreSQL is not here: the tests that need it are skipped"
if cargo nextest --version >/dev/null 2>&1; then
  tests "tests" cargo nextest run --locked --workspace --no-fail-fast
  tests "doc tests" cargo test --locked --workspace --doc
else
  tests "tests" cargo test --locked --workspace --no-fail-fast
fi

# Runs the program with its own home. This is a command line and not a function, so that a background process is the program.
run_annie=(env "HOME=$scratch/home" XDG_CONFIG_HOME= XDG_DATA_HOME= "$annie")

first_command() {
  local asked="Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due"
  "${run_annie[@]}" ask --plain "$asked" </dev/null 2>&1 | tee "$log" || return 1
  grep -q "PR 42" "$log" || { echo "the answer does not speak of the task"; return 1; }
  # A second run uses the memory that the first run stored.
  "${run_annie[@]}" ask --plain --new "How does Bob prefer to be contacted?" </dev/null 2>&1 | tee "$log" || return 1
  grep -qi "email" "$log" || { echo "the second run does not remember"; return 1; }
}

unit_file() {
  # The unit file names the installed program; the check uses the program that was just built.
  sed "s|/usr/bin/annie|$annie|g" deploy/annie.service >"$scratch/annie.service"
  systemd-analyze verify "$scratch/annie.service" 2>&1 | tee "$log" && ! grep -q "annie.service" "$log"
}

# start_server DATA ARGUMENTS...: starts a server on this data folder; sets `server` and `url`.
start_server() {
  local data=$1
  shift
  rm -f "$scratch/ready.json"
  "${run_annie[@]}" "$@" serve --data "$data" --port 0 --ready-file "$scratch/ready.json" >"$scratch/server.log" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    [ -s "$scratch/ready.json" ] && break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$scratch/ready.json" 2>/dev/null)
  [ -n "$url" ] || { tail -20 "$scratch/server.log"; return 1; }
}

stop_server() {
  local status=0
  kill -TERM "$server" && wait "$server" || status=$?
  server=''
  [ "$status" = 0 ] || { tail -20 "$scratch/server.log"; return 1; }
}

python_clients() {
  local venv=$target/clients-venv
  if [ ! -x "$venv/bin/python" ]; then
    want python3 python3 || { skip "python clients: no python3"; return; }
    python3 -m venv "$venv" >"$log" 2>&1 || { rm -rf "$venv"; want python3-venv python3-venv; python3 -m venv "$venv" >"$log" 2>&1; } ||
      { rm -rf "$venv"; skip "python clients: python3 -m venv does not work (Debian: python3-venv)"; return; }
  fi
  "$venv/bin/python" -c 'import openai, grpc, grpc_reflection, google.protobuf' 2>/dev/null ||
    "$venv/bin/pip" install -q openai grpcio grpcio-reflection protobuf >"$log" 2>&1 ||
    { tail -3 "$log"; skip "python clients: the packages openai, grpcio and grpcio-reflection cannot be installed"; return; }
  local file at
  for file in "$@"; do
    # gRPC clients need host and port, the others a URL.
    case $file in */grpc_*) at=${url#http://} ;; *) at=$url ;; esac
    part "$file" "$venv/bin/python" "$file" "$at"
  done
}

# Tests agent libraries against a server whose model is tests/clients/agents/fake_model.py, because they need tool calls and
# JSON from a model, which the offline planner does not support.
agent_clients() {
  local python=$target/clients-venv/bin/python dir=tests/clients/agents node_home=$target/clients-node
  [ -x "$python" ] || { skip "agent libraries: no python environment"; return; }
  "$python" "$dir/fake_model.py" >"$scratch/fake.url" 2>"$scratch/fake.log" &
  fake=$!
  for _ in $(seq 100); do
    [ -s "$scratch/fake.url" ] && break
    kill -0 "$fake" 2>/dev/null || break
    sleep 0.1
  done
  printf '[[backend]]\nname = "fake"\nbase_url = "%s"\nmodel = "fake"\nembeddings = "fake-embedding"\n' \
    "$(cat "$scratch/fake.url")" >"$scratch/agents.toml"
  if ! start_server "$scratch/agents" --config "$scratch/agents.toml"; then
    fail "a server for the agent libraries"
    return
  fi
  agent_client "$python" "$dir/openai_tools.py" 'import openai, pydantic' openai pydantic
  agent_client "$python" "$dir/langchain_agent.py" 'import langchain.agents, langchain_openai' langchain langchain-openai
  agent_client "$python" "$dir/pydantic_agent.py" 'import pydantic_ai.models.openai' 'pydantic-ai-slim[openai]'
  agent_client "$python" "$dir/agents_sdk.py" 'import agents' openai-agents
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    skip "$dir/node_openai.mjs: node or npm is not here (Debian: nodejs, npm)"
  elif [ -d "$node_home/node_modules/openai" ] || npm install --prefix "$node_home" --no-audit --no-fund openai@6 >"$log" 2>&1; then
    part "$dir/node_openai.mjs" node "$dir/node_openai.mjs" "$url" "$node_home"
  else
    tail -3 "$log"
    skip "$dir/node_openai.mjs: the package openai cannot be installed"
  fi
  part "the server for the agent libraries stops in good order" stop_server
  kill "$fake" 2>/dev/null
  fake=''
}
# agent_client PYTHON FILE IMPORT PACKAGES...: runs one check, and installs its packages if they are missing.
agent_client() {
  local python=$1 file=$2 import=$3
  shift 3
  if "$python" -c "$import" 2>/dev/null || "$python" -m pip install -q "$@" >"$log" 2>&1; then
    part "$file" "$python" "$file" "$url"
  else
    tail -3 "$log"
    skip "$file: $* cannot be installed"
  fi
}

# Annie as an MCP server for the official SDK, on the server that runs, and as a client of the official server for git.
mcp_clients() {
  local python=$target/clients-venv/bin/python dir=tests/clients/mcp
  [ -x "$python" ] || { skip "MCP clients: no python environment"; return; }
  if "$python" -c 'from mcp import Client' 2>/dev/null || "$python" -m pip install -q 'mcp>=2' >"$log" 2>&1; then
    part "$dir/sdk_client.py" "$python" "$dir/sdk_client.py" "$url" "$annie" "$scratch/data"
  else
    tail -3 "$log"
    skip "$dir/sdk_client.py: the package mcp cannot be installed"
  fi
  if ! want git git; then
    skip "$dir/git_question.py: git is not here"
  elif "$python" -c 'import mcp_server_git' 2>/dev/null || "$python" -m pip install -q mcp-server-git >"$log" 2>&1; then
    part "$dir/git_question.py" "$python" "$dir/git_question.py" "$annie"
  else
    tail -3 "$log"
    skip "$dir/git_question.py: the package mcp-server-git cannot be installed"
  fi
}

# Drives the page in Chromium against servers of its own. Limited in time, so that a page that hangs does not hold everything.
page_tests() {
  local dir=tests/page home=$target/page-node
  want chromium chromium || { skip "the page: chromium is not here (Debian: chromium)"; return; }
  want node nodejs && want npm npm || { skip "the page: node or npm is not here (Debian: nodejs, npm)"; return; }
  if ! cmp -s "$dir/package-lock.json" "$home/package-lock.json" || [ ! -d "$home/node_modules/playwright-core" ]; then
    mkdir -p "$home" && cp "$dir/package.json" "$dir/package-lock.json" "$home/"
    if ! npm ci --prefix "$home" --no-audit --no-fund >"$log" 2>&1; then
      tail -3 "$log"
      rm -f "$home/package-lock.json"
      skip "the page: the packages of $dir cannot be installed"
      return
    fi
  fi
  ANNIE_TEST_BROWSER=$(command -v chromium) part "the page" timeout 600 node "$dir/run.mjs" "$annie" --modules "$home" --shots "$target/page-shots"
}

if [ "$quick" != --quick ]; then
  say "the program"
  if cargo build --locked; then
    part "the first command of the README" first_command
    part "the sample configuration" "${run_annie[@]}" config check deploy/annie.toml
    if want systemd-analyze systemd; then
      part "the unit file" unit_file
    else
      skip "the unit file: systemd-analyze is not here (Debian: systemd)"
    fi
    page_tests
    shopt -s nullglob
    clients=(tests/clients/*.py)
    shopt -u nullglob
    if [ ${#clients[@]} = 0 ]; then
      skip "python clients: tests/clients holds none"
    else
      say "a server for the clients"
      if start_server "$scratch/data"; then
        pass "a server for the clients"
        python_clients "${clients[@]}"
        mcp_clients
        part "the server stops in good order" stop_server
        agent_clients
      else
        fail "a server for the clients"
      fi
    fi
  else
    fail "the program does not build"
  fi
fi

echo
for what in ${skips[@]+"${skips[@]}"}; do echo "skipped: $what"; done
for what in ${failures[@]+"${failures[@]}"}; do echo "failed: $what"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ ${#failures[@]} = 0 ]
