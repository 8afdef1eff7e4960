//! Tests of the library against a real kube-apiserver, one module per promise.
//!
//! `e2e/apiserver/build.sh` builds the server; `cargo test -p listwatch-e2e --test apiserver -- --test-threads=2` runs
//! the tests. Each test starts its own servers. Two at a time use two cores; more of them could exceed their time
//! limits.

mod controller;
mod count;
mod etcd;
mod finalizer;
mod get;
mod get_watch;
mod list;
mod manifests;
mod mirror;
mod mirror_access;
mod mirror_freshness;
mod reflector;
mod shards;
mod tables;
mod warm;
mod watch;
