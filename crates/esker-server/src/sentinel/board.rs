//! What a sentinel shows its clients: the primary, the other servers and sentinels, and changes of them.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::SentinelOptions;
use super::plan::View;
use super::record::Record;
use super::reply::Reply;

/// The newest look at everything.
#[derive(Clone, Debug, Default)]
pub(super) struct Look {
    pub(super) record: Option<Record>,
    pub(super) views: Vec<View>,
    /// Addresses of all sentinels.
    pub(super) sentinels: Vec<String>,
    /// The sentinel that acts.
    pub(super) acts: Option<String>,
    /// What keeps the group from working, if anything does.
    pub(super) trouble: Option<String>,
}

/// A connection that gets messages.
struct Subscriber {
    stream: Arc<Mutex<TcpStream>>,
    id: u64,
    is_3: bool,
    /// Channels, and whether each is a pattern.
    channels: Vec<(Vec<u8>, bool)>,
}

/// Shared by the watching thread and those of clients.
pub(super) struct Board {
    pub(super) options: SentinelOptions,
    look: Mutex<Look>,
    subscribers: Mutex<Vec<Subscriber>>,
    /// A client asks for a change of the primary.
    wants_failover: AtomicBool,
}

impl Board {
    pub(super) fn new(options: SentinelOptions) -> Self {
        Board {
            options,
            look: Mutex::default(),
            subscribers: Mutex::default(),
            wants_failover: AtomicBool::new(false),
        }
    }

    pub(super) fn look(&self) -> Look {
        self.look.lock().clone()
    }

    /// Shows what was seen, and tells subscribers of a new primary.
    pub(super) fn show(&self, look: Look) {
        let primary = |look: &Look| look.record.as_ref().and_then(|record| record.primary());
        let old = std::mem::replace(&mut *self.look.lock(), look.clone());
        let last = old
            .record
            .as_ref()
            .and_then(|record| record.last.as_deref().and_then(super::record::parse_source));
        if let (Some(old), Some(new)) = (primary(&old).or(last), primary(&look))
            && old != new
        {
            let name = &self.options.name;
            let text = format!("{name} {} {} {} {}", old.host, old.port, new.host, new.port);
            self.publish(b"+switch-master", text.as_bytes());
        }
    }

    pub(super) fn ask_failover(&self) {
        self.wants_failover.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_failover(&self) -> bool {
        self.wants_failover.swap(false, Ordering::Relaxed)
    }

    /// Adds channels of a connection, or removes them. Returns how many it has now.
    pub(super) fn subscribe(
        &self,
        (id, is_3): (u64, bool),
        stream: &Arc<Mutex<TcpStream>>,
        channel: (Vec<u8>, bool),
        is_added: bool,
    ) -> usize {
        let mut all = self.subscribers.lock();
        let at = all.iter().position(|subscriber| subscriber.id == id).unwrap_or_else(|| {
            all.push(Subscriber { stream: stream.clone(), id, is_3, channels: Vec::new() });
            all.len() - 1
        });
        let channels = &mut all[at].channels;
        channels.retain(|other| *other != channel);
        if is_added {
            channels.push(channel);
        }
        channels.len()
    }

    /// Forgets a connection.
    pub(super) fn end(&self, id: u64) {
        self.subscribers.lock().retain(|subscriber| subscriber.id != id);
    }

    /// Sends a message. Another thread writes it: a subscriber that reads nothing delays no election.
    fn publish(&self, channel: &[u8], text: &[u8]) {
        let mut messages = Vec::new();
        for subscriber in self.subscribers.lock().iter() {
            let mut out = Reply::new(subscriber.is_3);
            for (name, is_pattern) in &subscriber.channels {
                let is_meant = match is_pattern {
                    true => crate::base::glob::matches(name, channel),
                    false => name == channel,
                };
                if !is_meant {
                    continue;
                }
                let parts: &[&[u8]] = match is_pattern {
                    true => &[b"pmessage", name, channel, text],
                    false => &[b"message", channel, text],
                };
                out.push(parts.len());
                parts.iter().for_each(|part| out.bulk(part));
            }
            messages.push((subscriber.stream.clone(), out.bytes));
        }
        #[expect(clippy::disallowed_methods, reason = "no data is behind it that could be simulated")]
        std::thread::spawn(move || {
            for (stream, bytes) in messages {
                let stream = stream.lock();
                if (&*stream).write_all(&bytes).is_err() {
                    // It lacks a part of the message. It connects again and asks.
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
        });
    }
}
