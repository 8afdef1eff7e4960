//! The accept loop.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use listwatch::internal::{WarningLimit, without_os_numbers};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::http::{HttpServer, RequestHandler};
use super::tls::ServingCertificate;
use crate::fairness::Peer;

/// The interval at which the files of the certificate are read.
const RELOAD_INTERVAL: Duration = Duration::from_secs(60);

/// The delay after a failed accept, for example with too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepts connections until `shutdown` completes. Then open requests have `drain_timeout` to end.
pub(crate) async fn serve_listener(
    server: Arc<HttpServer<impl RequestHandler>>,
    listener: TcpListener,
    mut certificate: Option<ServingCertificate>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let warnings = WarningLimit::default();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    let mut reload = interval(RELOAD_INTERVAL);
    reload.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            _ = reload.tick() => if let Some(certificate) = &mut certificate {
                certificate.reload_files();
                server.metrics.set_certificate_expiry(certificate.expiry());
            },
            accepted = listener.accept() => match accepted {
                Ok((stream, remote)) => {
                    let tls = certificate.as_ref().map(|certificate| certificate.acceptor().clone());
                    let server = Arc::clone(&server);
                    connections.spawn(async move { server.open_connection(stream, Peer::new(remote.ip()), tls).await });
                }
                Err(error) => {
                    let error = without_os_numbers(error);
                    if let Some(left_out) = warnings.admit(&error) {
                        tracing::warn!(name: "listwatch.mirror.accept", %error, left_out, "cannot accept a connection");
                    }
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    server.shutdown.start();
    let drained = async { while connections.join_next().await.is_some() {} };
    if timeout(server.limits.drain_timeout, drained).await.is_err() {
        connections.shutdown().await;
    }
    Ok(())
}
