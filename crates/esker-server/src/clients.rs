//! What is known of each connection: for `CLIENT LIST`, for who ends one, and for messages that nobody asked for.

pub mod outbox;
pub mod pubsub;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clients::outbox::{Class, Outbox, OutputLimits};
use crate::clients::pubsub::Hearing;
use crate::observe::stats::Counter;

/// What others see of a connection. Atomics are relaxed: they are figures.
#[derive(Default)]
pub struct Client {
    /// Its number.
    pub id: u64,
    /// Where it comes from.
    pub address: String,
    /// Where it has connected to.
    pub own_address: String,
    /// When it came, in milliseconds since 1970.
    pub since: u64,
    /// When it sent something last.
    pub active: AtomicU64,
    /// Its database.
    pub db: AtomicUsize,
    /// Its name.
    pub name: Mutex<String>,
    /// Its user; empty if it has not said who it is.
    pub user: Mutex<String>,
    /// The library it uses, and that one's version.
    pub library: Mutex<(String, String)>,
    /// What it sent last: a command, and its subcommand if it has any.
    pub command: Mutex<(&'static str, Option<&'static str>)>,
    /// Bytes it sent, bytes it was sent, commands it had done.
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    pub commands: Counter,
    /// How many keys it watches.
    pub watched: AtomicUsize,
    /// How many channels and patterns it is subscribed to, by `Hearing`.
    pub subscribed: [AtomicUsize; Hearing::COUNT],
    /// How many topics and keys it listens to (`ES.LISTEN`, `ES.WATCH`).
    pub listens: AtomicUsize,
    /// Bytes of requests on their way, and of commands between `MULTI` and `EXEC`.
    pub held: AtomicUsize,
    /// Commands of its transaction, and one more; 0: it has none.
    pub queued: AtomicUsize,
    /// Version 3 of the protocol.
    pub is_resp3: AtomicBool,
    /// It sees all commands.
    pub is_monitor: AtomicBool,
    /// It is a replica's, which gets commits or a copy.
    pub is_replica: AtomicBool,
    /// It waits.
    pub is_blocked: AtomicBool,
    /// How it is woken from waiting: 0 not, 1 as if its time were over, 2 with an error.
    unblock: AtomicU32,
    /// What waits to be sent to it.
    pub outbox: Outbox,
    /// There is something for it.
    pub wake: Notify,
}

impl Client {
    /// Ends it.
    pub fn kill(&self) {
        self.outbox.end();
        self.wake.notify_one();
    }

    /// Whether it is to end.
    pub fn is_killed(&self) -> bool {
        self.outbox.is_ended()
    }

    /// Wakes it from waiting; false if it does not wait.
    pub fn unblock(&self, with_error: bool) -> bool {
        if !self.is_blocked.load(Ordering::Relaxed) {
            return false;
        }
        self.unblock.store(if with_error { 2 } else { 1 }, Ordering::Relaxed);
        self.wake.notify_one();
        true
    }

    /// Whether it is to be woken, and then whether with an error.
    pub fn take_unblock(&self) -> Option<bool> {
        match self.unblock.swap(0, Ordering::Relaxed) {
            0 => None,
            how => Some(how == 2),
        }
    }

    /// Sends it bytes that answer no request.
    pub fn send(&self, bytes: &[u8]) {
        self.outbox.add(bytes);
        self.wake.notify_one();
    }

    /// Has replies sent before the job they belong to comes back.
    pub fn answer_early(&self, bytes: &[u8]) {
        self.outbox.add_early(bytes);
        self.wake.notify_one();
    }

    /// The class by which what waits for it is bounded.
    pub fn class(&self) -> Class {
        match self.is_replica.load(Ordering::Relaxed) {
            true => Class::Replica,
            false if self.is_subscribed() => Class::Pubsub,
            false => Class::Normal,
        }
    }

