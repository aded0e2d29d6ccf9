//! From listening to the last byte.
//!
//! A first request to stop closes the listener and lets answers that run come to their end. When they take too long,
//! or at a second request, they end with an error of their own instead of a connection that breaks off.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annulus_engine::engine::Engine;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::app::{self, App, Settings};
use super::generation::Pace;

/// How long the last events of answers that were ended may take to reach their clients.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves until a message comes over `stop`; answers that then run have `patience` to end by themselves.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(
    listener: TcpListener,
    engine: Arc<Engine>,
    settings: Settings,
    mut stop: mpsc::Receiver<()>,
    patience: Duration,
) -> io::Result<()> {
    let (draining, mut drained) = watch::channel(false);
    let (close, closing) = watch::channel(false);
    let app = App { engine, settings, pace: Pace::default(), draining: drained.clone(), closing };
    let router = app::router(Arc::new(app));
    // A token is a small packet; it must not wait for the next one.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
    });
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        // An error means that the sender is gone, and with it the reason to serve.
        let _ = drained.wait_for(|draining| *draining).await;
    });
    let mut server = pin!(server.into_future());
    tokio::select! {
        ended = &mut server => return ended,
        _ = stop.recv() => {}
    }
    tracing::info!("shutting down: answers that run may take {} s more", patience.as_secs());
    draining.send_replace(true);
    tokio::select! {
        ended = &mut server => return ended,
        () = tokio::time::sleep(patience) => {}
        _ = stop.recv() => {}
    }
    close.send_replace(true);
    match timeout(LAST_WORDS, server).await {
        Ok(ended) => ended,
        // Whoever does not read even that is cut off when the runtime ends.
        Err(_) => Ok(()),
    }
}
