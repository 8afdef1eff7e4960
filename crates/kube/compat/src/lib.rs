//! `tests/compat.rs` runs `listwatch` over older versions of kube.
