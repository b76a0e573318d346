//! Elections among the simulated machines, by several sentinels that are slow or end anywhere.
//!
//! - A commit that the primary of a ballot and `QUORUM` replicas of it have on their disks is confirmed. Each
//!   later primary has it (ballot.1 to ballot.4).
//! - Machines lose their data, one at a time: they take part again once they have caught up.
//!
//! The choice is that of `esker sentinel`.

use super::{Died, Link, MACHINES, World, source, text};
use crate::replication::position::Position;
use crate::replication::{Ballot, Refused};
use crate::sentinel::choice::{Fenced, choose, needed};

const QUORUM: usize = 1;
const STEPS: usize = 4_000;

/// An attempt of a sentinel.
struct Attempt {
    ballot: u32,
    to_ask: Vec<usize>,
    fenced: Vec<Fenced<usize>>,
}

/// What etcd has, and what the sentinels are at.
#[derive(Default)]
struct Group {
    ballot: u32,
    primary: Option<usize>,
    attempts: Vec<Attempt>,
    /// The newest commit of the primary when a sentinel last looked.
    seen: Option<Position>,
    tally: Elections,
}

#[derive(Debug, Default)]
struct Elections {
    led: u64,
    joined: u64,
    wiped: u64,
    too_few: u64,
    confirmed: usize,
    copies: u64,
}

impl World {
    fn ballot(&self, m: usize) -> u32 {
        self.up(m).map_or(0, |up| up.replication.ballot().number)
    }

    /// Runs a step of an election at a machine. Its links end, as its role may have changed.
    fn ask<T>(&mut self, m: usize, step: impl FnOnce(&mut Self) -> Result<T, Refused>) -> Option<T> {
        let before = self.replication(m).state.lock().term;
        let done = step(self);
        if self.up(m).is_some_and(|up| up.replication.state.lock().term != before) {
            self.links[m] = None;
            let to_it = |link: &Option<Link>| link.as_ref().is_some_and(|link| link.to == m);
            self.links.iter_mut().filter(|link| to_it(link)).for_each(|link| *link = None);
        }
        match done {
            Ok(done) => {
                self.try_on(m, "look", |world| world.look(m));
                Some(done)
            }
            Err(Refused::Because(_)) => None,
            Err(Refused::Engine(error)) => {
                self.died(m, "election", &error.to_string());
                None
            }
        }
    }

    fn lead(&mut self, group: &mut Group, m: usize, ballot: u32) {
        let led = self.ask(m, |world| world.replication(m).lead(ballot, QUORUM as u32));
        if led.is_none() || self.up(m).is_none() {
            return;
        }
        let at = self.replication(m).position();
        for confirmed in &self.confirmed {
            assert!(
                self.model.leads_through(*confirmed, at),
                "machine {m} leads in ballot {ballot} at {at} without {confirmed}, which was confirmed"
            );
        }
        group.tally.led += 1;
        // The sentinel may end before it records this, or come too late.
        if self.rng.u8(..4) > 0 && group.ballot == ballot {
            group.primary = Some(m);
        }
    }

    /// Has an attempt go on.
    fn advance(&mut self, group: &mut Group) {
        if group.attempts.is_empty() || self.rng.u8(..20) == 0 {
            let known = (0..MACHINES).map(|m| {
                let epoch = self.up(m).map_or(0, |up| Ballot::of(up.replication.position().epoch));
                self.ballot(m).max(epoch)
            });
            group.ballot = known.fold(group.ballot, u32::max) + 1;
            group.primary = None;
            let mut to_ask: Vec<usize> = (0..MACHINES).collect();
            self.rng.shuffle(&mut to_ask);
            group.attempts.push(Attempt { ballot: group.ballot, to_ask, fenced: Vec::new() });
        }
        let at = self.rng.usize(..group.attempts.len());
        let mut attempt = group.attempts.swap_remove(at);
        let ballot = attempt.ballot;
        if let Some(m) = attempt.to_ask.pop() {
            if self.up(m).is_some()
                && let Some((before, at)) = self.ask(m, |world| world.replication(m).fence(ballot))
            {
                attempt.fenced.push(Fenced { server: m, before, at });
            }
            // Its answers may be lost, or the sentinel may end.
            if self.rng.u8(..30) > 0 {
                group.attempts.push(attempt);
            }
            return;
        }
        match choose(attempt.fenced, needed(MACHINES, QUORUM), None) {
            Ok(m) if self.up(m).is_some() => self.lead(group, m, ballot),
            Ok(_) => {}
            Err(_) => group.tally.too_few += 1,
        }
    }

