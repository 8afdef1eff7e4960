#!/usr/bin/env bash
# Recreates the corpus from FOLDER, which has one folder per target: a few small files that together cover every edge.
set -euo pipefail
from=$(realpath "${1:?usage: fuzz/minimize.sh FOLDER}")
cd "$(dirname "$0")"
for target in list_decode list_differential json_list watch_decode meta_view projection selectors http_error views; do
    rm -rf "corpus/$target"
    mkdir -p "corpus/$target"
    # Without counters: features that also count executions of an edge would keep ten times as many files.
    cargo +nightly fuzz run "$target" "corpus/$target" "$from/$target" -- -merge=1 -use_counters=0 -max_len=8192
    printf '%s: %s files, %s\n' "$target" "$(ls "corpus/$target" | wc -l)" "$(du -sh "corpus/$target" | cut -f1)"
done
