//! The end of a process and the start of the next.
//!
//! ```text
//!   close, drop --> the same disk          kill  --> the same disk, with nothing more synced
//!                                          power --> the result of MemFs::crash
//!   then: mishaps while opening, each an end or a fault; then an opening that must succeed
//! ```
//!
//! The database can always be opened, and shows a state allowed by the history (world.3). The offline tools
//! find the same state (offline.rs).

use std::sync::Arc;
use std::time::Duration;

use esker::{Builder, Db};
use esker_env::{Env, FaultFs, MemFs, SeededRandom, SystemThreads};

use super::faults::{attempt, death, rule};
use super::limited::is_limited;
use super::replica::Replica;
use super::{Held, World};
use crate::judge::read;
use crate::model::history::{History, Reach};
use crate::op::{End, Loss, Mishap, Opening, Restart};
use crate::perform;
use crate::setting;

impl World {
    /// Returns the environment of the current process.
    pub(super) fn env(&self) -> Env {
        Env {
            fs: Arc::new(self.machine.faults.clone()),
            clock: self.machine.clock.clone(),
            random: self.machine.random.clone(),
            threads: Arc::new(SystemThreads),
            keys: self.machine.keys.clone(),
        }
    }

    pub(super) fn builder(&self, opening: Opening) -> Builder {
        // Sweeps require the same calls for all seeds.
        let first_number = if self.mode.swept { 1 } else { setting::first_number(self.seed) };
        let builder = builder(self.env(), opening).first_number(first_number);
        let builder = match setting::compacts_beside(self.seed) {
            true => builder.tuning(|t| t.compactions(setting::COMPACTIONS)),
            false => builder,
        };
        if setting::has_filters(self.seed) { self.machine.filters.with(builder) } else { builder }
    }

    /// Opens the database for the first time.
    pub fn start(&mut self, opening: Opening) {
        let restart = Restart { end: End::Close, mishaps: Vec::new(), opening };
        self.open(&restart, None);
    }

    /// Opens the database of a seed for the first time. In some seeds, the ids of keyspaces created later
    /// have several bytes.
    pub fn start_seed(&mut self, opening: Opening) {
        self.begin_sharing();
        self.start(opening);
        if setting::has_long_ids(self.seed) {
            self.use_up_short_ids();
        }
    }

    /// Restarts the process. A swept process that dies while closing the database is not restarted.
    pub(crate) fn restart(&mut self, restart: &Restart) {
        let reach = self.end(restart.end);
        if !self.is_dead() {
            self.open(restart, reach);
        }
    }

    /// Drops everything that reads.
    fn release_all(&mut self) {
        self.abandon_compactions();
        self.between = None;
        self.copies.reader.let_go();
        self.copies.replica.iter_mut().for_each(Replica::let_go);
        self.held = Held::default();
        self.keyspaces.clear();
    }

    /// Ends the process. Returns what that may undo.
    fn end(&mut self, end: End) -> Option<Reach> {
        self.note_log_sizes();
        let reach = match end {
            End::Close => {
                self.release_all();
                let closed = self.close_db();
                self.tally.reopenings += 1;
                if self.excused(closed).is_some() && !self.is_dead() {
                    self.history.all_durable();
                    None
                } else {
                    Some(Reach::Unwritten)
                }
            }
            End::Drop => {
                self.release_all();
                self.db = None;
                self.end_host();
                self.tally.reopenings += 1;
                // The last handle closes the database and ignores errors.
                if self.met_fault() || self.was_refused() || self.process.poisoned {
                    Some(Reach::Unwritten)
                } else {
                    self.history.all_durable();
                    None
                }
            }
            End::Kill => {
                self.tally.kills += 1;
                self.machine.faults.freeze();
                Some(Reach::Unwritten)
            }
            End::KillUnheard { seed, evicted } => {
                self.tally.kills += 1;
                self.tally.unheard += 1;
                self.machine.faults.freeze();
                self.machine.disk = self.machine.disk.kill_unheard(seed, evicted);
                self.copies.has_lost_power = true;
                Some(reach_of_unheard(evicted))
            }
            End::Power(loss) => {
                self.tally.power_losses += 1;
                self.machine.faults.freeze();
                self.machine.disk = lose(&self.machine.disk, loss);
                self.copies.has_lost_power = true;
                Some(Reach::Unsynced)
            }
        };
        self.release_all();
        self.db = None;
        self.end_sharing(end);
        self.process.armed = None;
        if reach.is_none() {
            // Files of replaced tables are removed once no epoch needs them.
            esker::settle_garbage();
            self.process.is_tidy =
                self.process.at_birth == (self.machine.faults.fired(), self.machine.disk.refusals());
        }
        if self.mode.swept {
            return reach;
        }
        if self.is_dead() {
            self.new_process();
        } else {
            self.machine.faults.clear();
        }
        self.machine.disk.set_capacity(None);
        reach
    }

