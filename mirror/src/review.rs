//! Reviews of tokens and of access by the API server.

use std::sync::Arc;

use listwatch::client::Transport;

pub(crate) struct Reviewer {
    _transport: Arc<dyn Transport>,
}

impl Reviewer {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { _transport: transport }
    }
}
