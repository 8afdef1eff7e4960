#![doc = include_str!("../README.md")]

// Layers, lowest first: a file imports only files of rows above its own, and files before it in its own row. A request
// passes through the layers from `accept` to `forward` in this order; `pipeline.rs` has all its steps.
//
// | layer | files | job |
// |---|---|---|
// | `settings` | | who may read, and the limits on readers |
// | `shutdown` | | the signal that ends watches and connections |
// | `queue` | | permits for a limited number of requests |
// | `metrics` | | counters and gauges |
// | `response` | `body`, `gzip`, `status` | bodies, their compression, errors as Statuses |
// | `accept` | `reader`, `tls`, `stall`, `open_responses`, `http`, `listener` | connections |
// | `request` | `query`, `attributes`, `list_options`, `path`, `info`, `filter` | what a request asks for |
// | `authorize` | `error`, `review_cache`, `review_client`, `reviewer`, `authorizer` | reviews of readers |
// | `negotiate` | | the representation of a response |
// | `resource` | `current_version`, `paged_snapshots`, `table_printer`, `mirrored`, `set` | the mirrored resources |
// | `answer` | `list_queue`, `freshness`, `continue_token`, `select`, `table_encoder`, `read_encoder`, `cache_read`, `get`, `list`, `watch`, `handler` | reads from a cache |
// | `forward` | | requests that the API server answers |
// | `own_pages` | | probes and metrics |
// | `pipeline` | | all steps of a request |
// | `mirror` | | the public builder |
// | `testing` | | a mirror without sockets, for unit tests |

mod accept;
mod answer;
mod authorize;
mod forward;
mod metrics;
mod mirror;
mod negotiate;
mod own_pages;
mod pipeline;
mod queue;
mod request;
mod resource;
mod response;
mod settings;
mod shutdown;
#[cfg(test)]
mod testing;

pub use self::mirror::Mirror;
pub use self::resource::Mirrored;
pub use self::settings::{Access, Limits};
