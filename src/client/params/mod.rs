//! The parameters of lists and watches, which are checked before anything is sent.
//!
//! They say what a request asks of the server. How the client reads the answer (namespaces, limits, restarts,
//! deadlines) is set on [`List`](super::List) and [`Watch`](super::Watch). No setting is in both places.
//!
//! | module | holds |
//! |---|---|
//! | `query` | the query string, timeouts, and [`ResourceVersion`]: how new a list must be |
//! | `selection` | [`Selection`]: which objects, and in which form |
//! | `list` | [`ListParams`] |
//! | `watch` | [`WatchParams`] |

mod list;
mod query;
mod selection;
mod watch;

pub use self::list::ListParams;
pub use self::query::ResourceVersion;
pub(super) use self::query::{DEFAULT_REQUEST_TIMEOUT, check_version};
pub use self::selection::Selection;
pub use self::watch::WatchParams;
pub(super) use self::watch::WatchStart;
