#!/bin/sh
# Installs the files of this archive: ./install.sh [PREFIX], /usr/local unless a prefix is named. The command is also
# `kubectl listwatch`, by a link.
set -eu
cd "$(dirname "$0")"
prefix=${1:-/usr/local}
for folder in bin share/man/man1 share/bash-completion/completions share/zsh/site-functions share/fish/vendor_completions.d; do
    mkdir -p "$prefix/$folder"
done
cp listwatch kubectl_complete-listwatch "$prefix/bin/"
ln -sf listwatch "$prefix/bin/kubectl-listwatch"
cp man/man1/*.1 "$prefix/share/man/man1/"
cp completions/listwatch.bash "$prefix/share/bash-completion/completions/listwatch"
cp completions/_listwatch "$prefix/share/zsh/site-functions/"
cp completions/listwatch.fish "$prefix/share/fish/vendor_completions.d/"
