//! Takes connections, and ends the server when it is told to.
//!
//! listen.1. After the end of `run` all that was answered is durable, whatever commits wait for.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::clock;
use crate::connection;
use crate::replication;
use crate::sequencer;
use crate::server::Server;

/// How long connections have to end before the server does.
const GRACE: Duration = Duration::from_secs(5);

const PROTECTED: &str = "-DENIED Esker is running in protected mode because no password is set. \
    Connect from the machine it runs on, set a password (--requirepass), or start it with --protected-mode no.\r\n";

/// Where a server listens.
pub struct Listeners {
    tcp: Vec<Arc<TcpListener>>,
    #[cfg(unix)]
    unix: Option<Arc<tokio::net::UnixListener>>,
}

/// How a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop.
    Stopped,
    /// A copy of its primary's database has come: the server begins anew with it: see `serve.rs`.
    HasCopy,
}

impl Listeners {
    /// Begins to listen where the server's options say.
    ///
    /// # Errors
    /// An address cannot be had.
    pub async fn bind(server: &Server) -> io::Result<Self> {
        let options = &server.options;
        let mut tcp = Vec::new();
        if let Some(mut port) = options.port {
            for address in &options.bind {
                let listener = TcpListener::bind((address.as_str(), port)).await.map_err(|error| {
                    io::Error::new(error.kind(), format!("listen on {address}:{port}: {error}"))
                })?;
                port = listener.local_addr()?.port();
                server.port.store(u64::from(port), Ordering::Relaxed);
                tcp.push(Arc::new(listener));
            }
        }
        #[cfg(unix)]
        let unix = options.unix_socket.as_deref().map(bind_unix).transpose()?.map(Arc::new);
        Ok(Listeners {
            tcp,
            #[cfg(unix)]
            unix,
        })
    }

    /// A server that begins anew listens where it did.
    fn tell_port(&self, server: &Server) {
        if let Some(Ok(address)) = self.tcp.last().map(|listener| listener.local_addr()) {
            server.port.store(u64::from(address.port()), Ordering::Relaxed);
        }
    }

    /// The addresses it listens on.
    pub fn addresses(&self) -> Vec<String> {
        let tcp = self.tcp.iter().filter_map(|listener| listener.local_addr().ok());
        tcp.map(|address| address.to_string()).collect()
    }
}

/// Listens on a socket, in the place of one that a killed server has left.
#[cfg(unix)]
fn bind_unix(path: &Path) -> io::Result<tokio::net::UnixListener> {
    let bind = || tokio::net::UnixListener::bind(path);
    match bind() {
        Err(error)
            if error.kind() == io::ErrorKind::AddrInUse
                && std::os::unix::net::UnixStream::connect(path).is_err() =>
        {
            #[expect(clippy::disallowed_methods, reason = "a socket, no file of the database")]
            std::fs::remove_file(path)?;
            bind()
        }
        bound => bound
            .map_err(|error| io::Error::new(error.kind(), format!("listen on {}: {error}", path.display()))),
    }
}

/// Serves until the server is told to stop, then makes all durable (listen.1).
///
/// # Errors
/// What was committed last cannot be made durable.
pub async fn run(server: Arc<Server>, listeners: &Listeners) -> crate::store::Result<Ended> {
    let sequencer = tokio::spawn(sequencer::run(server.clone()));
    listeners.tell_port(&server);
    let mut tasks = vec![tokio::spawn(look_around(server.clone()))];
    for listener in &listeners.tcp {
        tasks.push(tokio::spawn(accept_tcp(server.clone(), listener.clone())));
    }
    #[cfg(unix)]
    if let Some(listener) = &listeners.unix {
        tasks.push(tokio::spawn(accept_unix(server.clone(), listener.clone())));
    }
    let follower = tokio::task::spawn_blocking({
        let server = server.clone();
        move || replication::follow(&server)
    });
    let stopped = server.stop.notified();
    if !server.is_stopping() {
        stopped.await;
    }
    // A connection that came while the others were told is told now.
    server.end();
    let _ = tokio::time::timeout(GRACE, sequencer).await;
    let _ = tokio::time::timeout(GRACE, follower).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    let ended = if server.has_copy() { Ended::HasCopy } else { Ended::Stopped };
    #[cfg(unix)]
    if let Some(path) = server.options.unix_socket.as_ref().filter(|_| ended == Ended::Stopped) {
        #[expect(clippy::disallowed_methods, reason = "a socket, no file of the database")]
        let _ = std::fs::remove_file(path);
    }
    tokio::task::block_in_place(|| server.store.sync())?;
    Ok(ended)
}

async fn look_around(server: Arc<Server>) {
    let mut every = tokio::time::interval(Duration::from_secs(1));
    loop {
        every.tick().await;
        server.look_at_memory();
    }
}

async fn accept_tcp(server: Arc<Server>, listener: Arc<TcpListener>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.stop.notified() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                let own = stream.local_addr().map_or(String::new(), |address| address.to_string());
                let is_near = peer.ip().is_loopback() || is_own(&stream, peer.ip());
                begin(&server, stream, peer.to_string(), own, is_near);
            }
            // No descriptors, say: others may end.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Whether a connection comes from the machine itself, by another of its addresses.
fn is_own(stream: &TcpStream, peer: IpAddr) -> bool {
    stream.local_addr().is_ok_and(|own| own.ip() == peer)
}

#[cfg(unix)]
async fn accept_unix(server: Arc<Server>, listener: Arc<tokio::net::UnixListener>) {
    let path = server.options.unix_socket.as_ref().map_or(String::new(), |path| path.display().to_string());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.stop.notified() => return,
        };
        match accepted {
            Ok((stream, _)) => begin(&server, stream, format!("{path}:0"), path.clone(), true),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn begin<S>(server: &Arc<Server>, mut stream: S, peer: String, own: String, is_near: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let refuse = |mut stream: S, text: &'static str| {
        server.stats.refused.add(1);
        tokio::spawn(async move {
            let _ = stream.write_all(text.as_bytes()).await;
        });
    };
    if !is_near && server.config.is_protected() && !server.config.has_password() {
        refuse(stream, PROTECTED);
        return;
    }
    match server.clients.add(peer, own, clock::now_ms(), server.config.clients_max()) {
        Some(client) if !server.is_stopping() => {
            server.stats.connections.add(1);
            tokio::spawn(connection::serve(server.clone(), client, stream));
        }
        Some(client) => {
            server.clients.remove(&client);
            tokio::spawn(async move { stream.shutdown().await });
        }
        None => refuse(stream, "-ERR max number of clients reached\r\n"),
    }
}
