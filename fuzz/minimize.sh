#!/usr/bin/env bash
# Makes the corpus anew: of the folder given, one folder per target, the smallest files that cover all of it.
set -euo pipefail
from=$(realpath "${1:?the folder to take them from}")
cd "$(dirname "$0")"
for target in list_decode list_differential json_list watch_decode meta_view projection selectors http_error; do
    rm -rf "corpus/$target"
    mkdir -p "corpus/$target"
    # Edges alone: features, which count how often too, would keep ten times as many.
    cargo +nightly fuzz run "$target" "corpus/$target" "$from/$target" -- -merge=1 -use_counters=0 -max_len=8192
    printf '%s: %s files, %s\n' "$target" "$(ls "corpus/$target" | wc -l)" "$(du -sh "corpus/$target" | cut -f1)"
done
