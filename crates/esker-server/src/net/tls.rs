//! TLS: certificates of the server, of clients, and of a primary.
//!
//! A connection counts as a client before its handshake. A silent client keeps its place for at most ten
//! seconds. So handshakes take no descriptors beyond `maxclients`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use tokio_rustls::server::TlsStream;

use crate::clients::Client;
use crate::config::options::{ClientCertificates, ReplicaTls, Tls};
use crate::run::server::Server;

/// Time limit of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The certificates of handshakes, which may change while the server runs.
pub struct Certificates(RwLock<TlsAcceptor>);

impl Certificates {
    /// Reads the certificates of these files, for handshakes from now on. Existing connections stay.
    ///
    /// # Errors
    /// A certificate cannot be read or used. The former ones stay.
    pub fn read_again(&self, options: &Tls) -> io::Result<()> {
        let acceptor = acceptor(options)?;
        *self.0.write() = acceptor;
        Ok(())
    }
}

/// The sockets for encrypted connections.
pub struct TlsListeners {
    /// The listening sockets.
    pub listeners: Vec<Arc<TcpListener>>,
    /// The certificates of handshakes.
    pub certificates: Arc<Certificates>,
    /// Whether clients must present certificates, which authenticates them.
    knows_clients: bool,
}

fn invalid(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("TLS: {}: {error}", path.display()))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates {
        Ok(found) if found.is_empty() => Err(invalid(path, "no certificate in it")),
        found => found.map_err(|error| invalid(path, error)),
    }
}

fn roots(path: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| invalid(path, error))?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| invalid(path, error))
}

/// An encrypted connection to a primary.
pub type ClientStream = StreamOwned<ClientConnection, std::net::TcpStream>;

/// Completes the handshake with a primary and checks its certificate.
///
/// # Errors
/// A certificate cannot be read or used; the primary's does not lead to the roots, or is for another host;
/// the handshake takes too long.
pub fn connect(stream: std::net::TcpStream, host: &str, options: &ReplicaTls) -> io::Result<ClientStream> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots(&options.ca)?);
    let config = match &options.client {
        None => builder.with_no_client_auth(),
        Some((path, key)) => builder
            .with_client_auth_cert(certificates(path)?, private_key(key)?)
            .map_err(|error| invalid(path, error))?,
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = stream;
    stream.set_read_timeout(Some(HANDSHAKE_MAX))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

fn acceptor(options: &Tls) -> io::Result<TlsAcceptor> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = match (options.clients, &options.ca) {
        (ClientCertificates::No, _) => builder.with_no_client_auth(),
        (_, None) => {
            let text = "TLS: certificates of clients need --tls-ca-cert-file to be checked by";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        (wanted, Some(path)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
            let verifier = match wanted {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| invalid(path, error))?)
        }
    };
    let key = private_key(&options.key)?;
    let config = builder
        .with_single_cert(certificates(&options.cert)?, key)
        .map_err(|error| invalid(&options.cert, error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

impl TlsListeners {
    /// Begins to listen as the options say.
    ///
    /// # Errors
    /// A certificate cannot be read or used, or an address is not available.
    pub async fn bind(server: &Server, options: &Tls) -> io::Result<Self> {
        let acceptor = acceptor(options)?;
        let (listeners, port) = crate::net::listen::bind_tcp(&server.options.bind, options.port).await?;
        server.ports.tls.store(u64::from(port), Ordering::Relaxed);
        Ok(TlsListeners {
            listeners,
            certificates: Arc::new(Certificates(RwLock::new(acceptor))),
            knows_clients: options.clients == ClientCertificates::Required,
        })
    }

    /// Returns each listening socket, with the acceptor for its handshakes.
    pub fn doors(&self) -> impl Iterator<Item = (Arc<TcpListener>, TlsDoor)> {
        self.listeners.iter().map(|listener| {
            let door = TlsDoor { certificates: self.certificates.clone(), knows_clients: self.knows_clients };
            (listener.clone(), door)
        })
    }
}

/// Completes the handshakes of connections.
#[derive(Clone)]
pub struct TlsDoor {
    certificates: Arc<Certificates>,
    /// Whether clients must present certificates, which authenticates them.
    pub knows_clients: bool,
}

impl TlsDoor {
    /// Completes a handshake. `None` if it takes too long, or if the connection has to end.
    pub async fn agree(&self, stream: TcpStream, client: &Client) -> Option<TlsStream<TcpStream>> {
        let acceptor = self.certificates.0.read().clone();
        tokio::select! {
            agreed = tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)) => agreed.ok()?.ok(),
            () = client.outbox.ended() => None,
        }
    }
}
