//! Sends bytes to a client, waiting no longer than the limits allow.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use crate::base::clock;
use crate::clients::Client;
use crate::observe::trace;
use crate::run::server::Server;

/// How often a waiting send checks the limits.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long an ending connection waits for its client to take the last bytes.
const LAST_BYTES_MAX: Duration = Duration::from_secs(1);

/// Sends bytes and flushes the stream.
///
/// # Errors
/// The connection is broken or has to end: it was killed, its client took nothing for the time of the option
/// `timeout`, or too much output waits for it.
pub async fn send(
    server: &Server,
    client: &Client,
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> io::Result<()> {
    let sent = send_all(server, client, stream, bytes).await;
    client.outbox.note_sent();
    if sent.is_err() {
        client.kill();
    }
    sent
}

async fn send_all(
    server: &Server,
    client: &Client,
    stream: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> io::Result<()> {
    let outbox = &client.outbox;
    let class = client.class();
    if server.config.output_limits().is_over_hard(class, bytes.len()) {
        return Err(refuse(client, "its client reads too slowly: client-output-buffer-limit"));
    }
    let mut left = bytes;
    outbox.set_sending(left.len());
    // Usually the socket takes everything at once. Then no timer is needed.
    while !outbox.is_ended()
        && let Poll::Ready(wrote) = std::future::poll_fn(|cx| Poll::Ready(poll_send(stream, cx, left))).await
    {
        let n = wrote?;
        if left.is_empty() {
            return Ok(());
        }
        left = &left[n..];
    }
    // Moment since which nothing could be sent.
    let mut stuck = None;
    // A client that takes a little each time is checked as well.
    let look = tokio::time::sleep(LOOK_EVERY);
    tokio::pin!(look);
    loop {
        if outbox.is_ended() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        outbox.set_sending(left.len());
        let wrote = tokio::select! {
            biased;
            wrote = std::future::poll_fn(|cx| poll_send(stream, cx, left)) => Some(wrote?),
            () = outbox.ended() => continue,
            () = &mut look => None,
        };
        match wrote {
            Some(_) if left.is_empty() => return Ok(()),
            Some(n) => {
                left = &left[n..];
                stuck = None;
            }
            None => {
                let since = *stuck.get_or_insert_with(clock::moment);
                let idle = Duration::from_secs(server.config.connections.idle_seconds());
                if !idle.is_zero() && since.elapsed() >= idle {
                    return Err(refuse(client, "its client reads nothing: timeout"));
                }
            }
        }
        if look.is_elapsed() {
            if outbox.is_late(class) {
                return Err(refuse(client, "its client reads too slowly: client-output-buffer-limit"));
            }
            look.as_mut().reset(Instant::now() + LOOK_EVERY);
        }
    }
}

fn refuse(client: &Client, why: &'static str) -> io::Error {
    trace::warn("a connection is ended", Some(client), why);
    io::ErrorKind::TimedOut.into()
}

/// Sends some bytes, or flushes once all are sent.
fn poll_send(
    stream: &mut (impl AsyncWrite + Unpin),
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    let mut stream = Pin::new(stream);
    if bytes.is_empty() {
        return stream.poll_flush(cx).map_ok(|()| 0);
    }
    match ready!(stream.as_mut().poll_write(cx, bytes)) {
        Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        wrote => Poll::Ready(wrote),
    }
}

/// Closes the sending direction of a connection.
pub async fn close(stream: &mut (impl AsyncWrite + Unpin)) {
    // A client that does not read may not notice.
    let _ = tokio::time::timeout(LAST_BYTES_MAX, stream.shutdown()).await;
}

/// Sends the last bytes of a connection.
pub async fn send_last(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    let sent = tokio::time::timeout(LAST_BYTES_MAX, stream.write_all(bytes)).await;
    if matches!(sent, Ok(Ok(()))) {
        close(stream).await;
    }
}
