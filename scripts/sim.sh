#!/usr/bin/env bash
# Runs COUNT seeds of the simulation, one after another, from FIRST on. The failure of a single seed is printed in full.
# With a PLAN, only the faults of that file are injected, one a line, as the failure of a seed prints them.
#
#   scripts/sim.sh FIRST COUNT [PLAN]
set -euo pipefail
cd "$(dirname "$0")/.."
first=${1:?the first seed} count=${2:?how many}
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
mkdir -p "$target/tmp"
{ echo "$first $count"; [ -z "${3:-}" ] || cat "$3"; } > "$target/tmp/sim-seeds"
trap 'rm -f "$target/tmp/sim-seeds"' EXIT
cargo test --test house sim::simulation_of_the_requested_seeds_keeps_the_invariants -- --exact --nocapture
