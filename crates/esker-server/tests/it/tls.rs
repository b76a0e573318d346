//! Encrypted connections, with certificates generated for the tests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use esker::Db;
use esker_server::{ClientCertificates, Options, ReplicaTls, Source, Tls, Upstream};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{TestServer, until};
use crate::node::{Node, assert_same};

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    /// Generates a root, certificates of a server and a client that it signed, and an untrusted one.
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = |name: &str| {
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
        };
        let (ours, theirs) = (root("ours"), root("theirs"));
        let files = Files { dir };
        std::fs::write(files.path("root.pem"), ours.pem()).unwrap();
        for (name, root) in [("server", &ours), ("client", &ours), ("stranger", &theirs)] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let made = params.signed_by(&key, root).unwrap();
            std::fs::write(files.path(&format!("{name}.pem")), made.pem()).unwrap();
            std::fs::write(files.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn options(&self, clients: ClientCertificates) -> Options {
        let tls = Tls {
            port: 0,
            cert: self.path("server.pem"),
            key: self.path("server.key"),
            ca: Some(self.path("root.pem")),
            clients,
        };
        Options { tls: Some(tls), ..Options::default() }
    }

    fn serve(&self, clients: ClientCertificates) -> TestServer {
        let options = self.options(clients);
        TestServer::start_with(Db::in_memory().unwrap(), options)
    }

    /// Returns the reply to a `PING`, with a client certificate if `name` is given.
    fn ping(&self, server: &TestServer, name: Option<&str>) -> std::io::Result<String> {
        let mut roots = RootCertStore::empty();
        let pem = |path: &Path| CertificateDer::from_pem_file(path).unwrap();
        roots.add(pem(&self.path("root.pem"))).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match name {
            None => config.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                let certificate = pem(&self.path(&format!("{name}.pem")));
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let host = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), host).unwrap();
        let port = server.server.ports.tls.load(Ordering::Relaxed) as u16;
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut stream = StreamOwned::new(connection, stream);
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply)?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }
}

#[test]
fn certificates_decide_which_clients_come_in() {
    let files = Files::make();
    for (clients, without, with, with_a_strange_one) in [
        (ClientCertificates::No, true, true, true),
        (ClientCertificates::Optional, true, true, false),
        (ClientCertificates::Required, false, true, false),
    ] {
        let server = files.serve(clients);
        for (name, may) in [(None, without), (Some("client"), with), (Some("stranger"), with_a_strange_one)] {
            let got = files.ping(&server, name);
            assert_eq!(got.ok().as_deref(), may.then_some("+PONG\r\n"), "{clients:?} {name:?}");
        }
    }
}

#[test]
fn certificates_are_read_again_while_clients_are_connected() {
    let (files, others) = (Files::make(), Files::make());
    let server = files.serve(ClientCertificates::Required);
    let mut wire = server.wire();
    let ping = |files: &Files| files.ping(&server, Some("client")).ok();
    assert_eq!(ping(&files).as_deref(), Some("+PONG\r\n"));
    assert_eq!(ping(&others), None, "another root signed the server's certificate");
    let set = |names: &[&str]| {
        let file = |name: &str| match name {
            "tls-cert-file" => others.path("server.pem"),
            "tls-key-file" => others.path("server.key"),
            _ => others.path("root.pem"),
        };
        let pairs = names.iter().flat_map(|name| [(*name).to_owned(), file(name).display().to_string()]);
        ["CONFIG".to_owned(), "SET".to_owned()].into_iter().chain(pairs).collect::<Vec<_>>()
    };
    // A certificate without its key changes nothing.
    let refused = format!("{:?}", wire.call(&set(&["tls-cert-file"])));
    assert!(refused.starts_with("-ERR CONFIG SET failed - TLS: "), "{refused}");
    assert!(
        wire.say("CONFIG SET tls-cert-file /missing").starts_with("-ERR CONFIG SET failed - TLS: /missing")
    );
    let shown = wire.say("CONFIG GET tls-cert-file");
    assert!(shown.contains(&files.path("server.pem").display().to_string()), "{shown}");
    assert_eq!(ping(&files).as_deref(), Some("+PONG\r\n"));
    let all = set(&["tls-cert-file", "tls-key-file", "tls-ca-cert-file"]);
    assert_eq!(format!("{:?}", wire.call(&all)), "+OK");
    assert_eq!(ping(&others).as_deref(), Some("+PONG\r\n"));
    assert_eq!(ping(&files), None);
    // New contents of the same files.
    for name in ["root.pem", "server.pem", "server.key"] {
        std::fs::copy(files.path(name), others.path(name)).unwrap();
    }
    assert_eq!(ping(&files), None, "nothing is read before it is asked for");
    server.server.read_certificates(&[]).unwrap();
    assert_eq!(ping(&files).as_deref(), Some("+PONG\r\n"));
    std::fs::write(others.path("server.pem"), "").unwrap();
    let error = server.server.read_certificates(&[]).unwrap_err();
    assert!(error.contains("no certificate in it"), "{error}");
    assert_eq!(ping(&files).as_deref(), Some("+PONG\r\n"), "the former ones stay");
    let plain = TestServer::start();
    assert!(plain.wire().say("CONFIG SET tls-cert-file x").contains("start the server with --tls-port"));
}

