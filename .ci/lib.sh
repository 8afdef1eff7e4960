# What .ci/run and .ci/nightly share: where they run, how they report, and the tools they install, pinned by version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=never RUSTFLAGS='-D warnings' RUSTDOCFLAGS='-D warnings'

CARGO_DENY=0.20.2
CARGO_FUZZ=0.13.2
CARGO_SEMVER_CHECKS=0.45.0
NIGHTLY=nightly

step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

# limit MINUTES COMMAND...: ends a command that hangs, so that CI fails early; the output before says which test hung.
limit() { timeout --kill-after=10 "$1m" "${@:2}" || { echo "error: failed, or took longer than $1 minutes: ${*:2}" >&2; return 1; }; }

# cargo_tool NAME VERSION: installs the tool from source unless that version is there.
cargo_tool() {
    cargo install --list | grep -q "^$1 v$2:" || RUSTFLAGS='' cargo install --quiet --locked "$1@$2"
}

# debian COMMAND PACKAGE...: installs the packages unless the command is there.
debian() {
    local command=$1
    shift
    command -v "$command" >/dev/null || { apt-get update -qq && apt-get install -y -qq "$@" >/dev/null; }
}

# The real API server and, where there is none, kubectl of the same version.
apiserver() {
    command -v go >/dev/null || { echo 'error: Go builds the API server of the end-to-end tests, and is not installed' >&2; exit 1; }
    e2e/apiserver/build.sh
    if ! command -v kubectl >/dev/null; then
        (cd e2e/apiserver && go build -o bin/kubectl k8s.io/kubernetes/cmd/kubectl)
        export PATH="$PWD/e2e/apiserver/bin:$PATH"
    fi
}

# readme_command PATTERN: the line of README's code blocks that begins so, to be run as it is printed.
readme_command() {
    grep -m1 -E "^$1" README.md || { echo "error: README.md has no command $1" >&2; exit 1; }
}
