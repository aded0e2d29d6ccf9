//! `annulus serve`: a model over HTTP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use annulus_engine::engine::Engine;
use annulus_engine::worker::Status;
use axum::http::HeaderValue;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::{Failure, model};
use crate::http::app::Settings;
use crate::http::shutdown;

/// Threads that tokenize. More would not be faster on the few cores that the model leaves.
const BLOCKING_THREADS: usize = 4;

/// More than a decode step or a prefill chunk takes, after which the model's thread sees that nobody listens.
const LAST_STEP: Duration = Duration::from_secs(2);

/// The flags of `annulus serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    model: model::Args,
    /// The address to listen on; 0.0.0.0 is all of this machine's.
    #[arg(long, env = "ANNULUS_HOST", default_value = "127.0.0.1")]
    host: String,
    /// The port to listen on; 0 picks a free one and prints it.
    #[arg(long, env = "ANNULUS_PORT", default_value_t = 8080)]
    port: u16,
    /// The most requests that wait; a further one is refused.
    #[arg(long, env = "ANNULUS_MAX_QUEUE", default_value_t = 32)]
    max_queue: usize,
    /// The most bytes of a request's body.
    #[arg(long, env = "ANNULUS_MAX_BODY", default_value_t = 8 << 20, value_name = "BYTES")]
    max_body: usize,
    /// An origin whose web pages may use the server, such as http://localhost:3000, or `*` for all; may be repeated.
    #[arg(long, env = "ANNULUS_CORS_ORIGIN", value_delimiter = ',', value_name = "ORIGIN")]
    cors_origin: Vec<HeaderValue>,
    /// How long answers that run may take to end when the server is asked to stop.
    #[arg(long, env = "ANNULUS_SHUTDOWN_TIMEOUT", default_value_t = 10, value_name = "SECONDS")]
    shutdown_timeout: u64,
    /// Make the model's thread die after so many tokens, to see what becomes of requests then.
    #[arg(long, env = "ANNULUS_FAULT_AFTER", hide = true, value_name = "TOKENS")]
    fault_after: Option<usize>,
}

/// Runs the command.
pub(super) fn run(args: Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()?;
    let listener = runtime.block_on(listen(&args.host, args.port))?;
    let engine = Arc::new(args.model.open(args.max_queue, args.fault_after)?);
    runtime.block_on(serve(args, listener, Arc::clone(&engine)))?;
    // Connections whose clients do not read are not waited for; with them go the jobs that they wait for.
    runtime.shutdown_background();
    leave(&engine)
}

async fn serve(args: Args, listener: TcpListener, engine: Arc<Engine>) -> Result<(), Failure> {
    // Before anybody can know that the server is there.
    let stop = stop_requests()?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    if !address.ip().is_loopback() {
        tracing::warn!("{address} is open to the network, and nothing here asks for a password");
    }
    let settings = Settings { max_body: args.max_body, cors_origins: args.cors_origin, ..Settings::default() };
    let patience = Duration::from_secs(args.shutdown_timeout);
    let mut load_failed = watch_load(Arc::clone(&engine));
    let server = shutdown::serve(listener, Arc::clone(&engine), settings, stop, patience);
    tokio::select! {
        ended = server => ended?,
        // A model that has run and died is reported by /health; one that never ran leaves nothing to serve.
        Ok(reason) = &mut load_failed => return Err(reason.into()),
    }
    Ok(())
}

/// Ends the model's thread.
///
/// MLX takes its state down when a process exits in the usual way, which a thread that is still at work would not
/// survive. So when the model is still being loaded, the process ends without that.
fn leave(engine: &Engine) -> Result<(), Failure> {
    if engine.stop_within(LAST_STEP) {
        return Ok(());
    }
    tracing::info!("leaving while the model's thread is at work");
    #[cfg(unix)]
    // SAFETY: it ends the process at once and touches no memory of ours; standard output is flushed line by line.
    unsafe {
        nix::libc::_exit(0)
    }
    #[cfg(not(unix))]
    std::process::exit(0)
}

async fn listen(host: &str, port: u16) -> Result<TcpListener, Failure> {
    TcpListener::bind((host, port)).await.map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::AddrInUse => "; choose another port with --port (0 picks a free one)",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges, choose another with --port",
            _ => "; choose another address with --host and --port",
        };
        format!("cannot listen on {host}:{port}: {error}{advice}").into()
    })
}

/// Logs when the model is ready; the channel tells when its loading failed.
fn watch_load(engine: Arc<Engine>) -> oneshot::Receiver<String> {
    let (tell, told) = oneshot::channel();
    let began = std::time::Instant::now();
    std::thread::spawn(move || match engine.wait_until_loaded() {
        // One that has a front was loaded and died since.
        Status::Failed(reason) if engine.front().is_none() => {
            let _ = tell.send(reason);
        }
        _ => {
            let front = engine.front();
            let (id, details) = front.map(|front| (front.id.clone(), front.details.clone())).unwrap_or_default();
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            tracing::info!(model = id, ms, ?details, "ready");
        }
    });
    told
}

/// A message for each Ctrl-C and SIGTERM from now on.
fn stop_requests() -> io::Result<mpsc::Receiver<()>> {
    let (sender, receiver) = mpsc::channel(2);
    let mut signals = Signals::listen()?;
    tokio::spawn(async move {
        loop {
            signals.next().await;
            // More than two change nothing.
            let _ = sender.try_send(());
        }
    });
    Ok(receiver)
}

/// The signals that ask a program to end.
#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Takes the signals over at once: until then they end the process.
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ctrl-C, where that is all there is.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
