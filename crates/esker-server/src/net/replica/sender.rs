//! The primary's side of a connection on which a replica receives commits or a copy.
//!
//! ```text
//!   ES.REPLICATE --> answer --CONTINUE--> a thread: feed --frames--> channel --> socket
//!                       `-----FULL------> a thread: files -----------^           socket --Ack--> replicas
//! ```
//!
//! Waiting output is bounded. A slow replica delays no other, and takes no memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use super::copy_out;
use crate::base::clock;
use crate::clients::Client;
use crate::net::connection::{send, send_last};
use crate::replication::frame::Frame;
use crate::replication::outgoing::{Answer, Outgoing};
use crate::replication::replicas::{Link, Replica};
use crate::resp::Input;
use crate::run::server::Server;

/// Maximum number of pieces that wait to be sent, and their approximate size.
const PIECES_MAX: usize = 8;
const PIECE_BYTES: usize = 64 << 10;
/// How often it checks for commits that are not durable: after a commit, and without commits for a while.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(25)];
/// How often a replica gets a message without news.
const ALIVE_EVERY: Duration = Duration::from_millis(100);
/// Time without commits after which it checks less often.
const REST_AFTER: Duration = Duration::from_secs(1);
/// A replica that has been silent for this long counts as lost.
const SILENT_MS_MAX: u64 = 30_000;

/// Output on its way to the socket.
pub type Pieces = mpsc::Sender<Vec<u8>>;

/// Serves a replica until its connection ends. `input`: what it has sent so far.
pub async fn serve<S>(server: Arc<Server>, client: &Arc<Client>, mut stream: S, input: Input, link: Link)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let term = server.replication.moment().0;
    if let Some(why) = server.replication.refuses(link.ballot) {
        return refuse(stream, &why).await;
    }
    let answer = match link.wants_copy {
        true => Answer::Copy("the replica gives up its data, or asks for a copy".to_owned()),
        false => tokio::task::block_in_place(|| server.replication.answer(link.at)),
    };
    let (line, outgoing) = match answer {
        Answer::Continue(outgoing) => {
            (format!("+CONTINUE {}", server.replication.position()), Some(outgoing))
        }
        Answer::Copy(why) => match copy_out::why_not(&server) {
            None => (format!("+FULL {why}"), None),
            Some(why) => return refuse(stream, why).await,
        },
        Answer::Forked(why) => return refuse(stream, &format!("FORKED {why}")).await,
        Answer::Refused(why) => return refuse(stream, &why).await,
    };
    // The log after a copy is kept from before the copy is made.
    let from = outgoing.as_ref().map(|outgoing| (link.at, outgoing.taken()));
    if let Err(error) = tokio::task::block_in_place(|| server.replication.take_slot(&link.slot, from)) {
        return refuse(stream, &format!("ERR {error}")).await;
    }
    client.state.is_replica.store(true, Ordering::Relaxed);
    if send(&server, client, &mut stream, format!("{line}\r\n").as_bytes()).await.is_err() {
        return;
    }
    let replica = Arc::new(Replica::new(client, &link));
    server.replication.replicas.add(client, &replica);
    // A change of the role ends the connections that it finds. This one may have come too late for that.
    if server.replication.moment().0 != term {
        server.replication.replicas.remove(client);
        return;
    }
    // However the connection ends, the replica reconnects.
    let _ = match outgoing {
        Some(outgoing) => {
            replica.is_online.store(true, Ordering::Relaxed);
            commits(&server, client, &mut stream, input, &replica, outgoing).await
        }
        None => copy(&server, client, &mut stream, input, &replica).await,
    };
    server.replication.replicas.remove(client);
    server.replication.tell();
}

async fn refuse(mut stream: impl AsyncWrite + Unpin, why: &str) {
    let line = format!("-{}\r\n", why.replace(['\r', '\n'], " "));
    // If it does not receive this, it asks again.
    send_last(&mut stream, line.as_bytes()).await;
}

async fn commits<S: AsyncRead + AsyncWrite + Unpin>(
    server: &Arc<Server>,
    client: &Client,
    stream: &mut S,
    input: Input,
    replica: &Replica,
    outgoing: Box<Outgoing>,
) -> io::Result<()> {
    let (pieces, queue) = mpsc::channel(PIECES_MAX);
    let thread = tokio::task::spawn_blocking({
        let server = server.clone();
        move || send_commits(&server, *outgoing, &pieces)
    });
    let pumped = pump(server, client, stream, input, replica, queue).await;
    // The channel has ended, and so does the thread.
    let _ = thread.await;
    pumped
}