#[test]
fn silent_clients_and_plain_ones_do_not_delay_others() {
    let files = Files::make();
    let options = Options { clients_max: 30, ..files.options(ClientCertificates::No) };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let port = server.server.ports.tls.load(Ordering::Relaxed) as u16;
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    // More than the maximum number of connections: each one releases its slot.
    for _ in 0..15 {
        let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
        plain.write_all(b"PING\r\n").unwrap();
        let mut reply = Vec::new();
        let _ = plain.read_to_end(&mut reply);
        assert!(!reply.starts_with(b"+PONG"));
    }
    assert_eq!(files.ping(&server, None).unwrap(), "+PONG\r\n");
    drop(silent);
}

#[test]
fn handshakes_count_as_clients() {
    let files = Files::make();
    let options = Options { descriptors: Some(220), ..files.options(ClientCertificates::No) };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let port = server.server.ports.tls.load(Ordering::Relaxed) as u16;
    let mut silent: Vec<_> = (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    until(|| server.server.observed.stats.refused.get() == 45);
    assert_eq!(server.server.clients.len(), 55);
    assert_eq!(format!("{:?}", server.wire().reply()), "-ERR max number of clients reached");
    // Connections beyond the maximum are closed and hold no descriptor.
    let mut closed = 0;
    for stream in &mut silent {
        stream.set_nonblocking(true).unwrap();
        closed += usize::from(matches!(stream.read(&mut [0; 1]), Ok(0)));
    }
    assert_eq!(closed, 45);
    drop(silent);
    until(|| server.server.clients.is_empty());
    assert_eq!(files.ping(&server, None).unwrap(), "+PONG\r\n");
    // A handshake can be killed like any other connection.
    let _silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut wire = server.wire();
    until(|| server.server.clients.len() == 2);
    assert_eq!(wire.say("CLIENT KILL TYPE normal"), ":1");
    until(|| server.server.clients.len() == 1);
}

#[test]
fn a_replica_speaks_to_the_primary_whose_certificate_it_knows() {
    let files = Files::make();
    let dir = tempfile::tempdir().unwrap();
    let primary =
        Node::start_with(&dir.path().join("a"), files.options(ClientCertificates::Required), 64 << 20);
    primary.say("SET before copy");
    let replica = |name: &str, host: &str, ca: &str, client: Option<&str>| {
        let client =
            client.map(|name| (files.path(&format!("{name}.pem")), files.path(&format!("{name}.key"))));
        let options = Options {
            replica_of: Some(Source { host: host.to_owned(), port: primary.tls_port() }),
            upstream: Upstream {
                tls: Some(ReplicaTls { ca: files.path(ca), client }),
                ..Upstream::default()
            },
            ..Options::default()
        };
        Node::start_with(&dir.path().join(name), options, 64 << 20)
    };
    let good = replica("b", "localhost", "root.pem", Some("client"));
    assert_same(&primary, &good);
    primary.say(&format!("SET large {}", "x".repeat(3 << 20)));
    assert_eq!(primary.say("WAIT 1 0"), ":1");
    assert_same(&primary, &good);
    // Refused: certificates of another root, of another name, and connections without a client certificate.
    for (name, host, ca, client, why) in [
        ("c", "localhost", "stranger.pem", Some("client"), "invalid peer certificate"),
        ("d", "127.0.0.1", "root.pem", Some("client"), "not valid for name"),
        ("e", "localhost", "root.pem", None, "CertificateRequired"),
    ] {
        let wrong = replica(name, host, ca, client);
        until(|| !wrong.info("master_link_error").is_empty());
        let error = wrong.info("master_link_error");
        assert!(error.contains(why), "{name}: {error}");
        assert_eq!(
            (wrong.info("master_link_status").as_str(), wrong.say("GET before").as_str()),
            ("down", "null")
        );
    }
    assert_eq!(primary.info("connected_slaves"), "1");
}
