# Short names for what the scripts and cargo do. `just` without a name lists them.

default:
    @just --list

# Everything that must pass
check:
    scripts/test.sh

# Formatting, lints and tests, without clients and deployment
quick:
    scripts/test.sh --quick

# Only the rules that tests/tidy checks
tidy:
    cargo test --test house tidy::

# Puts the sources into shape
fmt:
    cargo fmt --all

# The project's own benchmarks; `just bench --quick` takes a tenth
bench *ARGS:
    cargo bench --bench turns -- {{ARGS}}

# Ten minutes of load with 1,000 actors and 20 processes killed, on SQLite and on PostgreSQL, then on disks that fill up
soak *ARGS:
    cargo bench --bench soak -- {{ARGS}}
    cargo bench --bench soak -- --postgres {{ARGS}}
    cargo bench --bench soak -- --small-disk --seconds 60 --actors 100 --processes 3 {{ARGS}}
    cargo bench --bench soak -- --postgres --small-disk --seconds 60 --actors 100 --processes 3 {{ARGS}}

# How fast it is back after a crash, and what being durable costs; `just recovery --quick` takes a tenth
recovery *ARGS:
    cargo bench --bench recovery -- {{ARGS}}

# Talks to a kernel in this process
chat:
    cargo run --release -- chat

# Runs the server on loopback
serve:
    cargo run --release -- serve

# Mutation tests: disables each mechanism that keeps an invariant, and expects its tests to fail
without *ARGS:
    scripts/without.py {{ARGS}}

# The simulation over so many seeds, from a first one on
sim COUNT="1000" FIRST="0":
    scripts/sim.sh {{FIRST}} {{COUNT}}

# One seed of the simulation again, with its own faults or those of a plan; if it fails, with its faults and steps, made fewer
sim-seed SEED *PLAN:
    scripts/sim.sh {{SEED}} 1 {{PLAN}}

# Made-up requests to every operation of the served OpenAPI description; minutes
schemathesis *ARGS:
    scripts/schemathesis.sh {{ARGS}}
