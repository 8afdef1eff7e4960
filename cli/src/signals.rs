//! The signals that end a command.

/// Returns on Ctrl-C and, on Unix, on SIGTERM, with which Kubernetes and service managers end a process.
pub async fn interrupted() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    if let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    _ = interrupt.await;
}
