//! The connections: for `CLIENT LIST`, for ending them, and for messages that answer no request.

pub mod outbox;
pub mod pause;
pub mod pubsub;
pub mod tracking;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::counter::Counter;
use crate::clients::outbox::{Class, Outbox, OutputLimits};
use crate::clients::pause::Pause;
use crate::clients::pubsub::{Hearing, PubSub};
use crate::clients::tracking::{Mode, Tracking};
use crate::resp::Out;

/// Where a connection comes from.
#[derive(Default)]
pub struct Origin {
    /// Its remote address.
    pub address: String,
    /// The local address that it connected to.
    pub own_address: String,
    /// The remote machine, unless it is this one through a Unix socket.
    pub host: Option<IpAddr>,
    /// When it connected, in Unix milliseconds.
    pub since: u64,
}

/// Why no further connection is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There are too many.
    Server,
    /// There are too many of its address.
    Address,
}

/// The connections by their numbers, and their number by address.
#[derive(Default)]
struct Connected {
    by_id: BTreeMap<u64, Arc<Client>>,
    by_host: HashMap<IpAddr, usize>,
}

/// What a connection has sent and received. Atomics are relaxed: they are statistics.
#[derive(Default)]
pub struct Traffic {
    /// Bytes that it has sent.
    pub bytes_in: Counter,
    /// Bytes that were sent to it.
    pub bytes_out: Counter,
    /// Number of commands that it has run.
    pub commands: Counter,
}

/// Sizes of what a connection holds. Atomics are relaxed: they are statistics.
#[derive(Default)]
pub struct Counts {
    /// Number of watched keys.
    pub watched: AtomicUsize,
    /// Number of subscribed channels and patterns, by `Hearing`.
    pub subscribed: [AtomicUsize; Hearing::COUNT],
    /// Number of topics and keys it listens to (`ES.LISTEN`, `ES.WATCH`).
    pub listens: AtomicUsize,
    /// Bytes of incomplete requests, and of commands between `MULTI` and `EXEC`.
    pub held: AtomicUsize,
    /// Number of commands in its transaction plus one; 0 without a transaction.
    pub queued: AtomicUsize,
}

/// State of a connection. Atomics are relaxed: they are statistics.
#[derive(Default)]
pub struct State {
    /// It speaks RESP3.
    pub is_resp3: AtomicBool,
    /// It receives all commands (`MONITOR`).
    pub is_monitor: AtomicBool,
    /// It is a replica, which receives commits or a copy.
    pub is_replica: AtomicBool,
    /// It is blocked.
    pub is_blocked: AtomicBool,
    /// Its commands do not count as accesses to keys, apart from `TOUCH` (`CLIENT NO-TOUCH`).
    pub is_no_touch: AtomicBool,
    /// It is not ended because of the memory that all connections use (`CLIENT NO-EVICT`).
    pub is_no_evict: AtomicBool,
}

/// What other connections see of a connection. Atomics are relaxed: they are statistics.
#[derive(Default)]
pub struct Client {
    /// Its number.
    pub id: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// When it last sent something.
    pub active: AtomicU64,
    /// Its database.
    pub db: AtomicUsize,
    /// Its name.
    pub name: Mutex<String>,
    /// Its user; empty before authentication.
    pub user: Mutex<String>,
    /// The client library and its version.
    pub library: Mutex<(String, String)>,
    /// The last command, and its subcommand if it has any.
    pub command: Mutex<(&'static str, Option<&'static str>)>,
    /// Bytes and commands that it has sent and received.
    pub traffic: Traffic,
    /// Sizes of what it holds.
    pub counts: Counts,
    /// Its state.
    pub state: State,
    /// How it tracks keys.
    pub tracking: Mode,
    /// How to unblock it: 0 not, 1 like a timeout, 2 with an error.
    unblock: AtomicU32,
    /// Bytes that wait to be sent to it.
    pub outbox: Outbox,
    /// Signals that there is something to send.
    pub wake: Notify,
}

impl Client {
    /// Ends the connection.
    pub fn kill(&self) {
        self.outbox.end();
        self.wake.notify_one();
    }

    /// Returns whether it has to end.
    pub fn is_killed(&self) -> bool {
        self.outbox.is_ended()
    }

