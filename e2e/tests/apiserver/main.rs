//! The library against a real kube-apiserver, a module for each promise.
//!
//! `e2e/apiserver/build.sh` builds the server, then `cargo test -p listwatch-e2e --test apiserver -- --test-threads=1`. Each test
//! starts servers of its own; two tests at once would share the cores, and their time limits with them.

mod kube_watcher;
mod list;
mod reflector;
mod shards;
mod warm;
mod watch;
