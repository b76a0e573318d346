//! Primaries and replicas in one thread from a seed: broken links, processes that die inside a call, power
//! losses, promotions and forks.
//!
//! ```text
//!   seed --> machines, each a Db on a MemFs + Replication;   links, each Outgoing --bytes--> Following
//!       `--> Model: the state after each commit of each epoch, and the last commit before each epoch
//! ```
//!
//! - A replica holds the state of the commit at its position, whatever died and whatever broke
//!   (replication.2).
//! - A machine that returns has all commits of its epochs that others have: nothing is sent before it is
//!   durable (replication.1).
//! - What a replica has acknowledged is there when it returns: applied commits after a kill, durable commits
//!   after a power loss. So a promotion loses nothing that `WAIT` or `WAITAOF` has counted.
//! - A replica is served if and only if the primary's history passes through its position (replication.3).
//! - Once all follow one machine, all come to hold the same.
//! - A replica with a slot on a primary continues without a copy after any absence, unless it lacks commits
//!   from before that server became a primary (slots.1).
//!
//! More seeds: `ESKER_SEEDS=1000 cargo test --release -p esker-server --lib simulation`; one:
//! `ESKER_SEED=17`.

#[cfg(feature = "sentinel")]
mod elections;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::canary::{Canary, set};
use esker::{BackgroundStep, Db, Durability, FileSizes, History as Kept};
use esker_env::{
    Env, FaultAction, FaultFs, FaultRule, Fs, ManualClock, MemFs, OpKind, OpenOptions, read_range,
};
use fastrand::Rng;

use super::Replication;
use super::apply::Noted;
use super::following::Following;
use super::frame::Frame;
use super::outgoing::{Answer, Outgoing};
use super::position::{Epoch, Position};
use super::prepare::prepare;
use super::records::Role;
use crate::config::source::Source;

const MACHINES: usize = 3;
const STEPS: usize = 600;
const DAY: Duration = Duration::from_secs(86_400);

/// All commits of all histories.
#[derive(Default)]
struct Model {
    /// The state after each commit.
    states: BTreeMap<Position, Arc<str>>,
    /// The last commit before each epoch.
    parents: BTreeMap<Epoch, Position>,
    /// The machine that made the commits of each epoch.
    owners: BTreeMap<Epoch, usize>,
}

impl Model {
    /// Returns whether the history of `of` passes through `at`.
    fn leads_through(&self, at: Position, mut of: Position) -> bool {
        while of.epoch != at.epoch {
            let Some(parent) = self.parents.get(&of.epoch) else { return false };
            of = *parent;
        }
        at.seq <= of.seq
    }

    /// Records the state at a position, if it is unknown. Only the last commit of an operation changes what
    /// users see.
    fn note(&mut self, at: Position, now: &Arc<str>) {
        let first = self.parents.get(&at.epoch).map_or(0, |parent| parent.seq) + 1;
        let known = self.states.range(..=at).next_back().filter(|(known, _)| known.epoch == at.epoch);
        let (known, state) =
            known.map_or((first - 1, now.clone()), |(known, state)| (known.seq, state.clone()));
        for seq in known + 1..at.seq {
            self.states.insert(Position { seq, ..at }, state.clone());
        }
        self.states.entry(at).or_insert(now.clone());
    }
}

/// A process.
struct Up {
    faults: FaultFs,
    db: Db,
    replication: Replication,
}

/// A machine, and what others rely on.
#[derive(Default)]
struct Machine {
    disk: MemFs,
    up: Option<Up>,
    /// Positions that it has acknowledged: as applied, and as durable.
    applied: Option<Position>,
    durable: Option<Position>,
}

/// A replica's connection to the server that it follows.
struct Link {
    to: usize,
    outgoing: Box<Outgoing>,
    following: Following,
    wire: VecDeque<u8>,
    input: Vec<u8>,
    acks: VecDeque<[u64; 3]>,
    /// The newest commit that it has acknowledged as durable.
    durable: u64,
    /// The ballot that it had promised when it connected.
    ballot: u32,
}

/// The simulated machines and links.
struct World {
    rng: Rng,
    clock: Arc<ManualClock>,
    machines: [Machine; MACHINES],
    /// By replica.
    links: [Option<Link>; MACHINES],
    model: Model,
    tally: Tally,
    /// Commits that were confirmed to clients, where elections choose the primary.
    confirmed: Vec<Position>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    applied: u64,
    copies: u64,
    forks: u64,
    inside_calls: u64,
    acknowledged: u64,
    promotions: u64,
    /// Number of returns that needed a slot, and of slots whose log is gone.
    held: u64,
    dropped: u64,
}

