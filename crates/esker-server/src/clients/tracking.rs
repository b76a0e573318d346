//! Client side caching (`CLIENT TRACKING`): which keys clients may have cached, and invalidations of them.
//!
//! ```text
//!   read --remember--> table --keys that changed--> invalidations --> the client, or the one it redirects to
//!                        ^
//!   commit of anyone --Changes of the store--> sequencer: tell
//! ```
//!
//! Changes come from the store, not from commands. So writes of clients and scripts, expiry, the program that
//! embeds the server, and commits of a primary are all seen in the same way.
//!
//! tracking.1. A client gets the invalidation of a key after the reply that shows an old value of it, and
//!     before the replies to requests that begin later. An invalidation waits in the outbox of its client
//!     while replies of that client are not sent.
//! tracking.2. No change is missed: a key is remembered before it is read. If changes were reported after the
//!     state that the command reads was taken, or if the command reads an older state, the key counts as
//!     changed.
//! tracking.3. The invalidations of a commit are in the outboxes before the reply to its writer is sent.

mod mode;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

pub use self::mode::{Mode, Setting};
use self::table::Table;
use super::{Client, Clients};
use crate::resp::Out;
use crate::store::{Changed, Changes, Result};

/// Number of keys that one read removes at most from a table that is too large.
const EVICTED_MAX: usize = 100;
/// The channel of invalidations for clients of version 2 of the protocol.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// The writer of a change that no client asked for, such as an expiry.
pub const NO_CLIENT: u64 = 0;

/// Changes of the databases, by their numbers. `None`: the store does not report changes.
pub type Watched = Option<Vec<(usize, Box<dyn Changes>)>>;

/// Where changes come from. Empty while no client tracks keys.
#[derive(Default)]
struct Source {
    databases: Vec<(usize, Box<dyn Changes>)>,
    waker: Option<Waker>,
}

impl Source {
    fn wake(&self) {
        self.waker.iter().for_each(Waker::wake_by_ref);
    }
}

#[derive(Default)]
struct Shared {
    /// The clients that track keys.
    members: BTreeMap<u64, Arc<Client>>,
    table: Table,
    /// The writers of each key in the current commit, while a client wants to know.
    writers: HashMap<Vec<u8>, BTreeSet<u64>>,
}

/// The tracking of all clients. Lock order: `source`, `shared`, the table of clients.
#[derive(Default)]
pub struct Tracking {
    source: Mutex<Source>,
    shared: Mutex<Shared>,
    /// Set while clients track keys. Relaxed: it is set before the first client reads.
    is_active: AtomicBool,
    /// Number of clients with `NOLOOP`. Relaxed: such a client may get one more invalidation.
    no_loops: AtomicUsize,
    /// Number of times that changes were reported. It changes under the lock of `shared`.
    rounds: AtomicU64,
}

/// Whom to tell of what.
#[derive(Default)]
struct Notices {
    keys: BTreeMap<u64, BTreeSet<Vec<u8>>>,
    /// Clients that have to drop everything.
    whole: BTreeSet<u64>,
}

impl Shared {
    /// Adds the clients that a change concerns. `own`: the change is of the current commit of the sequencer.
    fn collect(&mut self, changed: &Changed, own: bool, notices: &mut Notices) {
        match changed {
            Changed::Key(key) => self.collect_key(key, own, notices),
            Changed::Range(from, to) if !from.is_empty() || to.is_some() => {
                for key in self.table.between(from, to.as_deref()) {
                    self.collect_key(&key, false, notices);
                }
                notices.whole.extend(self.table.hearers_between(from, to.as_deref()));
            }
            Changed::Range(..) | Changed::Any => self.collect_all(notices),
        }
    }

    fn collect_all(&mut self, notices: &mut Notices) {
        self.table.clear_keys();
        notices.whole.extend(self.members.keys());
    }

    fn collect_key(&mut self, key: &[u8], own: bool, notices: &mut Notices) {
        let Shared { members, table, writers } = self;
        let writers = writers.get(key).filter(|writers| own && writers.len() == 1);
        let is_alone = |id: u64| writers.is_some_and(|writers| writers.contains(&id));
        let mut tell = |id| _ = notices.keys.entry(id).or_default().insert(key.to_vec());
        for id in table.take(key) {
            match members.get(&id).map(|client| &client.tracking) {
                // It may have read the key again in the same commit.
                Some(mode) if mode.is_no_loop() && is_alone(id) => table.remember(key, id),
                Some(mode) if !mode.is_bcast() => tell(id),
                _ => {}
            }
        }
        let is_quiet =
            |id| is_alone(id) && members.get(&id).is_some_and(|client| client.tracking.is_no_loop());
        table.hearers(key).filter(|id| !is_quiet(*id)).for_each(tell);
    }
}

