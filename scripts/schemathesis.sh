#!/usr/bin/env bash
# Calls every operation of the served OpenAPI description with generated requests, valid and invalid, and compares the
# responses with the description: schemathesis (from PyPI, in its own environment) against a server with a temporary home.
#
#   scripts/schemathesis.sh [ARGUMENTS...]      ARGUMENTS go to `schemathesis run`, for example --max-examples 200 or --seed 1
#
# ANNIE is the path of the program; without it, a debug build is made. Not a part of scripts/test.sh, because it takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
# The developer's own settings must not affect the test.
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
# A key is needed from the start: an operation that creates the first key would lock out every later call.
key=$("${run_annie[@]}" key create schemathesis --scope admin --scope impersonate 2>/dev/null | grep -oE 'annie_[A-Za-z0-9_-]+' | head -1)
[ -n "$key" ] || { echo "no key could be made" >&2; exit 1; }
# The generated requests contain wrong keys, which must not lock out this address.
ANNIE__API__WRONG_KEYS_BURST_MAX=1000000 "${run_annie[@]}" serve --port 0 --ready-file "$scratch/ready.json" >"$scratch/server.log" 2>&1 &
server=$!
for _ in $(seq 300); do
  [ -s "$scratch/ready.json" ] && break
  kill -0 "$server" 2>/dev/null || break
  sleep 0.1
done
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$scratch/ready.json" 2>/dev/null || true)
[ -n "$url" ] || { tail -20 "$scratch/server.log"; exit 1; }

status=0
# Streams are excluded, because they end only when the client disconnects. Embeddings are excluded, because no backend of this
# server supports them, which a description for every configuration cannot state.
cd "$scratch" # schemathesis leaves its cache here
"$scratch/venv/bin/schemathesis" run "$url/api/openapi.json" \
  --header "Authorization: Bearer $key" \
  --exclude-path-regex '/stream$|/live$|^/v1/embeddings$' \
  --request-timeout 30 \
  --continue-on-failure \
  "$@" || status=$?
kill -0 "$server" 2>/dev/null || { echo "the server has ended:"; tail -20 "$scratch/server.log"; status=1; }
if grep -E 'panicked|ERROR' "$scratch/server.log"; then
  echo "the server's log has errors, see above"
  status=1
fi
exit "$status"