/// Bytes of log kept without slots (few), and with them.
const RETENTION: u64 = 4 << 10;
const HOLD: u64 = 24 << 10;

type Died<T = ()> = Result<T, String>;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn slot_name(machine: usize) -> String {
    format!("machine{machine}")
}

fn source(machine: usize) -> Source {
    Source { host: "machine".to_owned(), port: machine as u16 }
}

/// Returns everything that users see of a database.
fn contents(db: &Db) -> esker::Result<String> {
    let mut all = String::new();
    for name in db.keyspaces()?.iter().filter(|name| !name.starts_with(super::OWN_PREFIX)) {
        let map = db.open_keyspace(name)?;
        all += &format!("{name} {} {:?} {}\n", map.id(), map.options(), map.len()?);
        for entry in map.iter() {
            let (key, value) = entry?;
            let end = match map.ttl(&key)? {
                Some(esker::Ttl::Left(left)) => db.time_ms() + left.as_millis() as u64,
                _ => 0,
            };
            all += &format!("  {key:?} {value:?} {end}\n");
        }
    }
    Ok(all)
}

impl World {
    fn new(seed: u64) -> World {
        // The source of the epochs' marks.
        fastrand::seed(seed);
        let machines = std::array::from_fn(|_| Machine::default());
        let (links, clock) = (std::array::from_fn(|_| None), Arc::default());
        let rng = Rng::with_seed(seed);
        let (model, tally, confirmed) = Default::default();
        World { rng, clock, machines, links, model, tally, confirmed }
    }

    fn up(&self, m: usize) -> Option<&Up> {
        self.machines[m].up.as_ref()
    }

    fn replication(&self, m: usize) -> &Replication {
        &self.up(m).expect("it runs").replication
    }

    /// Returns the machine that a machine follows.
    fn followed(&self, m: usize) -> Option<usize> {
        let source = self.up(m)?.replication.source().filter(|source| !source.is_unset())?;
        Some(source.port.into())
    }

    /// Handles a failure: the process has died inside a call, or the test fails.
    fn died(&mut self, m: usize, what: &str, error: &str) {
        let is_dead = self.up(m).is_some_and(|up| up.faults.is_frozen());
        assert!(is_dead, "{what} of machine {m}: {error}");
        self.tally.inside_calls += 1;
        self.crash(m);
    }

    fn try_on(&mut self, m: usize, what: &str, call: impl FnOnce(&mut Self) -> Died) {
        if let Err(error) = call(self) {
            self.died(m, what, &error);
        }
    }

    /// Ends the process and its links.
    fn crash(&mut self, m: usize) {
        let machine = &mut self.machines[m];
        let is_power_loss = self.rng.bool();
        let disk = if is_power_loss { machine.disk.crash(self.rng.u64(..)) } else { machine.disk.kill() };
        if is_power_loss {
            machine.applied = machine.durable;
        }
        self.links[m] = None;
        self.links
            .iter_mut()
            .filter(|link| link.as_ref().is_some_and(|link| link.to == m))
            .for_each(|link| *link = None);
        machine.up = None;
        machine.disk = disk;
    }

    fn open(&mut self, m: usize) -> Db {
        let machine = &mut self.machines[m];
        let faults = FaultFs::new(Arc::new(machine.disk.clone()));
        let mut env = Env::simulated(Arc::new(faults.clone()), self.rng.u64(..));
        env.clock = self.clock.clone();
        let builder = Db::builder().stepped().memory(2 << 20).tuning(|t| t.memtable_bytes(8 << 10));
        let builder = builder.file_sizes(FileSizes { first_segment: 4 << 10, ..FileSizes::default() });
        let builder =
            builder.feed_retention([RETENTION, 1 << 30][usize::from(self.rng.u8(..4) > 1)], Duration::MAX);
        let db = builder
            .tuning(|t| t.feed_hold(HOLD))
            .env(env)
            .open("db")
            .expect("nothing is wrong with the disk");
        let replication = Replication::open(None, None).expect("of nothing");
        machine.up = Some(Up { faults, db: db.clone(), replication });
        db
    }