impl Tracking {
    /// Returns the number of times that changes were reported (tracking.2). Take it before the state to read.
    #[inline]
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Returns whether clients track keys.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Records which client writes a key in the current commit.
    #[inline]
    pub fn note_writer(&self, key: &[u8], client: u64) {
        if self.no_loops.load(Ordering::Relaxed) > 0 {
            self.shared.lock().writers.entry(key.to_vec()).or_default().insert(client);
        }
    }

    /// Begins to receive changes, unless it does. `open` opens them. Returns false if the store has none.
    ///
    /// # Errors
    /// Errors of the store.
    fn begin(
        &self,
        source: &mut Source,
        waker: Waker,
        open: impl FnOnce() -> Result<Watched>,
    ) -> Result<bool> {
        if !self.is_active.load(Ordering::Relaxed) {
            let Some(databases) = open()? else { return Ok(false) };
            self.is_active.store(true, Ordering::Relaxed);
            // The first call to `tell_changes` makes the store call the waker.
            waker.wake_by_ref();
            *source = Source { databases, waker: Some(waker) };
        }
        Ok(true)
    }

    /// Adds a new database.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn add_database(
        &self,
        number: usize,
        open: impl FnOnce() -> Result<Option<Box<dyn Changes>>>,
    ) -> Result<()> {
        let mut source = self.source.lock();
        let is_known = source.databases.iter().any(|(known, _)| *known == number);
        if self.is_active.load(Ordering::Relaxed)
            && !is_known
            && let Some(changes) = open()?
        {
            source.databases.push((number, changes));
            source.wake();
        }
        Ok(())
    }

    /// Opens the changes of all databases again, because the databases are others. Changes of the old ones
    /// may be lost: the caller invalidates everything.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn renew(&self, open: impl FnOnce() -> Result<Watched>) -> Result<()> {
        let mut source = self.source.lock();
        if self.is_active.load(Ordering::Relaxed) {
            source.databases = open()?.unwrap_or_default();
            source.wake();
        }
        Ok(())
    }

    /// Ends the tracking of a client. Without any, changes are not received.
    pub fn end(&self, client: &Client) {
        let is_last = {
            let mut shared = self.shared.lock();
            if shared.members.remove(&client.id).is_none() {
                return;
            }
            self.no_loops.fetch_sub(usize::from(client.tracking.is_no_loop()), Ordering::Relaxed);
            client.tracking.clear();
            shared.table.remove_prefixes(client.id);
            shared.members.is_empty()
        };
        if is_last {
            let mut source = self.source.lock();
            let mut shared = self.shared.lock();
            if shared.members.is_empty() {
                self.is_active.store(false, Ordering::Relaxed);
                (*source, *shared) = (Source::default(), Shared::default());
            }
        }
    }

    /// Returns the prefixes of a client.
    pub fn prefixes_of(&self, client: &Client) -> Vec<Vec<u8>> {
        self.shared.lock().table.prefixes_of(client.id)
    }

    /// Returns the number of clients that track keys.
    pub fn clients(&self) -> usize {
        self.shared.lock().members.len()
    }

    /// Returns the numbers of keys, of pairs of a key and a client, and of prefixes.
    pub fn sizes(&self) -> [usize; 3] {
        self.shared.lock().table.sizes()
    }
}

impl Clients {
    /// Begins or changes the tracking of a client. `open` opens the changes of all databases, and `waker` is
    /// called when there are some. Returns false if the store does not report changes.
    ///
    /// # Errors
    /// Errors of the store.
    pub fn track(
        &self,
        client: &Arc<Client>,
        setting: &Setting,
        waker: Waker,
        open: impl FnOnce() -> Result<Watched>,
    ) -> Result<bool> {
        let tracking = &self.tracking;
        let mut source = tracking.source.lock();
        if !tracking.begin(&mut source, waker, open)? {
            return Ok(false);
        }
        let mut shared = tracking.shared.lock();
        tracking.no_loops.fetch_sub(usize::from(client.tracking.is_no_loop()), Ordering::Relaxed);
        client.tracking.set(setting);
        tracking.no_loops.fetch_add(usize::from(client.tracking.is_no_loop()), Ordering::Relaxed);
        shared.members.insert(client.id, client.clone());
        for prefix in &setting.prefixes {
            shared.table.add_prefix(prefix, client.id);
        }
        Ok(true)
    }

