#!/usr/bin/env bash
# Runs the demo and the benches, and writes two tables of docs/benchmarking.md: the demo's rows, and the medians of the benches.
# Needs jq, 4 GB of memory and an idle machine. Passes its arguments to criterion: `benches/readme.sh --measurement-time 1`.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}

# Each row has four columns: what the bench does, its name, the reference, and the name of the reference's bench.
rows='
skip over the items, chunks of 64 KiB    | framing/framing-65536                | memcpy                 | framing/memcpy-65536
skip over the items, chunks of 4 KiB     | framing/framing-4096                 | memcpy                 | framing/memcpy-4096
split a JSON list, chunks of 64 KiB      | json-pods/split-65536                | memcpy                 | json-pods/memcpy-65536
split a JSON list, chunks of 4 KiB       | json-pods/split-4096                 | `serde_json::Value`    | json-pods/value
decode and drop, chunks of 64 KiB        | decode/Pods dropped-65536            | full buffer            | decode/full buffer
keep `Box<Pod>`, chunks of 64 KiB        | decode/Pods kept-65536               | full buffer            | decode/full buffer
keep `Box<[u8]>`, chunks of 64 KiB       | decode/bytes kept-65536              | full buffer            | decode/full buffer
read name, namespace, uid and version    | look/name, namespace, uid, version   | decoding               | look/decode with k8s-pb
copy without managedFields               | look/copy without managedFields      | decoding               | look/decode with k8s-pb
count over loopback                      | client/count                         | draining with reqwest  | client/drain
'

# Prints the unit of a bench's throughput and the number of units per second.
speed() {
    jq -sr '(.[0].throughput | to_entries[0]) as $one | "\($one.key) \($one.value / .[1].median.point_estimate * 1e9)"' \
        "$target/criterion/$1/new/"{benchmark,estimates}.json
}

benches() {
    printf '\n| work | speed | reference | ratio |\n|---|---:|---|---:|\n'
    while IFS='|' read -r work bench reference its_bench; do
        read -r bench <<<"$bench"
        read -r its_bench <<<"$its_bench"
        { speed "$bench" && speed "$its_bench"; } | awk -v work="$work" -v reference="$reference" '
            function three_digits(n) { return sprintf("%.*f", n < 10 ? 2 : n < 100 ? 1 : 0, n) }
            { speed[NR] = $2 }
            NR == 1 { text = $1 == "Bytes" ? three_digits($2 / 1e9) " GB/s" : three_digits($2 / 1e3) " Pods/ms" }
            END { gsub(/ +$/, "", work); gsub(/^ +| +$/, "", reference)
                  print "| " work " | " text " | " reference " | " three_digits(speed[1] / speed[2]) " |" }'
    done < <(grep . <<<"$rows")
    echo
}

# Prints the demo's table in Markdown. In the demo's output, at least two spaces separate the eight columns.
demo() {
    printf '\n| | wall time | user time | system time | first item | peak memory | held per item | memory ratio |\n'
    echo '|---|---:|---:|---:|---:|---:|---:|---:|'
    cargo run --release --locked -p listwatch-demo -- --svg "$target/demo.svg" | awk -F '  +' '
        NF == 8 && /^(full buffer|listwatch)/ { gsub(/  +/, " | "); gsub(/Box<[^ ]+>/, "`&`"); print "| " $0 " |"; rows++ }
        END { if (rows != 4) { print "error: the table of the demo does not have four rows" >"/dev/stderr"; exit 1 } }'
    echo
}

# Writes a table between the two comments of its name.
publish() {
    sed -i -e "/<!-- $1 /,/<!-- end of $1 -->/{//!d}" -e "/<!-- $1 /r $target/$1.md" docs/benchmarking.md
}

cargo bench --locked -p listwatch-benches --bench framing --bench decode --bench json --bench look --bench client -- "$@"
benches >"$target/benches.md"
demo >"$target/demo.md"
publish benches
publish demo
