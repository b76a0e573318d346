//! Monitoring over HTTP: Prometheus metrics, health, and a status page.
//!
//! A connection has five seconds for a request of up to 8 KiB and its answer. When 64 are open, or fewer if
//! the process has few descriptors, a new connection replaces the oldest. So slow clients do not delay
//! others.

mod metrics;
mod page;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::run::server::Server;

const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
const TIME_MAX: Duration = Duration::from_secs(5);

/// Listens at an address and port.
///
/// # Errors
/// Fails if they are not available.
pub async fn bind(server: &Server, address: &str) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    let listener = bound
        .map_err(|error| io::Error::new(error.kind(), format!("listen on {address} for HTTP: {error}")))?;
    server.ports.http.store(u64::from(listener.local_addr()?.port()), Ordering::Relaxed);
    Ok(listener)
}

/// Answers requests until the server stops.
pub async fn accept(server: Arc<Server>, listener: Arc<TcpListener>) {
    let mut open: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.life.stop.notified() => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= server.config.http_max()
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        let server = server.clone();
        open.push_back(tokio::spawn(async move {
            // A client that takes too long gets no reply.
            let _ = tokio::time::timeout(TIME_MAX, serve(&server, stream)).await;
        }));
    }
}

async fn serve(server: &Arc<Server>, mut stream: TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    let mut wants_body = true;
    let response = loop {
        match parse(&head) {
            Parsed::Whole(method, path) => {
                wants_body = method != "HEAD";
                break answer(server, &method, &path);
            }
            Parsed::Wrong => break Response::text("400 Bad Request", "no HTTP request\n"),
            Parsed::Partial if head.len() >= HEAD_BYTES_MAX => {
                break Response::text("431 Request Header Fields Too Large", "the request is too large\n");
            }
            Parsed::Partial => {
                if stream.read_buf(&mut head).await? == 0 {
                    return Ok(());
                }
            }
        }
    };
    let Response { status, kind, body } = response;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if wants_body {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

/// State of parsing a request.
#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    /// A complete request: method and path.
    Whole(String, String),
    /// The request is incomplete.
    Partial,
    /// The bytes are not a request.
    Wrong,
}

fn parse(head: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Partial) => Parsed::Partial,
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            Parsed::Whole(request.method.unwrap_or_default().to_owned(), path.to_owned())
        }
        Err(_) => Parsed::Wrong,
    }
}

struct Response {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Response {
    fn text(status: &'static str, body: &str) -> Self {
        Response { status, kind: "text/plain; charset=utf-8", body: body.to_owned() }
    }
}

fn answer(server: &Arc<Server>, method: &str, path: &str) -> Response {
    if !matches!(method, "GET" | "HEAD") {
        return Response::text("405 Method Not Allowed", "only GET\n");
    }
    match path {
        "/" => Response { status: "200 OK", kind: "text/html; charset=utf-8", body: page::page(server) },
        "/metrics" => Response {
            status: "200 OK",
            kind: "text/plain; version=0.0.4; charset=utf-8",
            body: metrics::metrics(server),
        },
        "/health" => match server.health_problem() {
            None => Response::text("200 OK", "ok\n"),
            Some(trouble) => Response::text("503 Service Unavailable", &format!("{trouble}\n")),
        },
        _ => Response::text("404 Not Found", "there are /, /metrics and /health\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_apart() {
        let get = Parsed::Whole("GET".to_owned(), "/metrics".to_owned());
        assert_eq!(parse(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n"), get);
        assert_eq!(parse(b"GET /metr"), Parsed::Partial);
        assert_eq!(parse(b""), Parsed::Partial);
        assert_eq!(parse(b"*1\r\n$4\r\nPING\r\n"), Parsed::Wrong);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(many.as_bytes()), Parsed::Wrong);
    }
}