    /// Remembers keys that a client is about to read. `rounds` was taken before the state that it reads.
    /// `is_past`: it reads an older state. The table then has at most about `keys_max` keys; 0: no limit.
    pub fn remember(
        &self,
        client: &Arc<Client>,
        keys: &[&[u8]],
        rounds: u64,
        is_past: bool,
        keys_max: usize,
    ) {
        let shared = &mut *self.tracking.shared.lock();
        let mut notices = Notices::default();
        if is_past || rounds != self.tracking.rounds() {
            // tracking.2
            notices.keys.insert(client.id, keys.iter().map(|key| key.to_vec()).collect());
            return self.send(shared, &notices);
        }
        keys.iter().for_each(|key| shared.table.remember(key, client.id));
        if keys_max > 0 && shared.table.sizes()[0] > keys_max {
            for _ in 0..EVICTED_MAX + keys.len() {
                match shared.table.any().filter(|_| shared.table.sizes()[0] > keys_max) {
                    Some(key) => {
                        for id in shared.table.take(&key) {
                            notices.keys.entry(id).or_default().insert(key.to_vec());
                        }
                    }
                    None => break,
                }
            }
            self.send(shared, &notices);
        }
    }

    /// Tells clients of all changes since the last call (tracking.3). `own` is the number of the commit that
    /// the sequencer has just made, or 0.
    pub fn tell_changes(&self, own: u64) {
        if !self.tracking.is_active.load(Ordering::Relaxed) {
            return;
        }
        let mut source = self.tracking.source.lock();
        let Source { databases, waker: Some(waker) } = &mut *source else { return };
        let mut shared = None;
        let mut notices = Notices::default();
        for (_, changes) in databases {
            while let Some((seq, changed)) = changes.next(waker) {
                let shared = shared.get_or_insert_with(|| self.tracking.shared.lock());
                shared.collect(&changed, own != 0 && seq == own, &mut notices);
            }
        }
        if let Some(mut shared) = shared {
            self.tracking.rounds.fetch_add(1, Ordering::Release);
            self.send(&mut shared, &notices);
        }
        drop(source);
        if self.tracking.no_loops.load(Ordering::Relaxed) > 0 {
            self.tracking.shared.lock().writers.clear();
        }
    }

    /// Makes all clients that track keys drop everything.
    pub fn invalidate_all(&self) {
        if self.tracking.is_active.load(Ordering::Relaxed) {
            let shared = &mut *self.tracking.shared.lock();
            let mut notices = Notices::default();
            shared.collect_all(&mut notices);
            self.tracking.rounds.fetch_add(1, Ordering::Release);
            self.send(shared, &notices);
        }
    }

    fn send(&self, shared: &mut Shared, notices: &Notices) {
        for id in &notices.whole {
            if let Some(client) = shared.members.get(id) {
                self.send_to(client, None);
            }
        }
        for (id, keys) in notices.keys.iter().filter(|(id, _)| !notices.whole.contains(id)) {
            let Some(client) = shared.members.get(id) else { continue };
            let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
            // As in Redis. Libraries that drop all of a reply at its first key rely on it.
            let len = if client.tracking.is_bcast() { keys.len() } else { 1 };
            keys.chunks(len).for_each(|keys| self.send_to(client, Some(keys)));
        }
    }

    /// Sends an invalidation to a client, or to the one it redirects to. `None`: of all keys.
    fn send_to(&self, client: &Arc<Client>, keys: Option<&[&[u8]]>) {
        let redirect = client.tracking.redirect();
        let target = match redirect {
            0 => client.clone(),
            id => match self.get(id) {
                Some(target) => target,
                None => return tell_broken(client, redirect),
            },
        };
        let mut out = Out::new(target.state.is_resp3.load(Ordering::Relaxed));
        if out.is_resp3 {
            out.push(2);
            out.bulk(b"invalidate");
        } else if redirect != 0 && target.is_subscribed() {
            out.push(3);
            out.bulk(b"message");
            out.bulk(CHANNEL);
        } else {
            return;
        }
        match keys {
            Some(keys) => {
                out.array(keys.len());
                keys.iter().for_each(|key| out.bulk(key));
            }
            None => out.null(),
        }
        target.push(&out.bytes);
    }
}

/// Tells a client that the connection it redirects to has ended.
fn tell_broken(client: &Client, redirect: u64) {
    client.tracking.note_broken();
    if client.state.is_resp3.load(Ordering::Relaxed) {
        let mut out = Out::new(true);
        out.push(2);
        out.bulk(b"tracking-redir-broken");
        out.int(redirect as i64);
        client.push(&out.bytes);
    }
}

#[cfg(test)]
mod tests;
