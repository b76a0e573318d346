//! Accepts connections, and stops the server on request.
//!
//! - When `run` has ended, everything that was answered is durable, whatever commits wait for.
//! - A connection counts as a client while it has a descriptor, unless it is refused at once. HTTP
//!   connections are counted separately. So the engine keeps its share of the descriptors.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use crate::base::clock;
use crate::clients::{Client, Full};
use crate::net::connection;
use crate::net::http;
use crate::net::pulse;
use crate::net::replica;
#[cfg(feature = "tls")]
use crate::net::tls::{TlsDoor, TlsListeners};
use crate::observe::trace;
use crate::run::server::Server;
use crate::sequencer;

/// How long connections may take to end before the server ends.
const GRACE: Duration = Duration::from_secs(5);

const PROTECTED: &str = "-DENIED Esker is running in protected mode because no password is set. \
    Connect from the machine it runs on, set a password (--requirepass), or start it with --protected-mode no.\r\n";

/// The listening sockets of a server.
pub struct Listeners {
    tcp: Vec<Arc<TcpListener>>,
    #[cfg(feature = "tls")]
    tls: Option<TlsListeners>,
    http: Option<Arc<TcpListener>>,
    #[cfg(unix)]
    unix: Option<Arc<tokio::net::UnixListener>>,
}

/// Why a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was asked to stop.
    Stopped,
    /// A copy of its primary's database is complete. The server restarts with it: see `serve.rs`.
    HasCopy,
}

impl Listeners {
    /// Begins to listen as the server's options say.
    ///
    /// # Errors
    /// Fails if an address is not available.
    pub async fn bind(server: &Server) -> io::Result<Self> {
        let options = &server.options;
        #[cfg(feature = "tls")]
        let tls = match &options.tls {
            Some(tls) => Some(TlsListeners::bind(server, tls).await?),
            None => None,
        };
        #[cfg(not(feature = "tls"))]
        if options.tls.is_some() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this server was built without TLS (feature `tls`)",
            ));
        }
        let http = match &options.http {
            Some(address) => Some(Arc::new(http::bind(server, address).await?)),
            None => None,
        };
        let mut tcp = Vec::new();
        if let Some(wanted) = options.port {
            let (listeners, port) = bind_tcp(&options.bind, wanted).await?;
            tcp = listeners;
            server.ports.plain.store(u64::from(port), Ordering::Relaxed);
        }
        #[cfg(unix)]
        let unix = options.unix_socket.as_deref().map(bind_unix).transpose()?.map(Arc::new);
        Ok(Listeners {
            tcp,
            #[cfg(feature = "tls")]
            tls,
            http,
            #[cfg(unix)]
            unix,
        })
    }

    /// Records the ports in the server. A server that restarts keeps them.
    fn tell_port(&self, server: &Server) {
        let tell = |listener: Option<&Arc<TcpListener>>, port: &AtomicU64| {
            if let Some(Ok(address)) = listener.map(|listener| listener.local_addr()) {
                port.store(u64::from(address.port()), Ordering::Relaxed);
            }
        };
        tell(self.tcp.last(), &server.ports.plain);
        #[cfg(feature = "tls")]
        tell(self.tls.as_ref().and_then(|tls| tls.listeners.last()), &server.ports.tls);
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let certificates = tls.certificates.clone();
            // A server listens once.
            let _ = server.ports.read_certificates.set(Box::new(move |tls| certificates.read_again(tls)));
        }
        tell(self.http.as_ref(), &server.ports.http);
    }

    /// Returns the addresses that it listens on.
    pub fn addresses(&self) -> Vec<String> {
        let name = |listener: &TcpListener, kind| {
            listener.local_addr().map_or(String::new(), |address| format!("{address}{kind}"))
        };
        let mut addresses: Vec<_> = self.tcp.iter().map(|listener| name(listener, "")).collect();
        #[cfg(feature = "tls")]
        addresses
            .extend(self.tls.iter().flat_map(|tls| &tls.listeners).map(|listener| name(listener, " (TLS)")));
        addresses.extend(self.http.iter().map(|listener| name(listener, " (HTTP)")));
        addresses
    }
}

