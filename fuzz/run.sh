#!/usr/bin/env bash
# Fuzzes all targets, or the named ones, for SECONDS each: fuzz/run.sh SECONDS [TARGET...]
# Leaves the corpus unchanged. FUZZ_CORPUS names a folder that keeps new inputs, one folder per target. FUZZ_SEED, a number,
# makes the inputs the same in each run.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift
targets=("$@")
[ $# -gt 0 ] || targets=(list_decode list_differential json_list watch_decode meta_view projection selectors http_error views json_path etcd_file)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
kept=${FUZZ_CORPUS:-$scratch/kept}
mkdir "$scratch/corpus"
tar -C "$scratch/corpus" -xzf corpus.tar.gz
cargo +"${NIGHTLY:-nightly}" fuzz build

failed=0
printf '%-18s %12s %8s %8s %8s  %s\n' target executions edges features seconds end
for target in "${targets[@]}"; do
    mkdir -p "$kept/$target"
    log=$scratch/$target.log
    began=$SECONDS
    # A file of etcd has several pages.
    case $target in etcd_file) longest=24576 ;; *) longest=8192 ;; esac
    end=ok
    cargo +"${NIGHTLY:-nightly}" fuzz run "$target" "$kept/$target" "$scratch/corpus/$target" -- -max_total_time="$seconds" -dict=list.dict \
        -max_len=$longest -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 ${FUZZ_SEED:+-seed="$FUZZ_SEED"} >"$log" 2>&1 || end="failed ($?)"
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    last=$(grep -aE '^#[0-9]+.* cov: ' "$log" | tail -1)
    edges=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' <<<"$last")
    features=$(sed -n 's/.* ft: \([0-9]*\).*/\1/p' <<<"$last")
    printf '%-18s %12s %8s %8s %8s  %s\n' "$target" "${executions:-?}" "${edges:-?}" "${features:-?}" $((SECONDS - began)) "$end"
    if [ "$end" != ok ]; then
        failed=1
        tail -40 "$log"
    fi
done
exit $failed
