#!/usr/bin/env bash
# Recreates the archive of the corpus from FOLDER, which has one folder per target: a few small files that together cover every edge.
set -euo pipefail
from=$(realpath "${1:?usage: fuzz/minimize.sh FOLDER}")
cd "$(dirname "$0")"
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
for target in list_decode list_differential json_list watch_decode meta_view projection selectors http_error views json_path etcd_file; do
    mkdir -p "$corpus/$target"
    case $target in etcd_file) longest=24576 ;; *) longest=8192 ;; esac
    # Without counters: features that also count executions of an edge would keep ten times as many files.
    cargo +nightly fuzz run "$target" "$corpus/$target" "$from/$target" -- -merge=1 -use_counters=0 -max_len=$longest
    printf '%s: %s files, %s\n' "$target" "$(ls "$corpus/$target" | wc -l)" "$(du -sh "$corpus/$target" | cut -f1)"
done
# The same files give the same archive.
(cd "$corpus" && tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=a=rX,u+w -c -- *) | gzip -9n >corpus.tar.gz