    /// Starts a process, which must find everything that it should.
    fn start(&mut self, m: usize, follow: Option<usize>) {
        let db = self.open(m);
        let replication = Replication::open(Some(&db), follow.map(source)).expect("its records are whole");
        self.machines[m].up.as_mut().expect("it was opened").replication = replication;
        self.learn(m, true).expect("nothing fails yet");
        let Machine { applied, durable, .. } = self.machines[m];
        let at = self.replication(m).position();
        for promised in applied.into_iter().chain(durable) {
            assert!(self.model.leads_through(promised, at), "machine {m} had {promised}, and is at {at}");
        }
        for other in (0..MACHINES).filter(|other| self.up(*other).is_some()) {
            let mut theirs = Some(self.replication(other).position());
            while let Some(made) = theirs {
                let is_own = self.model.owners.get(&made.epoch) == Some(&m);
                assert!(
                    !is_own || self.model.leads_through(made, at),
                    "machine {other} has {made}, and its maker is at {at}"
                );
                theirs = self.model.parents.get(&made.epoch).copied();
            }
        }
    }

    fn look(&mut self, m: usize) -> Died {
        self.learn(m, false)
    }

    /// Asserts that a machine holds the state of its position, and records a new state. `has_begun`: it may
    /// have just been a primary.
    #[expect(clippy::map_entry, reason = "the model is looked at in between")]
    fn learn(&mut self, m: usize, has_begun: bool) -> Died {
        let up = self.up(m).expect("it runs");
        let (at, now) = (up.replication.position(), contents(&up.db).map_err(text)?);
        let (epochs, is_replica) = (up.replication.epochs(), up.replication.is_replica());
        let now: Arc<str> = now.into();
        let mut before: Option<Epoch> = None;
        for (epoch, start) in epochs {
            let parent = before.replace(epoch).map(|epoch| Position { epoch, seq: start });
            self.model.parents.extend(parent.map(|parent| (epoch, parent)));
            if !self.model.owners.contains_key(&epoch) {
                assert!(
                    !is_replica || has_begun,
                    "machine {m} knows epoch {epoch}, which no machine has begun"
                );
                self.model.owners.insert(epoch, m);
                // From here on it is known whether a crash has taken these commits.
                parent.into_iter().for_each(|parent| self.model.note(parent, &now));
            }
        }
        if !is_replica || (has_begun && self.model.owners.get(&at.epoch) == Some(&m)) {
            self.model.note(at, &now);
        }
        let expected = self.model.states.get(&at).map_or("nothing known", |state| state);
        assert_eq!(&*now, expected, "machine {m} at {at}");
        Ok(())
    }

    /// Writes, if the machine accepts writes.
    fn write(&mut self, m: usize) -> Died {
        let mut rng = self.rng.fork();
        let db = self.up(m).expect("it runs").db.clone();
        let names: Vec<String> =
            db.keyspaces().map_err(text)?.into_iter().filter(|name| !name.starts_with("es.")).collect();
        let map = db.open_keyspace(&names[rng.usize(..names.len())]).map_err(text)?;
        let (name, key) = (map.name(), format!("key{}", rng.u32(..12)));
        let durability = [Durability::Sync, Durability::None, Durability::Buffered][rng.usize(..5).min(2)];
        match rng.u32(..16) {
            0 if names.len() < 5 => drop(db.keyspace(&format!("map{}", rng.u32(..5))).map_err(text)?),
            1 if name != "default" => db.drop_keyspace(&name).map_err(text)?,
            2 if name != "default" => {
                db.rename_keyspace(&name, &format!("renamed{}", rng.u32(..))).map_err(text)?;
            }
            3 if map.merge_operator().is_none() => map.set_merge_operator("append").map_err(text)?,
            4 => map.set_default_ttl(rng.bool().then_some(DAY)).map_err(text)?,
            5 => map.set_history([Kept::None, Kept::Versions(2)][rng.usize(..2)]).map_err(text)?,
            6 | 7 if map.merge_operator().is_some() => {
                map.with(durability).merge(&key, "m").map_err(text)?;
            }
            8 => drop(map.with(durability).delete(&key).map_err(text)?),
            9 => drop(map.delete_range(key..).map_err(text)?),
            10 => drop(map.put_with_ttl(&key, "ends", DAY * 2).map_err(text)?),
            _ => drop(map.with(durability).put(&key, "v".repeat(rng.usize(..2000))).map_err(text)?),
        }
        self.look(m)
    }

