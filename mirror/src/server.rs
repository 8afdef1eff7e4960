//! The accept loop.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

use crate::shared::Shared;

pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    _ = (listener, tls);
    shutdown.await;
    shared.start_shutdown();
    Ok(())
}