/// Listens on one port of several addresses. Port 0 is any free port.
pub(crate) async fn bind_tcp(
    addresses: &[String],
    mut port: u16,
) -> io::Result<(Vec<Arc<TcpListener>>, u16)> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = TcpListener::bind((address.as_str(), port)).await;
        let listener = bound
            .map_err(|error| io::Error::new(error.kind(), format!("listen on {address}:{port}: {error}")))?;
        port = listener.local_addr()?.port();
        listeners.push(Arc::new(listener));
    }
    Ok((listeners, port))
}

/// Listens on a Unix socket, and replaces a socket left by a killed server.
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

/// Serves until the server is asked to stop, then makes everything durable.
///
/// # Errors
/// Fails if the last commits cannot be made durable.
pub async fn run(server: Arc<Server>, listeners: &Listeners) -> crate::store::Result<Ended> {
    let _pulse = pulse::start();
    let sequencer = tokio::spawn(sequencer::run(server.clone()));
    listeners.tell_port(&server);
    let mut tasks = vec![tokio::spawn(look_around(server.clone()))];
    for listener in &listeners.tcp {
        tasks.push(tokio::spawn(accept_tcp(server.clone(), listener.clone(), begin)));
    }
    #[cfg(feature = "tls")]
    for (listener, door) in listeners.tls.iter().flat_map(TlsListeners::doors) {
        let begin_encrypted = move |server: &Arc<Server>, stream, peer: Peer| {
            let peer = Peer { is_near: peer.is_near || door.knows_clients, ..peer };
            begin_encrypted(server, &door, stream, peer);
        };
        tasks.push(tokio::spawn(accept_tcp(server.clone(), listener, begin_encrypted)));
    }
    if let Some(listener) = &listeners.http {
        tasks.push(tokio::spawn(http::accept(server.clone(), listener.clone())));
    }
    #[cfg(unix)]
    if let Some(listener) = &listeners.unix {
        tasks.push(tokio::spawn(accept_unix(server.clone(), listener.clone())));
    }
    let follower = tokio::task::spawn_blocking({
        let server = server.clone();
        move || replica::follow::run(&server)
    });
    let stopped = server.life.stop.notified();
    if !server.is_stopping() {
        stopped.await;
    }
    // Also ends connections that arrived while the others were being ended.
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
        server.observed.rates.note(&server.observed.stats);
        if let Some(bytes_max) = server.config.connections.memory() {
            let why = "requests and output of all connections take more than maxmemory-clients";
            connection::end_largest(&server, bytes_max, Client::memory, why);
        }
        keep_slots(&server).await;
    }
}

/// Moves the slots of replicas. Ends the connections of dropped slots, so that their replicas ask again.
async fn keep_slots(server: &Arc<Server>) {
    let of_thread = server.clone();
    let kept = tokio::task::spawn_blocking(move || {
        let replication = &of_thread.replication;
        replication.keep_slots(&replication.replicas.durable())
    });
    match kept.await {
        Ok(Ok(gone)) => {
            for (name, slot) in gone {
                let why = format!(
                    "the log behind commit {} was more than --slot-limit: the replica needs a new copy",
                    slot.at.seq
                );
                trace::warn("a replica's slot is dropped", None, &format!("{name}: {why}"));
                server.replication.replicas.end(&name);
            }
        }
        // Writes report the same error, or the server ends.
        Ok(Err(error)) => trace::warn("slots of replicas stay where they are", None, &error.to_string()),
        Err(_) => {}
    }
}

/// The two ends of a connection.
struct Peer {
    address: String,
    own_address: String,
    /// It comes from this machine, or has authenticated by a certificate.
    is_near: bool,
}