    /// Creates the file system of a new process. The old one stays frozen.
    fn new_process(&mut self) {
        let mut tally = std::mem::take(&mut self.tally);
        self.count_calls(&mut tally);
        self.tally = tally;
        self.machine.faults = FaultFs::new(Arc::new(self.machine.disk.clone()));
        self.begin_operation();
    }

    /// Opens the database after all mishaps. `reach` says what the end of the last process may have undone.
    fn open(&mut self, restart: &Restart, mut reach: Option<Reach>) {
        (self.process.poisoned, self.process.panicked) = (false, false);
        let is_inspected = self.is_inspected();
        let mut mishaps = restart.mishaps.iter();
        let (db, image) = loop {
            self.begin_operation();
            let mishap = mishaps.next();
            match mishap {
                Some(Mishap::End { after, keep, .. }) => self.machine.faults.add(death(*after, *keep)),
                Some(Mishap::Fault(fault)) => self.machine.faults.add(rule(*fault)),
                Some(Mishap::Full(bytes)) => self.fill_disk(*bytes),
                None => {}
            }
            let is_tidy = std::mem::take(&mut self.process.is_tidy);
            let image = is_inspected.then(|| (self.machine.disk.kill(), is_tidy));
            let opened = self.open_db(restart.opening);
            if self.is_dead() {
                drop(opened);
                let Some(Mishap::End { end, .. }) = mishap else {
                    assert!(self.mode.swept, "only a mishap ends an opening");
                    return;
                };
                self.tally.while_opening += 1;
                reach = reach.into_iter().chain(self.end(*end)).min();
                continue;
            }
            let opened = match opened {
                Ok(db) => Some(db),
                Err(error) => {
                    let reason = mishap.is_some() || self.met_fault() || self.was_refused();
                    assert!(reason, "the database cannot be opened: {error}");
                    self.excused_tidying::<()>(Err(error));
                    (self.process.poisoned, self.process.panicked) = (false, false);
                    None
                }
            };
            if mishap.is_some() || opened.is_none() {
                self.mend();
            }
            if let Some(db) = opened {
                break (db, image);
            }
        };
        self.process.at_birth = (self.process.fired_before, self.process.refused_before);
        self.adopt(db, restart.opening, reach);
        if let Some((image, is_tidy)) = image.filter(|_| !self.is_dead()) {
            self.inspect(&image, is_tidy, restart.opening);
        }
    }

    /// Ends the last process without its scheduled faults.
    pub fn leave(mut self, end: End) -> Left {
        self.mend();
        self.finish_compactions();
        let reach = self.end(end);
        Left { disk: self.machine.disk.kill(), history: self.history, reach }
    }

    /// Compares the contents with the history and opens all keyspaces.
    fn adopt(&mut self, db: Db, opening: Opening, reach: Option<Reach>) {
        self.process.opening = Some(opening);
        self.seen.current = self.content("CURRENT");
        self.seen.inherited = self.names();
        let stats = db.stats();
        self.seen.tier_runs = stats.tier_runs;
        // The numbers of lost commits are given to others, to those of a host and of sweeps first.
        let found = self.found_by_host().unwrap_or(stats.seqno.get());
        self.past.retain(|(number, _)| *number <= found);
        self.db = Some(db);
        self.note_opening_for_copies(found);
        loop {
            self.begin_operation();
            // A sweep would remove the oldest entries before the model knows what there is.
            let is_swept = !is_limited(self.db()) && self.sweep();
            self.history.set_now(self.now_ms());
            let now_ms = self.expires.then(|| self.now_ms());
            let found = attempt(|| read::contents_with(self.db(), false, is_swept, now_ms));
            // A fault that outlives the opening affects reads once or always.
            let Some(found) = self.read(found) else {
                if self.is_dead() {
                    return;
                }
                self.mend();
                continue;
            };
            if let Err(complaint) = self.history.recovered(&found, reach) {
                panic!("world.3: {complaint}");
            }
            break;
        }
        let report = attempt(|| self.db().check());
        if let Some(report) = self.excused(report) {
            assert!(self.are_explained(&report.problems), "world.3: check: {:#?}", report.problems);
        }
        self.note_opening_for_feed();
        self.follow();
        let names = self.history.newest().names().clone();
        let handle = |name: &str| self.db().open_keyspace(name).expect("it is listed");
        self.keyspaces = names.iter().map(|(name, id)| (*id, handle(name))).collect();
        for (id, keyspace) in self.keyspaces.clone() {
            self.note_lifetime(id, &keyspace);
        }
        self.note_moment();
        self.check_copy();
        self.ask_for_outcome();
    }

