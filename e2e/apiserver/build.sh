#!/bin/sh
# Builds the API server, its loader, an informer of client-go and kubectl into bin/: build.sh [1.36]
# kubectl, storage and boltdiff are always of the newest release; kubectl reads older servers too.
# The module for an older release is go-RELEASE.mod.
set -eu
cd "$(dirname "$0")"
mod=go${1:+-$1}.mod
release=$(sed -n 's/^\tk8s.io\/kubernetes v//p' "$mod")
minor=${release#1.}
version=k8s.io/component-base/version
flags="-s -w -X $version.gitVersion=v$release -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*}"
newest="./storage ./boltdiff k8s.io/kubernetes/cmd/kubectl"
[ $# -eq 0 ] || newest=
exec go build -modfile="$mod" -ldflags "$flags" -o bin/ ./server ./load ./informer $newest