    /// Asks the primary of a replica where to continue.
    fn connect(&mut self, m: usize, may_discard: bool) -> Died {
        let Some(to) = self.followed(m).filter(|to| *to != m && self.up(*to).is_some()) else {
            return Ok(());
        };
        if self.replication(to).refuses(self.replication(m).ballot().number).is_some() {
            return Ok(());
        }
        let (at, theirs) = (self.replication(m).position(), self.replication(to).position());
        let leads = self.model.leads_through(at, theirs);
        self.keep_slots(to);
        let Some(followed) = self.up(to) else { return Ok(()) };
        let slot = followed.replication.slots().get(&slot_name(m)).copied();
        let slot = slot.filter(|slot| self.model.leads_through(slot.at, at));
        let role = followed.replication.state.lock().role.clone();
        let slot = slot.filter(|_| matches!(role, Role::Primary(base) if base.seq <= at.seq + 1));
        match self.replication(to).answer(at) {
            Answer::Continue(outgoing) => {
                assert!(leads, "{theirs} does not lead through {at}");
                let bytes = slot.map_or(0, |slot| self.replication(to).slot_bytes(&slot));
                self.tally.held += u64::from(bytes > 2 * RETENTION);
                self.take_slot(m, to, Some((at, outgoing.taken())));
                if self.up(to).is_none() {
                    return Ok(());
                }
                let term = self.replication(m).state.lock().term;
                let following = Following::new(self.replication(m), term)?;
                let ballot = self.replication(m).ballot().number;
                let (wire, input, acks, durable) = Default::default();
                self.links[m] = Some(Link { to, outgoing, following, wire, input, acks, durable, ballot });
            }
            Answer::Copy(why) => {
                assert!(leads, "{theirs} does not lead through {at}");
                assert!(slot.is_none(), "machine {m} at {at} has {slot:?}, and yet: {why}");
                self.copy(m, to);
            }
            Answer::Forked(why) => {
                assert!(!leads, "{theirs} leads through {at}, and yet: {why}");
                self.tally.forks += 1;
                if may_discard {
                    self.forget(m);
                    self.copy(m, to);
                }
            }
            // The primary's log may be lost with its process.
            Answer::Refused(why) => self.died(to, "answer", &why),
        }
        Ok(())
    }

    /// Records what an acknowledgement confirms: commits of a primary's own ballot.
    fn confirm(&mut self, link: &Link) {
        let lead = self.replication(link.to);
        let state = lead.state.lock();
        let ballot = state.ballot;
        let seq = link.durable.min(lead.position_in(&state).seq);
        let at = Position { epoch: state.history.epoch_of(seq), seq };
        let counts = matches!(state.role, Role::Primary(_)) && link.ballot == ballot.number;
        drop(state);
        if counts && ballot.number > 0 && ballot.has(at.epoch) {
            self.confirmed.push(at);
        }
    }

    /// Expects nothing of a machine any more.
    fn forget(&mut self, m: usize) {
        (self.machines[m].applied, self.machines[m].durable) = (None, None);
        let owners = self.model.owners.values_mut().filter(|owner| **owner == m);
        owners.for_each(|owner| *owner = MACHINES);
    }

    /// Moves or drops slots of a machine.
    fn keep_slots(&mut self, to: usize) {
        let of = |(m, link): (usize, &Option<Link>)| {
            link.as_ref().filter(|link| link.to == to).map(|link| (slot_name(m), link.durable))
        };
        let durable = self.links.iter().enumerate().filter_map(of).collect();
        let kept = self.replication(to).keep_slots(&durable).map_err(text);
        match kept.and_then(|gone| self.look(to).map(|()| gone)) {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => {
                let left = self
                    .up(to)
                    .map_or(0, |up| up.db.feed_bytes_after(esker::SeqNo::ZERO).unwrap_or_default());
                assert!(left > HOLD / 2, "the log of {gone:?} has gone early: {left} bytes are left");
                self.tally.dropped += gone.len() as u64;
            }
            Err(error) => self.died(to, "slots", &error),
        }
    }

    fn take_slot(&mut self, m: usize, to: usize, from: Option<(Position, u64)>) {
        let taken = self.replication(to).take_slot(&slot_name(m), from).map_err(text);
        if let Err(error) = taken.and_then(|()| self.look(to)) {
            self.died(to, "slot", &error);
        }
    }

