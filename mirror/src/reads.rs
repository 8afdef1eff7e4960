//! Answers from the caches.

use http::Response;

use crate::accept::Form;
use crate::auth::Granted;
use crate::body::Body;
use crate::request::Read;
use crate::shared::Shared;
use crate::status::Refusal;

/// Answers a read from the cache of its resource.
#[expect(clippy::unused_async, reason = "reads wait for versions")]
pub(crate) async fn answer(
    shared: &Shared,
    read: Read,
    form: Form,
    granted: Granted,
) -> Result<Response<Body>, Refusal> {
    _ = (shared, read, form, granted);
    Err(Refusal::Forward)
}
