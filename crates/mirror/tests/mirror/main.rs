//! The promises of the mirror to its readers and to the cluster, over real sockets.

mod dashboards;
mod forwarding;
mod limits;
mod loopback;
mod metrics;
mod reviewed;
mod support;
