//! [listwatch](https://docs.rs/listwatch) for users of [kube-rs](https://docs.rs/kube).
//!
//! - [`KubeTransport`] makes listwatch's client send its requests through a `kube::Client` that you have built. Most
//!   programs do not need it: [`Client::try_default`](listwatch::client::Client::try_default) reads the kubeconfig itself.
//! - [`Kube`] makes types of k8s-openapi and derived custom resources items of listwatch's lists and watches, and
//!   objects of its caches. [`ToLabelSelector`] converts selectors of k8s-openapi, [`ToResource`] and [`FromResource`]
//!   kube's `ApiResource`. `ToObjectKey` and `ToObjectRef` (feature `runtime`) convert kube's `ObjectRef`.
//! - `finalizer` (feature `controller`) is kube's, for reconcilers of [listwatch-controller], whose `Controller` runs on
//!   listwatch's caches with the words of kube's.
//! - `Store` (feature `runtime`) is a cache with the methods of kube's `Store`. kube's own `Controller` runs on a cache,
//!   too: see the [guide](https://docs.rs/listwatch-kube/latest/listwatch_kube/guide/index.html#kubes-own-controller).
//!
//! This crate follows kube's major versions: this version is for kube 5. `listwatch` does not depend on kube: its
//! [`ServiceTransport`](listwatch::client::ServiceTransport) works with [other versions].
//! The types of k8s-openapi need a feature that selects a version of Kubernetes:
//!
//! ```toml
//! listwatch-kube = "0.1" # features, off by default: "controller", "k8s-pb", "runtime"
//! kube = "5"
//! k8s-openapi = { version = "0.29", features = ["latest"] }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! It exports the crates [`listwatch`] and [`listwatch_cache`], with the feature `controller` also
//! `listwatch_controller`, and with the feature `k8s-pb` the types that are decoded from protobuf. After `use listwatch_kube::{listwatch, listwatch_cache};` the examples in their docs compile.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::Pod;
//! use listwatch_kube::listwatch::client::Client;
//! use listwatch_kube::listwatch_cache::Reflector;
//! use listwatch_kube::Kube;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! // Both clients read the same kubeconfig: listwatch's for reads, and kube's for writes.
//! let (reads, writes) = (Client::try_default()?, kube::Client::try_default().await?);
//! let pods = Reflector::<Kube<Pod>>::of(&reads).spawn();
//! println!("{} Pods at version {}", pods.len(), pods.synced().await?);
//! # Ok(())
//! # }
//! ```
//!
//! [listwatch-controller]: https://docs.rs/listwatch-controller
//! [other versions]: https://docs.rs/listwatch-kube/latest/listwatch_kube/guide/index.html#other-versions-of-kube
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

// Files import downwards only. The order, lowest first:
//
// | module | holds |
// |---|---|
// | `kind` | `Kube<K>`: types of kube as items and objects |
// | `dynamic` | `ApiResource` and `GroupVersionKind` of kube, as resources |
// | `object_ref` | `ObjectRef` of kube, as keys |
// | `selectors` | label selectors of k8s-openapi |
// | `transport` | the transport over `kube::Client` |
// | `store` | a cache with the methods of kube's `Store`, over `object_ref` |
// | `finalizer` | finalizers for reconcilers of `listwatch-controller` |
//
// Within a folder, `mod.rs` is the highest file, and names the order of the others.
#[cfg(feature = "controller")]
pub mod finalizer;
#[cfg(all(any(doc, doctest), feature = "controller"))]
#[doc = include_str!("../guide.md")]
pub mod guide {}
/// Compiles the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
mod dynamic;
mod kind;
#[cfg(feature = "runtime")]
mod object_ref;
mod selectors;
#[cfg(feature = "runtime")]
mod store;
mod transport;

pub use dynamic::{FromResource, ToResource};
#[cfg(feature = "k8s-pb")]
pub use k8s_pb;
pub use kind::Kube;
#[cfg(feature = "controller")]
pub use listwatch_controller;
#[cfg(feature = "runtime")]
pub use object_ref::{ToObjectKey, ToObjectRef};
pub use selectors::ToLabelSelector;
#[cfg(feature = "runtime")]
pub use store::Store;
pub use transport::KubeTransport;
pub use {listwatch, listwatch_cache};
