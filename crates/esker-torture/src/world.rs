//! What a database holds, read in full; and what operations make of it.
//!
//! ```text
//!   Db --read--> Spaces --split--> World { each writer's keyspaces, the bank }      <--apply-- Op
//! ```
//!
//! WO1. Reading checks the database as it goes: keys ascend, forwards and backwards agree, `len` is exact, `get` finds
//!      what the walk shows, and `check` has no complaint.
//! WO2. A writer's main keyspace and the bank are made on demand: missing and empty are the same.

use std::collections::BTreeMap;

use esker::{Db, Keyspace, Result};

use crate::script::{BANK, Change, Op, balance, home};

/// The entries of a keyspace.
pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// Keyspaces by name.
pub(crate) type Spaces = BTreeMap<String, Map>;
/// Money by account.
pub(crate) type Bank = BTreeMap<u8, i64>;

/// Everything that scripts write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct World {
    /// The keyspaces of each writer.
    pub(crate) writers: Vec<Spaces>,
    /// Accounts that hold nothing are left out.
    pub(crate) bank: Bank,
}

impl World {
    /// Nothing written yet.
    pub(crate) fn empty(writers: usize) -> Self {
        let one = |writer| Spaces::from([(home(writer), Map::new())]);
        World { writers: (0..writers).map(one).collect(), bank: Bank::new() }
    }

    /// The writer's second keyspace, if it has one.
    pub(crate) fn scratch(&self, writer: usize) -> Option<String> {
        self.writers[writer].keys().find(|name| **name != home(writer)).cloned()
    }

    /// Reads everything (WO1); what is wrong comes as a text.
    pub(crate) fn read(db: &Db, writers: usize) -> Result<World, String> {
        let mut world = World::empty(writers);
        for name in db.keyspaces() {
            let keyspace = db.open_keyspace(&name).map_err(|e| e.to_string())?;
            let map = read_map(&keyspace).map_err(|e| format!("keyspace {name:?}: {e}"))?;
            if name == BANK {
                for (key, value) in map {
                    let (Some(&account), Some(money)) = (key.first(), balance(&value)) else {
                        return Err(format!("the bank holds {key:?} = {value:?}"));
                    };
                    if money != 0 {
                        world.bank.insert(account, money);
                    }
                }
                continue;
            }
            let owner = (0..writers).find(|w| name == home(*w) || name.starts_with(&(home(*w) + "-")));
            match owner {
                Some(writer) => drop(world.writers[writer].insert(name, map)),
                None if name == "default" && map.is_empty() => {}
                None => return Err(format!("keyspace {name:?} belongs to nobody, {} keys", map.len())),
            }
        }
        let report = db.check().map_err(|e| format!("check: {e}"))?;
        if report.problems.is_empty() { Ok(world) } else { Err(format!("check: {:?}", report.problems)) }
    }
}

fn read_map(keyspace: &Keyspace) -> Result<Map, String> {
    let mut map = Map::new();
    let mut last: Option<Vec<u8>> = None;
    for entry in keyspace.iter() {
        let (key, value) = entry.map_err(|e| e.to_string())?;
        if last.is_some_and(|last| last[..] >= key[..]) {
            return Err(format!("keys do not ascend at {:?}", show(&key)));
        }
        last = Some(key.to_vec());
        map.insert(key.to_vec(), value.to_vec());
    }
    let mut backwards = map.iter().rev();
    for entry in keyspace.iter().rev() {
        let (key, value) = entry.map_err(|e| e.to_string())?;
        if backwards.next().is_none_or(|(k, v)| k[..] != key[..] || v[..] != value[..]) {
            return Err(format!("walking backwards shows another entry at {:?}", show(&key)));
        }
    }
    if let Some((key, _)) = backwards.next() {
        return Err(format!("walking backwards does not show {:?}", show(key)));
    }
    for (key, value) in &map {
        let got = keyspace.get(key).map_err(|e| e.to_string())?;
        if got.is_none_or(|got| got[..] != value[..]) {
            return Err(format!("get and the walk disagree about {:?}", show(key)));
        }
    }
    let len = keyspace.len().map_err(|e| e.to_string())?;
    if len == map.len() as u64 { Ok(map) } else { Err(format!("len() is {len}, of {} keys", map.len())) }
}

fn show(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(40)].escape_ascii().to_string()
}

/// Does an operation to its writer's keyspaces.
pub(crate) fn apply(op: &Op, spaces: &mut Spaces) {
    match op {
        Op::Single(name, change) => apply_change(name, change, spaces),
        Op::Batch(changes, _) | Op::Transaction(changes, ..) => {
            for (name, change) in changes {
                apply_change(name, change, spaces);
            }
        }
        Op::Create(name) => drop(spaces.insert(name.clone(), Map::new())),
        Op::Drop(name) => drop(spaces.remove(name)),
        Op::Rename(from, to) => {
            let map = spaces.remove(from).expect("a script renames what it has");
            spaces.insert(to.clone(), map);
        }
        Op::Clear(name) => drop(spaces.insert(name.clone(), Map::new())),
        Op::Flush | Op::Compact | Op::Sync => {}
    }
}

fn apply_change(name: &str, change: &Change, spaces: &mut Spaces) {
    let map = spaces.get_mut(name).expect("a script writes to what it has");
    match change {
        Change::Put(key, value) => drop(map.insert(key.clone(), value.clone())),
        Change::Remove(key) => drop(map.remove(key)),
        Change::RemoveRange(from, to) => map.retain(|key, _| !(from <= key && key < to)),
    }
}

/// Does an operation to the bank.
pub(crate) fn apply_to_bank(op: &Op, bank: &mut Bank) {
    if let Op::Transaction(_, transfer, _) = op {
        for (account, amount) in [(transfer.from, -transfer.amount), (transfer.to, transfer.amount)] {
            let money = bank.entry(account).or_default();
            *money += amount;
            if *money == 0 {
                bank.remove(&account);
            }
        }
    }
}

/// The first difference of a writer's keyspaces, for people.
pub(crate) fn difference(found: &Spaces, expected: &Spaces) -> String {
    if !found.keys().eq(expected.keys()) {
        let names = |s: &Spaces| s.keys().cloned().collect::<Vec<_>>().join(", ");
        return format!("keyspaces {}; expected {}", names(found), names(expected));
    }
    for (name, map) in found {
        let other = &expected[name];
        for key in map.keys().chain(other.keys()) {
            let value = |map: &Map| map.get(key).map_or("nothing".to_owned(), |v| format!("{:?}", show(v)));
            if map.get(key) != other.get(key) {
                return format!("{name}/{} is {}; expected {}", show(key), value(map), value(other));
            }
        }
    }
    "no difference".to_owned()
}