    /// The type that `CLIENT LIST` and `CLIENT KILL` have for it.
    pub fn kind(&self) -> &'static str {
        match self.class() {
            Class::Normal => "normal",
            Class::Replica => "replica",
            Class::Pubsub => "pubsub",
        }
    }

    /// Whether it is subscribed to anything.
    pub fn is_subscribed(&self) -> bool {
        let counts = self.subscribed.iter().chain([&self.listens]);
        counts.map(|count| count.load(Ordering::Relaxed)).any(|count| count > 0)
    }

    /// A line of `CLIENT LIST`.
    pub fn describe(&self, now: u64) -> String {
        let load = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let (library, version) = self.library.lock().clone();
        let (command, sub) = *self.command.lock();
        let mut flags = String::new();
        let multi = load(&self.queued);
        for (is_so, flag) in [
            (self.is_monitor.load(Ordering::Relaxed), 'O'),
            (self.is_replica.load(Ordering::Relaxed), 'S'),
            (self.is_subscribed(), 'P'),
            (multi > 0, 'x'),
            (self.is_blocked.load(Ordering::Relaxed), 'b'),
        ] {
            flags.extend(is_so.then_some(flag));
        }
        if flags.is_empty() {
            flags.push('N');
        }
        format!(
            "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={} \
             watch={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem=0 events=r \
             cmd={} user={} redir=-1 resp={} lib-name={library} lib-ver={version} tot-net-in={} tot-net-out={} \
             tot-cmds={}",
            self.id,
            self.address,
            self.own_address,
            self.name.lock(),
            now.saturating_sub(self.since) / 1000,
            now.saturating_sub(self.active.load(Ordering::Relaxed)) / 1000,
            load(&self.db),
            load(&self.subscribed[0]),
            load(&self.subscribed[1]),
            load(&self.subscribed[2]),
            multi as i64 - 1,
            load(&self.watched),
            load(&self.held),
            self.outbox.waiting(),
            sub.map_or(command.to_owned(), |sub| format!("{command}|{sub}")),
            self.user.lock(),
            if self.is_resp3.load(Ordering::Relaxed) { 3 } else { 2 },
            self.bytes_in.get(),
            self.bytes_out.get(),
            self.commands.get(),
        )
    }
}

/// All connections.
#[derive(Default)]
pub struct Clients {
    all: Mutex<BTreeMap<u64, Arc<Client>>>,
    next: AtomicU64,
    monitors: AtomicUsize,
    /// What all hold (`Client::held`).
    held: AtomicUsize,
    limits: Arc<OutputLimits>,
}

impl Clients {
    /// None yet. What waits for one of them is bounded by these limits.
    pub fn new(limits: Arc<OutputLimits>) -> Self {
        Clients { limits, ..Clients::default() }
    }

    /// Adds a connection, unless the limit is reached.
    pub fn add(&self, address: String, own_address: String, now: u64, max: usize) -> Option<Arc<Client>> {
        let mut all = self.all.lock();
        if all.len() >= max {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let outbox = Outbox::new(self.limits.clone());
        let client =
            Client { id, address, own_address, since: now, active: now.into(), outbox, ..Client::default() };
        client.command.lock().0 = "NULL";
        let client = Arc::new(client);
        all.insert(id, client.clone());
        Some(client)
    }

    /// Takes out one that has ended.
    pub fn remove(&self, client: &Client) {
        self.all.lock().remove(&client.id);
        self.hold(client, 0);
        self.set_monitor(client, false);
    }

    /// Notes what it holds, and returns what all hold.
    pub fn hold(&self, client: &Client, bytes: usize) -> usize {
        let before = client.held.swap(bytes, Ordering::Relaxed);
        let all = self.held.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        all.wrapping_add(bytes).wrapping_sub(before)
    }

    /// Ends the connections that hold most, until the others hold no more than this together. Returns the ended.
    pub fn end_largest(&self, held_max: usize) -> Vec<Arc<Client>> {
        let held = |client: &Arc<Client>| client.held.load(Ordering::Relaxed);
        let mut clients = self.list();
        clients.retain(|client| !client.is_killed());
        clients.sort_unstable_by_key(held);
        let mut all: usize = clients.iter().map(held).sum();
        let mut ended = Vec::new();
        while all > held_max
            && let Some(largest) = clients.pop()
        {
            all -= held(&largest);
            largest.kill();
            ended.push(largest);
        }
        ended
    }

    /// Has it see all commands, or no more.
    pub fn set_monitor(&self, client: &Client, is_monitor: bool) {
        match (client.is_monitor.swap(is_monitor, Ordering::Relaxed), is_monitor) {
            (false, true) => self.monitors.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.monitors.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Whether somebody sees all commands.
    pub fn has_monitors(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// Has each connection look at the parameters that it waits by.
    pub fn wake(&self) {
        self.all.lock().values().for_each(|client| client.wake.notify_one());
    }

    /// All of them, oldest first.
    pub fn list(&self) -> Vec<Arc<Client>> {
        self.all.lock().values().cloned().collect()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.all.lock().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    pub fn get(&self, id: u64) -> Option<Arc<Client>> {
        self.all.lock().get(&id).cloned()
    }
}