/// Sends commits as they become durable, until the channel ends.
fn send_commits(server: &Server, mut outgoing: Outgoing, pieces: &Pieces) {
    let mut out = Vec::new();
    let mut send = |out: &mut Vec<u8>| out.is_empty() || pieces.blocking_send(std::mem::take(out)).is_ok();
    let (mut moved, mut sent_at) = (clock::moment(), clock::moment());
    loop {
        let sync_every = Duration::from_millis(server.config.replica_sync_ms());
        let look_every = sync_every.clamp(LOOK_EVERY[0], LOOK_EVERY[1]);
        let patience = if moved.elapsed() > REST_AFTER { LOOK_EVERY[1] } else { look_every };
        match outgoing.step(if out.is_empty() { patience } else { Duration::ZERO }, &mut out, &mut send) {
            Ok(true) => {
                moved = clock::moment();
                if out.len() < PIECE_BYTES {
                    continue;
                }
            }
            Ok(false) => {
                if !sync_every.is_zero() && server.replication.has_more_than(outgoing.taken()) {
                    // The feed shows only durable commits (replication.1). Writers get the error of a failed
                    // sync.
                    let _ = server.replication.sync_for_replicas(sync_every);
                }
                if sent_at.elapsed() >= ALIVE_EVERY {
                    Frame::Alive(server.replication.position().seq).encode(&mut out);
                    sent_at = clock::moment();
                }
            }
            Err(error) => {
                Frame::End(error.to_string()).encode(&mut out);
                send(&mut out);
                return;
            }
        }
        if !send(&mut out) || server.is_stopping() {
            return;
        }
    }
}

async fn copy<S: AsyncRead + AsyncWrite + Unpin>(
    server: &Arc<Server>,
    client: &Client,
    stream: &mut S,
    mut input: Input,
    replica: &Replica,
) -> io::Result<()> {
    let mut have = Vec::new();
    let silence = Duration::from_millis(SILENT_MS_MAX);
    loop {
        match take_frame(&mut input)? {
            Some(Frame::Have(name, len, digest)) if have.len() < copy_out::FILES_MAX => {
                have.push((name, len, digest))
            }
            Some(Frame::HaveEnd) => break,
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => tokio::select! {
                read = tokio::time::timeout(silence, read_more(stream, &mut input)) => read??,
                () = client.outbox.ended() => return Err(io::ErrorKind::ConnectionAborted.into()),
            },
        }
    }
    let (pieces, queue) = mpsc::channel(PIECES_MAX);
    let thread = tokio::task::spawn_blocking({
        let server = server.clone();
        move || copy_out::send(&server, &have, &pieces)
    });
    let pumped = pump(server, client, stream, input, replica, queue).await;
    let _ = thread.await;
    pumped
}

/// Sends output and takes acknowledgements until the connection or the channel ends.
async fn pump<S: AsyncRead + AsyncWrite + Unpin>(
    server: &Server,
    client: &Client,
    stream: &mut S,
    mut input: Input,
    replica: &Replica,
    mut queue: mpsc::Receiver<Vec<u8>>,
) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut piece = Vec::new();
    let mut sent = 0;
    let mut look = tokio::time::interval(Duration::from_secs(1));
    loop {
        while let Some(frame) = take_frame(&mut input)? {
            let Frame::Ack(numbers) = frame else { return Err(io::ErrorKind::InvalidData.into()) };
            replica.note(numbers);
            server.replication.tell();
        }
        let is_sending = sent < piece.len();
        tokio::select! {
            next = queue.recv(), if !is_sending => match next {
                Some(next) => (piece, sent) = (next, 0),
                None => return Ok(()),
            },
            wrote = to.write(&piece[sent..]), if is_sending => match wrote? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => {
                    sent += n;
                    server.observed.stats.bytes_out.add(n as u64);
                }
            },
            read = read_more(&mut from, &mut input) => read?,
            () = client.wake.notified() => {}
            _ = look.tick() => {
                // A checkpoint, or a large file that the replica has already, takes time.
                if !is_sending {
                    (piece, sent) = (Vec::new(), 0);
                    Frame::Alive(server.replication.position().seq).encode(&mut piece);
                }
            }
        }
        if client.is_killed() || server.is_stopping() || replica.silent_ms() > SILENT_MS_MAX {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
}

async fn read_more(stream: &mut (impl AsyncRead + Unpin), input: &mut Input) -> io::Result<()> {
    let tail = input.tail();
    tail.reserve(4096);
    match stream.read_buf(tail).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Takes a frame from the input, if a complete one has arrived.
pub fn take_frame(input: &mut Input) -> io::Result<Option<Frame>> {
    let found = Frame::decode(input.unread());
    let found = found.map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken.0))?;
    Ok(found.map(|(frame, len)| {
        input.consume(len);
        frame
    }))
}
