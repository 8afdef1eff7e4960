# Shared by .ci/run, .ci/nightly and .ci/package: the working directory, the output, and tools at pinned versions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=never RUSTFLAGS='-D warnings' RUSTDOCFLAGS='-D warnings'

CARGO_CYCLONEDX=0.5.9
CARGO_DENY=0.20.2
CARGO_FUZZ=0.13.2
CARGO_SEMVER_CHECKS=0.51.0
# The toolchains of CI: a new compiler or clippy must not make an unchanged commit fail.
export RUSTUP_TOOLCHAIN=1.95.0
export NIGHTLY=nightly-2026-05-20

step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

# toolchain NAME [OPTION...]: installs the toolchain of rustup unless it is installed.
toolchain() {
    rustup toolchain list | grep -q "^$1-" || rustup toolchain install "$@" --no-self-update >/dev/null
}

# limit MINUTES COMMAND...: kills a command that hangs, so that CI fails early. Its output shows which test hung.
limit() { timeout --kill-after=10 "$1m" "${@:2}" || { echo "error: failed, or took longer than $1 minutes: ${*:2}" >&2; return 1; }; }

# logged MINUTES COMMAND...: runs tests, and adds their output and the log of the library to target/tests.log.
logged() {
    local log=target/tests.part.log
    mkdir -p target
    if ! LISTWATCH_WATCH_LOGS=1 RUST_TEST_NOCAPTURE=1 limit "$@" >"$log" 2>&1; then
        grep -aE '^(test .* FAILED|error|thread .* panicked)' "$log"
        tail -n 100 "$log"
        return 1
    fi
    grep -aE '^test result' "$log"
    cat "$log" >>target/tests.log
}

# cargo_tool NAME VERSION: installs the tool from source unless this version is installed.
cargo_tool() {
    cargo install --list | grep -q "^$1 v$2:" || RUSTFLAGS='' cargo install --quiet --locked "$1@$2"
}

# debian COMMAND PACKAGE...: installs the packages unless the command exists.
debian() {
    local command=$1
    shift
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    command -v "$command" >/dev/null || { $sudo apt-get update -qq && $sudo apt-get install -y -qq "$@" >/dev/null; }
}

# Builds the API server, and kubectl of the same version, which the tests compare the command with.
apiserver() {
    command -v go >/dev/null || { echo 'error: Go is not installed; it builds the API server of the end-to-end tests' >&2; return 1; }
    e2e/apiserver/build.sh || return 1
    export PATH="$PWD/e2e/apiserver/bin:$PATH"
}

# readme_command PATTERN: prints the first line of README.md that begins with PATTERN, so that CI runs the documented command.
readme_command() {
    grep -m1 -E "^$1" README.md || { echo "error: README.md has no line that begins with $1" >&2; exit 1; }
}