async fn accept_tcp(
    server: Arc<Server>,
    listener: Arc<TcpListener>,
    begin: impl Fn(&Arc<Server>, TcpStream, Peer) + Send,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.life.stop.notified() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                keep_alive(&stream, server.config.connections.keepalive_seconds());
                let own = stream.local_addr().map_or(String::new(), |address| address.to_string());
                let is_near = peer.ip().is_loopback() || is_own(&stream, peer.ip());
                begin(&server, stream, Peer { address: peer.to_string(), own_address: own, is_near });
            }
            // For example, no descriptors are left. Other connections may end.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Makes the system probe a client that has been silent for this long, and end the connection if there is no
/// answer.
fn keep_alive(stream: &TcpStream, seconds: u64) {
    if seconds == 0 {
        return;
    }
    let asked = TcpKeepalive::new().with_time(Duration::from_secs(seconds));
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
    let asked = asked.with_interval(Duration::from_secs((seconds / 3).max(1))).with_retries(3);
    // A system without this option serves clients as well.
    let _ = SockRef::from(stream).set_tcp_keepalive(&asked);
}

/// Returns whether a connection comes from this machine through another of its addresses.
fn is_own(stream: &TcpStream, peer: IpAddr) -> bool {
    stream.local_addr().is_ok_and(|own| own.ip() == peer)
}

#[cfg(unix)]
async fn accept_unix(server: Arc<Server>, listener: Arc<tokio::net::UnixListener>) {
    let path = server.options.unix_socket.as_ref().map_or(String::new(), |path| path.display().to_string());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.life.stop.notified() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let peer = Peer { address: format!("{path}:0"), own_address: path.clone(), is_near: true };
                begin(&server, stream, peer);
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Returns whether protected mode refuses the connection.
fn is_refused(server: &Server, peer: &Peer) -> bool {
    !peer.is_near && server.config.is_protected() && server.acl.stranger().is_some()
}

/// Counts a connection as a client, unless there are too many.
fn admit(server: &Server, peer: Peer) -> Result<Arc<Client>, Full> {
    let Peer { address, own_address, .. } = peer;
    let limits = &server.config.connections;
    let most = [limits.clients(), limits.of_address()];
    let client = server.clients.add(address, own_address, clock::now_ms(), most);
    if client.is_err() {
        server.observed.stats.refused.add(1);
    }
    client
}

fn begin<S>(server: &Arc<Server>, mut stream: S, peer: Peer)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let refuse = |mut stream: S, text: &'static str| {
        tokio::spawn(async move { connection::send_last(&mut stream, text.as_bytes()).await });
    };
    if is_refused(server, &peer) {
        server.observed.stats.refused.add(1);
        refuse(stream, PROTECTED);
        return;
    }
    match admit(server, peer) {
        Ok(client) if !server.is_stopping() => {
            tokio::spawn(serve(server.clone(), client, stream));
        }
        Ok(client) => {
            connection::leave(server, &client);
            tokio::spawn(async move { connection::close(&mut stream).await });
        }
        Err(Full::Server) => refuse(stream, "-ERR max number of clients reached\r\n"),
        Err(Full::Address) => refuse(stream, "-ERR max number of clients of this address reached\r\n"),
    }
}

/// Begins an encrypted connection. If there are too many, it is closed without a message: it has no key yet.
#[cfg(feature = "tls")]
fn begin_encrypted(server: &Arc<Server>, door: &TlsDoor, stream: TcpStream, peer: Peer) {
    let is_refused = is_refused(server, &peer);
    let Ok(client) = admit(server, peer) else { return };
    let (server, door) = (server.clone(), door.clone());
    tokio::spawn(async move {
        let agreed = if server.is_stopping() { None } else { door.agree(stream, &client).await };
        match agreed {
            Some(mut stream) if is_refused => {
                server.observed.stats.refused.add(1);
                connection::send_last(&mut stream, PROTECTED.as_bytes()).await;
                connection::leave(&server, &client);
            }
            Some(stream) => serve(server, client, stream).await,
            None => connection::leave(&server, &client),
        }
    });
}

async fn serve<S>(server: Arc<Server>, client: Arc<Client>, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    server.observed.stats.connections.add(1);
    trace::connection(&client.clone(), connection::serve(server, client, stream)).await;
}
