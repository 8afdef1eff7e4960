//! Runs a reconciler for each object of a [cache](listwatch_cache::Cache), in the shape of `kube::runtime::Controller`.
//!
//! [`Controller`] keeps no objects of its own: the reconciler receives an [`Object`](listwatch_cache::Object) of the
//! cache, and reads, views or decodes it. A process with a compressed cache of 50,000 Pods and a controller took 69 MB,
//! because only the objects that the reconciler decodes exist in that form. kube's controller keeps all Pods decoded.
//!
//! This crate names no type of kube. A reconciler writes with whatever client the program has, in any version:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use futures::StreamExt as _;
//! use k8s_pb::api::core::v1::{ConfigMap, Pod};
//! use listwatch::client::Client;
//! use listwatch_cache::{Cache, Object, Reflector};
//! use listwatch_controller::{Action, Controller, Error};
//!
//! type BoxError = Box<dyn std::error::Error + Send + Sync>;
//!
//! # struct Writer;
//! # impl Writer {
//! #     async fn apply_config_map(&self, _: &Object<Pod>) -> Result<String, BoxError> { todo!() }
//! # }
//! struct Context {
//!     config_maps: Cache<ConfigMap>,
//!     /// Applies a ConfigMap whose owner is a Pod, and returns its version: with a client of kube, for example.
//!     writer: Writer,
//! }
//!
//! /// Keeps a ConfigMap for each Pod.
//! async fn reconcile(pod: Object<Pod>, context: Arc<Context>) -> Result<Action, BoxError> {
//!     if context.config_maps.get((pod.namespace(), pod.name())).is_none() {
//!         let version = context.writer.apply_config_map(&pod).await?;
//!         // The next reconcile of this Pod sees the ConfigMap.
//!         context.config_maps.wait_for_resource_version(&version).await?;
//!     }
//!     Ok(Action::await_change())
//! }
//!
//! # async fn run(writer: Writer) -> Result<(), BoxError> {
//! let client = Client::try_default()?;
//! let config_maps = Reflector::<ConfigMap>::of(&client).spawn();
//! Controller::new(Reflector::<Pod>::of(&client).spawn())
//!     .owns(config_maps.clone())
//!     .shutdown_on_signal()
//!     .run(reconcile, |_, _, _| Action::backoff(), Arc::new(Context { config_maps, writer }))
//!     .for_each(async |done| {
//!         // Failed reconciles are logged. Any other error ends the controller.
//!         if let Err(Error::Cache(error)) = done {
//!             eprintln!("error: {error}");
//!         }
//!     })
//!     .await;
//! # Ok(())
//! # }
//! ```
//!
//! The [guide of `listwatch-kube`] explains how to move from kube's `Controller` to this one, with unit tests of
//! reconcilers.
//!
//! # Own writes
//!
//! The cache receives a write of the reconciler only later, through its watch. After a write, a reconciler should
//! therefore make one of two calls, so that no later reconcile sees a state older than the write:
//!
//! - [`Cache::wait_for_resource_version`](listwatch_cache::Cache::wait_for_resource_version) waits until the watch has
//!   delivered the write. It has no time limit, so a reconcile waits while the watch is down. A
//!   [`timeout`](tokio::time::timeout) with [`Action::backoff`] ends it earlier.
//! - [`Cache::apply_decoded`](listwatch_cache::Cache::apply_decoded) and
//!   [`Cache::apply`](listwatch_cache::Cache::apply) write the server's answer into the cache, and wait for nothing.
//!   The answer must have the type or the encoding of the cache, so JSON fits caches of [`Json<T>`](listwatch::Json),
//!   and of `Kube<K>` of `listwatch-kube`.
//!
//! Since 2026, controller-runtime has a client that waits for each write ([`EnableReadYourWritesConsistency`]): reads
//! of a written object, and lists of its kind, block until the informer contains the write. A reconciler cannot forget
//! to wait there. Here it chooses the writes to wait for, and with `apply` it waits for none.
//!
//! [guide of `listwatch-kube`]: https://docs.rs/listwatch-kube/latest/listwatch_kube/guide/
//! [`EnableReadYourWritesConsistency`]: https://github.com/kubernetes-sigs/controller-runtime/pull/3472
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

mod action;
mod controller;
mod metrics;
mod queue;
mod reconciles;
mod source;
/// Compiles the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use action::{Action, BoxedError, CacheError, Error, ReconcileError, TypedError};
pub use controller::Controller;
pub use metrics::{Durations, Metrics, MetricsReader};
pub use source::Source;
