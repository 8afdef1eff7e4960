# Shortcuts for the commands of CONTRIBUTING.md: `just --list`. Nothing else needs `just`.

# The fastest check of both libraries.
check:
    cargo check -p listwatch -p listwatch-cache --all-features

# One test program of a package, and optionally a part of a test's path: `just test listwatch core watch::splits`.
test package program *path:
    cargo test -p {{package}} --all-features --test {{program}} {{path}}

# All tests of the two libraries, as README names them.
libraries:
    cargo test -p listwatch -p listwatch-cache --all-features --tests

# Format, imports and lints, as CI checks them.
lint:
    .ci/run lint

# Parts of CI, all unless some are named: lint, features, tests, fuzz, e2e.
ci *parts:
    .ci/run {{parts}}

# Documentation of all crates, with the guide in listwatch_cache.
docs:
    cargo doc --workspace --no-deps --all-features --open

# Counts instructions of the hot paths, and compares them with the recorded baseline. Needs valgrind and gungraun-runner.
instructions:
    cargo run -p listwatch-instructions

# Fuzzes a target, or all, for some seconds each: `just fuzz 60 list_decode`.
fuzz seconds="60" *target:
    fuzz/run.sh {{seconds}} {{target}}