    /// Replaces a machine's database by a copy.
    fn copy(&mut self, m: usize, to: usize) {
        self.take_slot(m, to, None);
        if self.up(to).is_none() {
            return;
        }
        let dir = format!("copy{}", self.rng.u64(..));
        if let Err(error) = self.up(to).expect("it runs").db.checkpoint(&dir) {
            return self.died(to, "checkpoint", &error.to_string());
        }
        let (from, disk) = (&self.machines[to].disk, MemFs::new());
        let (from_dir, to_dir) = (Path::new(&dir), Path::new("db"));
        let move_over = || -> std::io::Result<()> {
            disk.create_dir_all(to_dir)?;
            for name in from.list_dir(from_dir)? {
                let file = from.open(&from_dir.join(&name), OpenOptions::read())?;
                let bytes = read_range(&*file, 0, file.len()? as usize)?;
                let new = disk.open(&to_dir.join(&name), OpenOptions::create())?;
                new.write_all_at(&bytes, 0)?;
                new.sync_data()?;
                from.remove_file(&from_dir.join(&name))?;
            }
            disk.sync_dir(to_dir)?;
            disk.sync_dir(Path::new(""))
        };
        move_over().expect("file systems in memory do not fail");
        let ballot = self.replication(m).ballot();
        self.crash(m);
        self.machines[m].disk = disk;
        let db = self.open(m);
        prepare(db, &source(to), None, ballot).expect("the copy is whole");
        self.start(m, None);
        self.tally.copies += 1;
    }

    /// Runs one step of a link.
    fn link(&mut self, m: usize) -> Died {
        let Some(mut link) = self.links[m].take() else {
            let may_discard = self.rng.u8(..4) == 0;
            return self.connect(m, may_discard);
        };
        let (event, steps, syncs) = (self.rng.u32(..8), self.rng.u32(1..8), self.rng.u8(..4) == 0);
        let theirs = self.up(link.to).expect("links end with their machines");
        match event {
            0..3 => {
                let mut out = Vec::new();
                for _ in 0..steps {
                    match link.outgoing.step(Duration::ZERO, &mut out, |_| true) {
                        Ok(true) => {}
                        Ok(false) if syncs && theirs.replication.has_more_than(link.outgoing.taken()) => {
                            if let Err(error) = theirs.replication.sync() {
                                self.died(link.to, "sync", &error.to_string());
                                return Ok(());
                            }
                        }
                        Ok(false) => {
                            Frame::Alive(theirs.replication.position().seq).encode(&mut out);
                            break;
                        }
                        // It is too far behind by now, or the machine has died.
                        Err(_) => return Ok(()),
                    }
                }
                link.wire.extend(out);
            }
            3..6 => {
                let n = link.wire.len().min([10, 1_000, usize::MAX][self.rng.usize(..3)]);
                link.input.extend(link.wire.drain(..n));
                while let Some((frame, len)) = Frame::decode(&link.input).expect("no byte is changed") {
                    link.input.drain(..len);
                    let taken = link.following.take(self.replication(m), frame, Noted::default())?;
                    if taken.is_some() {
                        self.tally.applied += 1;
                        self.look(m)?;
                    }
                }
                link.acks.push_back(self.replication(m).numbers());
            }
            6 => self.replication(m).sync_applied()?,
            _ => {
                if let Some([_, applied, durable]) = link.acks.pop_front() {
                    let history = self.replication(m).state.lock().history.clone();
                    let position = |seq| Position { epoch: history.epoch_of(seq), seq };
                    let machine = &mut self.machines[m];
                    (machine.applied, machine.durable) = (Some(position(applied)), Some(position(durable)));
                    self.tally.acknowledged += 1;
                    link.durable = durable;
                    self.confirm(&link);
                }
            }
        }
        self.links[m] = Some(link);
        Ok(())
    }

    /// Changes the machine's role.
    fn turn(&mut self, m: usize) -> Died {
        let to = self.rng.usize(..MACHINES);
        self.links[m] = None;
        self.links
            .iter_mut()
            .filter(|link| link.as_ref().is_some_and(|link| link.to == m))
            .for_each(|link| *link = None);
        if to == m {
            let was_replica = self.replication(m).become_primary().map_err(text)?;
            self.tally.promotions += u64::from(was_replica);
        } else {
            self.replication(m).become_replica(source(to), false).map_err(text)?;
        }
        self.look(m)
    }

    fn step(&mut self) {
        let m = self.rng.usize(..MACHINES);
        self.step_of(m, true);
    }

