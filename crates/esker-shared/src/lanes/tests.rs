//! All orders in which a commit, its lost reply, a new host and questions about it can follow each other.
//!
//! Files are in memory, and calls take the place of sockets. What this cannot show: threads that run at the
//! same time, and bytes in sockets. tests/it/kill.rs does.

use esker::env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

use super::*;

const LANE: LaneId = LaneId([1; 16]);
const PATIENCE: Duration = Duration::from_millis(10);

/// A host of a database in memory, and the next ones.
struct World {
    fs: Arc<FaultFs>,
    host: Option<Lanes>,
    /// The connection's lane in this host.
    lane: Option<Arc<Lane>>,
}

impl World {
    fn new() -> Self {
        let mut world = World { fs: Arc::new(FaultFs::new(Arc::new(MemFs::new()))), host: None, lane: None };
        world.next_host();
        world
    }

    /// Ends the host with its connections. Another one takes over.
    fn next_host(&mut self) {
        self.lane = None;
        if let Some(host) = self.host.take() {
            // It fails if the log has.
            let _ = host.db.close();
        }
        let env = Env::simulated(self.fs.clone(), 1);
        let db = Db::builder().background(false).env(env).open("db").unwrap();
        match db.create_keyspace_with("sums", KeyspaceOptions::new().merge_operator("add-u64")) {
            Ok(_) | Err(Error::KeyspaceExists(_)) => {}
            Err(error) => panic!("{error}"),
        }
        self.host = Some(Lanes::new(&db).unwrap());
    }

    fn host(&self) -> &Lanes {
        self.host.as_ref().unwrap()
    }

    fn connect(&mut self) {
        self.lane = Some(self.host().join(LANE).unwrap());
    }

    /// The commit arrives: it adds 1. Without a connection it cannot.
    fn deliver(&self, number: u64) -> Option<Result<SeqNo>> {
        let lane = self.lane.as_ref()?;
        let sums = self.host().db.open_keyspace("sums").unwrap();
        Some(self.host().commit(lane, number, |record| {
            let mut batch = self.host().db.batch();
            batch.merge(&sums, "sum", 1_u64.to_le_bytes())?;
            batch.put(record.keyspace, record.key, record.value)?;
            Ok(batch.commit()?)
        }))
    }

    /// The guest asks.
    fn ask(&self, number: u64) -> Outcome {
        match self.host().resolve(LANE, number, Durability::Sync, PATIENCE).unwrap() {
            Found::Outcome(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn sum(&self) -> u64 {
        let sums = self.host().db.open_keyspace("sums").unwrap();
        sums.get("sum").unwrap().map_or(0, |sum| u64::from_le_bytes((*sum).try_into().unwrap()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The commit, or a late copy of it, reaches the host.
    Deliver,
    NextHost,
    /// The guest asks, and may lose the answer.
    Ask,
    /// The connection ends without a word.
    Leave,
    /// The guest ends its questions.
    Forget,
}

const EVENTS: [Event; 5] = [Event::Deliver, Event::NextHost, Event::Ask, Event::Leave, Event::Forget];

#[test]
fn lanes_2_each_commit_has_one_outcome_in_every_order_of_events() {
    const LENGTH: u32 = 4;
    for mut order in 0..(EVENTS.len() as u32).pow(LENGTH) {
        let mut world = World::new();
        world.connect();
        // A first commit, so that there is a record.
        let with_first = order % 2 == 0;
        let first = u64::from(with_first && world.deliver(1).unwrap().is_ok());
        let number = first + 1;
        let (mut answer, mut events) = (None, Vec::new());
        for _ in 0..LENGTH {
            let event = EVENTS[order as usize % EVENTS.len()];
            order /= EVENTS.len() as u32;
            events.push(event);
            match event {
                Event::Deliver => drop(world.deliver(number)),
                Event::NextHost => world.next_host(),
                Event::Ask => {
                    let outcome = world.ask(number);
                    let is_applied = matches!(outcome, Outcome::Applied(_));
                    assert_eq!(*answer.get_or_insert(is_applied), is_applied, "{events:?}");
                }
                Event::Leave => {
                    if let Some(lane) = world.lane.take() {
                        world.host().leave(&lane, false);
                    }
                }
                // A guest forgets what it has no questions about.
                Event::Forget if answer.is_some() => {
                    world.host().forget(LANE);
                    if world.lane.is_none() {
                        break;
                    }
                }
                Event::Forget => {}
            }
        }
        let applied = world.sum() - first;
        assert!(applied <= 1, "applied twice: {events:?}");
        if let Some(is_applied) = answer {
            assert_eq!(applied, u64::from(is_applied), "{events:?}");
        }
        world.next_host();
        assert_eq!(world.sum(), first + applied, "lanes.1: {events:?}");
    }
}

#[test]
fn a_question_waits_for_the_commit_that_runs() {
    let mut world = World::new();
    world.connect();
    let lane = world.lane.clone().unwrap();
    let host = world.host();
    let during = host.commit(&lane, 1, |_| {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| host.resolve(LANE, 1, Durability::Sync, PATIENCE).unwrap());
            assert_eq!(asked.join().unwrap(), Found::Running);
        });
        Err(Error::Closed)
    });
    assert!(during.is_err());
    assert_eq!(world.ask(1), Outcome::NotApplied);
    assert!(host.join(LANE).is_err(), "lanes.3: it has a connection");
}

#[test]
fn records_without_a_guest_are_removed_after_a_while() {
    let mut world = World::new();
    world.connect();
    world.deliver(1).unwrap().unwrap();
    let records = |world: &World| world.host().records.iter().count();
    let lane = world.lane.take().unwrap();
    world.host().leave(&lane, false);
    world.host().remove_old(Instant::now() + KEPT_FOR / 2);
    assert_eq!(records(&world), 1);
    world.next_host();
    // The clock of the new host begins.
    world.host().remove_old(Instant::now() + KEPT_FOR / 2);
    assert_eq!(records(&world), 1);
    world.host().remove_old(Instant::now() + KEPT_FOR * 2);
    assert_eq!(records(&world), 0);
}

#[test]
fn after_a_failed_log_only_the_next_host_knows() {
    for action in [FaultAction::Fail(std::io::ErrorKind::Other), FaultAction::ShortWrite { keep: 1 }] {
        for kind in [OpKind::SyncData, OpKind::Write] {
            let mut world = World::new();
            world.connect();
            world.fs.add(FaultRule::new(&[kind], action).on_path(".wal").forever());
            let failed = world.deliver(1).unwrap();
            assert!(matches!(failed, Err(Error::Poisoned(_))), "{failed:?}");
            let unknown = world.host().resolve(LANE, 1, Durability::Sync, PATIENCE).unwrap();
            assert_eq!(unknown, Found::Unknowable);
            world.fs.clear();
            world.next_host();
            let is_applied = matches!(world.ask(1), Outcome::Applied(_));
            assert_eq!(world.sum(), u64::from(is_applied), "{kind:?}");
        }
    }
}