    /// Unblocks it. Returns false if it is not blocked.
    pub fn unblock(&self, with_error: bool) -> bool {
        if !self.state.is_blocked.load(Ordering::Relaxed) {
            return false;
        }
        self.unblock.store(if with_error { 2 } else { 1 }, Ordering::Relaxed);
        self.wake.notify_one();
        true
    }

    /// Takes a request to unblock. Returns whether to reply with an error.
    pub fn take_unblock(&self) -> Option<bool> {
        match self.unblock.swap(0, Ordering::Relaxed) {
            0 => None,
            how => Some(how == 2),
        }
    }

    /// Sends bytes that answer no request.
    pub fn send(&self, bytes: &[u8]) {
        self.outbox.add(bytes);
        self.wake.notify_one();
    }

    /// Sends an invalidation, after the replies that are not sent yet (tracking.1).
    pub fn push(&self, bytes: &[u8]) {
        self.outbox.add_push(bytes);
        self.wake.notify_one();
    }

    /// Sends replies before the job that they belong to has returned.
    pub fn answer_early(&self, replies: Out) {
        self.outbox.add_early(replies);
        self.wake.notify_one();
    }

    /// Returns the class that limits its output.
    pub fn class(&self) -> Class {
        match self.state.is_replica.load(Ordering::Relaxed) {
            true => Class::Replica,
            false if self.is_subscribed() => Class::Pubsub,
            false => Class::Normal,
        }
    }

    /// Its type in `CLIENT LIST` and `CLIENT KILL`.
    pub fn kind(&self) -> &'static str {
        match self.class() {
            Class::Normal => "normal",
            Class::Replica => "replica",
            Class::Pubsub => "pubsub",
        }
    }

    /// Returns whether it has any subscription.
    pub fn is_subscribed(&self) -> bool {
        let counts = self.counts.subscribed.iter().chain([&self.counts.listens]);
        counts.map(|count| count.load(Ordering::Relaxed)).any(|count| count > 0)
    }

    /// Returns the bytes of requests that it holds.
    pub fn held(&self) -> usize {
        self.counts.held.load(Ordering::Relaxed)
    }

    /// Returns the bytes of requests and output that it holds.
    pub fn memory(&self) -> usize {
        self.held() + self.outbox.waiting()
    }

    /// Returns a line of `CLIENT LIST`.
    pub fn describe(&self, now: u64) -> String {
        let load = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let (library, version) = self.library.lock().clone();
        let (command, sub) = *self.command.lock();
        let mut flags = String::new();
        let multi = load(&self.counts.queued);
        for (is_so, flag) in [
            (self.state.is_monitor.load(Ordering::Relaxed), 'O'),
            (self.state.is_replica.load(Ordering::Relaxed), 'S'),
            (self.is_subscribed(), 'P'),
            (multi > 0, 'x'),
            (self.state.is_blocked.load(Ordering::Relaxed), 'b'),
            (self.state.is_no_evict.load(Ordering::Relaxed), 'e'),
            (self.state.is_no_touch.load(Ordering::Relaxed), 'T'),
        ] {
            flags.extend(is_so.then_some(flag));
        }
        flags.extend(self.tracking.letters());
        if flags.is_empty() {
            flags.push('N');
        }
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={} \
             watch={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem={} events=r \
             cmd={} user={} redir={} resp={} lib-name={library} lib-ver={version} tot-net-in={} tot-net-out={} \
             tot-cmds={}",
            self.id,
            self.origin.address,
            self.origin.own_address,
            self.name.lock(),
            now.saturating_sub(self.origin.since) / 1000,
            now.saturating_sub(self.active.load(Ordering::Relaxed)) / 1000,
            load(&self.db),
            load(&self.counts.subscribed[0]),
            load(&self.counts.subscribed[1]),
            load(&self.counts.subscribed[2]),
            multi as i64 - 1,
            load(&self.counts.watched),
            load(&self.counts.held),
            self.outbox.waiting(),
            self.memory(),
            sub.map_or(command.to_owned(), |sub| format!("{command}|{sub}")),
            self.user.lock(),
            self.tracking.shown_redirect(),
            if self.state.is_resp3.load(Ordering::Relaxed) { 3 } else { 2 },
            self.traffic.bytes_in.get(),
            self.traffic.bytes_out.get(),
            self.traffic.commands.get(),
        )
    }
}

