#!/bin/sh
# Builds the API server, its loader and an informer of client-go into bin/.
set -eu
cd "$(dirname "$0")"
version=k8s.io/component-base/version
flags="-s -w -X $version.gitVersion=v1.36.3 -X $version.gitMajor=1 -X $version.gitMinor=36"
exec go build -ldflags "$flags" -o bin/ ./server ./load ./informer