    /// Has a machine follow the primary.
    fn mend(&mut self, group: &mut Group) {
        let Some(lead) = group.primary else { return self.advance(group) };
        let (m, ballot) = (self.rng.usize(..MACHINES), group.ballot);
        if self.up(m).is_none() || self.up(lead).is_none() || m == lead {
            return;
        }
        match self.ballot(m) {
            0 if self.followed(m) != Some(lead) => {
                self.links[m] = None;
                let begun = self.replication(m).become_replica(source(lead), false);
                self.try_on(m, "follow", |_| begun.map_err(text));
            }
            0 => {
                let (at, epoch) = (self.replication(m).position(), self.replication(lead).position().epoch);
                if at.epoch == epoch && group.seen.is_some_and(|seen| at.seq >= seen.seq) {
                    let joined = self.ask(m, |world| world.replication(m).join(ballot, at));
                    group.tally.joined += u64::from(joined.is_some());
                }
            }
            promised if promised < ballot => {
                self.ask(m, |world| world.replication(m).fence(ballot));
            }
            _ => {
                self.ask(m, |world| world.replication(m).follow(ballot, source(lead)));
            }
        }
        group.seen = self.up(lead).map(|up| up.replication.position());
    }

    /// Takes a machine's data, unless another one has yet to take part again.
    fn wipe(&mut self, group: &mut Group, m: usize) {
        if (0..MACHINES).any(|other| self.up(other).is_none() || self.ballot(other) == 0) {
            return;
        }
        self.crash(m);
        self.machines[m].disk = esker_env::MemFs::new();
        self.forget(m);
        group.tally.wiped += 1;
    }

    fn elect_step(&mut self, group: &mut Group) {
        let m = self.rng.usize(..MACHINES);
        match self.rng.u32(..60) {
            0 if self.rng.u8(..3) == 0 => self.advance(group),
            1 if self.rng.u8(..4) == 0 => self.wipe(group, m),
            // Sentinels are slow: much can happen between two answers.
            2 if group.primary.is_none() => self.advance(group),
            3..9 if group.primary.is_some() => self.mend(group),
            // No operator intervenes.
            _ => self.step_of(m, false),
        }
    }

    /// Restarts all machines, and has all follow a machine that they elect.
    fn restart_and_elect(&mut self, group: &mut Group) -> Died {
        (0..MACHINES)
            .filter(|m| self.up(*m).is_some())
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|m| self.crash(m));
        (0..MACHINES).for_each(|m| self.start(m, None));
        group.attempts.clear();
        group.primary = None;
        self.settle_group(group)
    }

    /// Waits until all machines take part and hold the same.
    fn settle_group(&mut self, group: &mut Group) -> Died {
        for _ in 0..200_000 {
            let lead = group.primary;
            let follows = |world: &World, m: usize| {
                lead.is_some_and(|lead| {
                    m == lead
                        || world.ballot(m) > 0
                            && world.replication(m).position() == world.replication(lead).position()
                })
            };
            if (0..MACHINES).all(|m| follows(self, m)) {
                return Ok(());
            }
            if lead.is_none() {
                self.advance(group);
            } else {
                self.mend(group);
                for m in (0..MACHINES).filter(|m| Some(*m) != lead) {
                    match (self.followed(m), &self.links[m]) {
                        (None, _) => {}
                        (_, None) => self.connect(m, true)?,
                        _ => self.link(m)?,
                    }
                }
            }
        }
        Err(format!("the group does not settle: {:?}", group.primary))
    }
}

#[expect(clippy::disallowed_methods, reason = "the generator of marks belongs to a thread")]
fn run(seed: u64) -> std::thread::Result<Elections> {
    let body = move || {
        let mut world = World::new(seed);
        for m in 0..MACHINES {
            world.start(m, None);
        }
        let mut group = Group { ballot: 1, primary: Some(0), ..Group::default() };
        world.ask(0, |world| world.replication(0).lead_first(1, QUORUM as u32)).expect("nothing fails yet");
        world.settle_group(&mut group).expect("nothing fails yet");
        (0..STEPS).for_each(|_| world.elect_step(&mut group));
        world.restart_and_elect(&mut group).expect("nothing fails any more");
        Elections { confirmed: world.confirmed.len(), copies: world.tally.copies, ..group.tally }
    };
    std::thread::spawn(body).join()
}

#[test]
fn no_confirmed_commit_is_lost_by_elections() {
    let number = |name| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let seeds = number("ESKER_SEED").map_or(0..number("ESKER_SEEDS").unwrap_or(12), |seed| seed..seed + 1);
    let mut total = Elections::default();
    for seed in seeds.clone() {
        let tally = run(seed).unwrap_or_else(|panic| {
            eprintln!("seed {seed}: ESKER_SEED={seed} cargo test -p esker-server --lib elections");
            std::panic::resume_unwind(panic)
        });
        total.led += tally.led;
        total.joined += tally.joined;
        total.wiped += tally.wiped;
        total.too_few += tally.too_few;
        total.confirmed += tally.confirmed;
        total.copies += tally.copies;
    }
    println!("{seeds:?}: {total:?}");
    let Elections { led, joined, wiped, too_few, confirmed, copies } = total;
    let happened = [led, joined, wiped, too_few, confirmed as u64, copies];
    assert!(seeds.end - seeds.start < 12 || happened.iter().all(|n| *n > 0), "{total:?}");
}