    /// Returns another world in which the current process ends in this way and the next one opens the
    /// database, without a limit of disk space.
    ///
    /// # Panics
    /// If the end is not a kill or a power loss.
    pub fn fork(&mut self, restart: &Restart) -> World {
        let mut fork = World::new(self.seed, None);
        fork.machine.is_plain = self.machine.is_plain;
        self.process.openings += 1;
        fork.process.openings = self.process.openings;
        fork.mode.inspects_all = self.mode.inspects_all;
        // Each process draws different numbers.
        fork.machine.random = Arc::new(SeededRandom::new(self.seed ^ self.process.openings.rotate_left(32)));
        // The disks of all forks have one observer. So no salt is drawn twice.
        (fork.machine.keys, fork.machine.seals) = (self.machine.keys.clone(), self.machine.seals.clone());
        let reach = match restart.end {
            End::Kill => {
                fork.machine.disk = self.machine.disk.kill();
                fork.tally.kills = 1;
                Reach::Unwritten
            }
            End::Power(loss) => {
                fork.machine.disk = lose(&self.machine.disk, loss);
                fork.tally.power_losses = 1;
                Reach::Unsynced
            }
            End::KillUnheard { seed, evicted } => {
                fork.machine.disk = self.machine.disk.kill_unheard(seed, evicted);
                fork.tally.kills = 1;
                fork.tally.unheard = 1;
                reach_of_unheard(evicted)
            }
            End::Close | End::Drop => panic!("a fork's process does not close anything"),
        };
        fork.machine.disk.set_capacity(None);
        fork.machine.faults = FaultFs::new(Arc::new(fork.machine.disk.clone()));
        fork.history = self.history.clone();
        fork.copies.reader = self.copies.reader.passed_on();
        fork.expires = self.expires;
        fork.machine.clock = self.machine.clock.clone();
        fork.open(restart, Some(reach));
        fork
    }
}

/// What the last process leaves.
pub struct Left {
    /// The disk as the next process finds it.
    pub disk: MemFs,
    /// The commits since the last opening.
    pub history: History,
    /// What the end may have undone.
    pub reach: Option<Reach>,
}

/// Returns a builder with the options of an opening.
pub fn builder(env: Env, opening: Opening) -> Builder {
    let builder = Db::builder()
        .env(env)
        .background(false)
        .durability(opening.durability)
        .memory(opening.memory)
        .tuning(|t| t.memtable_bytes(opening.memtable_bytes))
        // Some closes flush; others leave the log to be replayed.
        .tuning(|t| {
            t.replay_bytes(opening.memtable_bytes as u64 / 4)
                .block_bytes(opening.block_bytes)
                .table_bytes(opening.table_bytes)
        })
        .file_sizes(opening.file_sizes)
        .blobs(opening.blobs)
        .compression(opening.compression);
    let builder = builder.feed_retention(opening.feed_bytes.unwrap_or(0), Duration::MAX);
    let builder = match opening.miniature {
        Some(cache_bytes) => builder.miniature(cache_bytes),
        None => builder,
    };
    let builder = match opening.transaction_memory {
        Some(bytes) => builder.tuning(|t| t.transaction_memory(bytes)),
        None => builder,
    };
    let builder = match opening.adoption_bytes {
        Some(bytes) => builder.adoption_bytes(bytes),
        None => builder,
    };
    let builder = perform::with_operator(builder);
    if opening.stepped { builder.stepped() } else { builder }
}

/// Returns the reach of a silent write failure. Data still in the page cache survives a kill; evicted data is
/// lost.
fn reach_of_unheard(evicted: bool) -> Reach {
    if evicted { Reach::Unsynced } else { Reach::Unwritten }
}

pub(super) fn lose(disk: &MemFs, loss: Loss) -> MemFs {
    match loss {
        Loss::Seed(seed) => disk.crash(seed),
        Loss::All => disk.crash_strict(),
        Loss::Nothing => disk.crash_keep_all(),
    }
}
