# Short names for what the scripts and cargo do. `just` without a name lists them.

default:
    @just --list

# Everything that must pass
check:
    scripts/test.sh

# Formatting, lints and tests, without clients and deployment
quick:
    scripts/test.sh --quick

# Only the house's rules
tidy:
    cargo test --test house tidy::

# Puts the sources into shape
fmt:
    cargo fmt --all

# The project's own benchmarks; `just bench --quick` takes a tenth
bench *ARGS:
    cargo bench --bench turns -- {{ARGS}}

# Talks to a kernel in this process
chat:
    cargo run --release -- chat

# Runs the server on loopback
serve:
    cargo run --release -- serve
