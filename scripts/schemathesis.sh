#!/usr/bin/env bash
# Calls every operation of the served OpenAPI description with made-up requests, good and bad, and compares the answers with
# the description: schemathesis (from PyPI, in an environment of its own) against a server with a home that is thrown away.
#
#   scripts/schemathesis.sh [ARGUMENTS...]      ARGUMENTS go to `schemathesis run`, as --max-examples 200 or --seed 1
#
# ANNIE names the program; unless it is given, a debug build is made. Not a part of scripts/test.sh: it takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
# A developer's own settings must not change what is tested.
program=${ANNIE:-}
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -E '^(ANNIE_|OPENAI_|OPENROUTER_)' || true)
if [ -z "$program" ]; then
  cargo build --locked
  program=${CARGO_TARGET_DIR:-target}/debug/annie
fi
program=$(realpath "$program")

scratch=$(mktemp -d) server=''
cleanup() {
  [ -n "$server" ] && kill -9 "$server" 2>/dev/null && wait "$server" 2>/dev/null
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q 'schemathesis>=4,<5'

run_annie=(env "HOME=$scratch/home" XDG_CONFIG_HOME= XDG_DATA_HOME= "$program" --data "$scratch/data")
# With a key: an operation that makes the first key would lock out every call behind it.
key=$("${run_annie[@]}" key create schemathesis --scope admin --scope impersonate 2>/dev/null | grep -oE 'annie_[A-Za-z0-9_-]+' | head -1)
[ -n "$key" ] || { echo "no key could be made" >&2; exit 1; }
# Wrong keys are a part of the requests, and are not to lock this address out.
ANNIE__DOORS__WRONG_KEYS_BURST_MAX=1000000 "${run_annie[@]}" serve --port 0 --ready-file "$scratch/ready.json" >"$scratch/server.log" 2>&1 &
server=$!
for _ in $(seq 300); do
  [ -s "$scratch/ready.json" ] && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$scratch/ready.json" 2>/dev/null || true)
[ -n "$url" ] || { tail -20 "$scratch/server.log"; exit 1; }

status=0
# Streams end when their client does, so they are not waited for. No backend of this server makes embeddings, which a
# description that is the same for every configuration cannot say.
cd "$scratch" # where it leaves its cache
"$scratch/venv/bin/schemathesis" run "$url/api/openapi.json" \
  --header "Authorization: Bearer $key" \
  --exclude-path-regex '/stream$|^/v1/embeddings$' \
  --request-timeout 30 \
  --continue-on-failure \
  "$@" || status=$?
kill -0 "$server" 2>/dev/null || { echo "the server has ended:"; tail -20 "$scratch/server.log"; status=1; }
if grep -E 'panicked|ERROR' "$scratch/server.log"; then
  echo "the server's log has errors, see above"
  status=1
fi
exit "$status"