/// All connections.
#[derive(Default)]
pub struct Clients {
    /// Subscriptions.
    pub pubsub: PubSub,
    /// `CLIENT PAUSE`.
    pub pause: Pause,
    /// `CLIENT TRACKING`.
    pub tracking: Tracking,
    all: Mutex<Connected>,
    next: AtomicU64,
    monitors: AtomicUsize,
    /// Sum of `Client::held`.
    held: AtomicUsize,
    limits: Arc<OutputLimits>,
}

impl Clients {
    /// Creates an empty table. `limits` applies to the output of each connection.
    pub fn new(limits: Arc<OutputLimits>) -> Self {
        Clients { limits, ..Clients::default() }
    }

    /// Adds a connection, unless a limit is reached: that of all connections, or that of an address.
    ///
    /// # Errors
    /// The limit.
    pub fn add(
        &self,
        address: String,
        own_address: String,
        now: u64,
        [max, of_address_max]: [usize; 2],
    ) -> Result<Arc<Client>, Full> {
        let host = address.parse::<SocketAddr>().ok().map(|address| address.ip().to_canonical());
        let mut all = self.all.lock();
        if all.by_id.len() >= max {
            return Err(Full::Server);
        }
        if let Some(host) = host {
            let count = all.by_host.get(&host).copied().unwrap_or(0);
            if count >= of_address_max {
                return Err(Full::Address);
            }
            all.by_host.insert(host, count + 1);
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let outbox = Outbox::new(self.limits.clone());
        let client = Client {
            id,
            origin: Origin { address, own_address, host, since: now },
            active: now.into(),
            outbox,
            ..Client::default()
        };
        client.command.lock().0 = "NULL";
        let client = Arc::new(client);
        all.by_id.insert(id, client.clone());
        Ok(client)
    }

    /// Removes an ended connection.
    pub fn remove(&self, client: &Client) {
        let mut all = self.all.lock();
        let is_removed = all.by_id.remove(&client.id).is_some();
        if let Some(host) = client.origin.host.filter(|_| is_removed)
            && let Entry::Occupied(mut count) = all.by_host.entry(host)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(all);
        self.hold(client, 0);
        self.set_monitor(client, false);
        self.tracking.end(client);
    }

    /// Records the bytes that a connection holds. Returns the sum of all.
    pub fn hold(&self, client: &Client, bytes: usize) -> usize {
        let before = client.counts.held.swap(bytes, Ordering::Relaxed);
        let all = self.held.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        all.wrapping_add(bytes).wrapping_sub(before)
    }

    /// Ends the connections with the largest sizes until the others have at most this much together. Replicas
    /// do not count. Returns the ended ones.
    pub fn end_largest(&self, bytes_max: usize, size: fn(&Client) -> usize) -> Vec<Arc<Client>> {
        let mut clients: Vec<_> = self.list().into_iter().map(|client| (size(&client), client)).collect();
        clients.retain(|(_, client)| !client.is_killed() && client.class() != Class::Replica);
        let mut all: usize = clients.iter().map(|(size, _)| size).sum();
        clients.retain(|(size, client)| *size > 0 && !client.state.is_no_evict.load(Ordering::Relaxed));
        clients.sort_unstable_by_key(|(size, _)| *size);
        let mut ended = Vec::new();
        while all > bytes_max
            && let Some((size, largest)) = clients.pop()
        {
            all -= size;
            largest.kill();
            ended.push(largest);
        }
        ended
    }

    /// Starts or stops sending it all commands.
    pub fn set_monitor(&self, client: &Client, is_monitor: bool) {
        match (client.state.is_monitor.swap(is_monitor, Ordering::Relaxed), is_monitor) {
            (false, true) => self.monitors.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.monitors.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Returns whether any connection receives all commands.
    pub fn has_monitors(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// Makes each connection read the parameters that it waits by.
    pub fn wake(&self) {
        self.all.lock().by_id.values().for_each(|client| client.wake.notify_one());
    }

    /// Returns all connections, oldest first.
    pub fn list(&self) -> Vec<Arc<Client>> {
        self.all.lock().by_id.values().cloned().collect()
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.all.lock().by_id.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the connection with this number.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.all.lock().by_id.get(&id).cloned()
    }
}