    /// Runs a step of a machine. An operator may change its role.
    fn step_of(&mut self, m: usize, has_operator: bool) {
        if self.up(m).is_none() {
            return self.start(m, None);
        }
        match self.rng.u32(..62) {
            0 => self.crash(m),
            1 => {
                // It dies at a later call.
                let kinds =
                    [OpKind::Write, OpKind::SyncData, OpKind::SyncDir, OpKind::Create, OpKind::Rename];
                let rule = FaultRule::new(&kinds, FaultAction::Freeze { keep: self.rng.usize(..64) });
                let nth = self.rng.u64(1..12);
                self.up(m).expect("it runs").faults.add(rule.nth(nth));
            }
            2 if has_operator => self.try_on(m, "turn", |world| world.turn(m)),
            3 => self.links[m] = None,
            4 => self.try_on(m, "connect", |world| {
                if world.links[m].is_none() { world.connect(m, true) } else { Ok(()) }
            }),
            5..8 => {
                let steps = [
                    BackgroundStep::Flush,
                    BackgroundStep::Compact { idle: true },
                    BackgroundStep::PrepareLog,
                    BackgroundStep::SyncLog,
                ];
                let step = steps[self.rng.usize(..4)];
                self.try_on(m, "background", |world| {
                    world.up(m).map_or(Ok(()), |up| up.db.step(step).map(drop).map_err(text))
                });
            }
            60.. => self.keep_slots(m),
            8..26 if !self.replication(m).is_replica() => self.try_on(m, "write", |world| world.write(m)),
            _ if self.replication(m).is_replica() => self.try_on(m, "link", |world| world.link(m)),
            _ => {}
        }
    }

    /// Makes all follow one primary until they hold the same.
    fn settle(&mut self) {
        for m in 0..MACHINES {
            self.crash(m);
            self.start(m, None);
        }
        let first = (0..MACHINES).find(|m| !self.replication(*m).is_replica()).unwrap_or(0);
        self.replication(first).become_primary().expect("nothing fails any more");
        self.look(first).expect("nothing fails any more");
        for m in (0..MACHINES).filter(|m| *m != first) {
            self.replication(m).become_replica(source(first), false).expect("nothing fails any more");
            let is_there =
                |world: &World| world.replication(m).position() == world.replication(first).position();
            for _ in 0..100_000 {
                if is_there(self) {
                    break;
                }
                let went_on = if self.links[m].is_none() { self.connect(m, true) } else { self.link(m) };
                went_on.expect("nothing fails any more");
            }
            assert!(is_there(self), "machine {m} does not come to {}", self.replication(first).position());
            assert!(self.up(m).expect("it runs").db.check().expect("it can be read").is_sound());
        }
    }
}

/// Runs a seed in a thread of its own.
#[expect(clippy::disallowed_methods, reason = "a canary is set for a thread")]
fn run(seed: u64, canary: Option<Canary>) -> std::thread::Result<Tally> {
    let body = move || {
        set(canary);
        let mut world = World::new(seed);
        for m in 0..MACHINES {
            world.start(m, (m > 0).then_some(0));
        }
        (0..STEPS).for_each(|_| world.step());
        world.settle();
        world.tally
    };
    std::thread::spawn(body).join()
}

#[test]
fn primaries_and_replicas_whatever_happens_to_them() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = number("ESKER_SEED").map_or(0..number("ESKER_SEEDS").unwrap_or(24), |seed| seed..seed + 1);
    let mut total = Tally::default();
    for seed in seeds.clone() {
        let tally = run(seed, None).unwrap_or_else(|panic| {
            eprintln!("seed {seed}: ESKER_SEED={seed} cargo test -p esker-server --lib simulation");
            std::panic::resume_unwind(panic)
        });
        total.applied += tally.applied;
        total.copies += tally.copies;
        total.forks += tally.forks;
        total.inside_calls += tally.inside_calls;
        total.acknowledged += tally.acknowledged;
        total.promotions += tally.promotions;
        total.held += tally.held;
        total.dropped += tally.dropped;
    }
    println!("{seeds:?}: {total:?}");
    let Tally { applied, copies, forks, inside_calls, acknowledged, promotions, held, dropped } = total;
    let happened = [applied, copies, forks, inside_calls, acknowledged, promotions, held, dropped];
    assert!(seeds.end - seeds.start < 24 || happened.iter().all(|n| *n > 0), "{total:?}");
}

#[test]
fn what_is_sent_before_it_is_durable_is_noticed() {
    let found = (0..40).find(|seed| run(*seed, Some(Canary::FeedBeforeDurable)).is_err());
    println!("FeedBeforeDurable: seed {found:?}");
    assert!(found.is_some());
}
