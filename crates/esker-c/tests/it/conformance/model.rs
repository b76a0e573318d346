//! What a database holds: keyspaces as ordered maps, and transactions over copies of them.

use std::collections::{BTreeMap, BTreeSet};

pub type Bytes = Vec<u8>;
pub type Entries = BTreeMap<Bytes, Entry>;

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub value: Bytes,
    pub expires: bool,
}

/// A write to one keyspace.
#[derive(Clone, Debug)]
pub enum Write {
    Put {
        key: Bytes,
        value: Bytes,
        expires: bool,
    },
    Merge {
        key: Bytes,
        operand: Bytes,
    },
    Delete {
        key: Bytes,
    },
    /// The keys from the first bound on, below the second.
    DeleteRange {
        start: Option<Bytes>,
        end: Option<Bytes>,
    },
}

/// How a keyspace merges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operator {
    AddI64,
    Append,
}

#[derive(Clone, Debug, Default)]
pub struct Keyspace {
    pub entries: Entries,
    pub operator: Option<Operator>,
}

/// The keys of an end-exclusive range without bounds where `None`.
pub fn is_within(key: &[u8], start: Option<&[u8]>, end: Option<&[u8]>) -> bool {
    start.is_none_or(|start| key >= start) && end.is_none_or(|end| key < end)
}

/// The first key behind all keys with a prefix.
pub fn behind_prefix(prefix: &[u8]) -> Option<Bytes> {
    let mut end = prefix.to_vec();
    while end.pop_if(|last| *last == 0xFF).is_some() {}
    *end.last_mut()? += 1;
    Some(end)
}

impl Keyspace {
    fn apply(&mut self, write: &Write) {
        match write {
            Write::Put { key, value, expires } => {
                self.entries.insert(key.clone(), Entry { value: value.clone(), expires: *expires });
            }
            Write::Delete { key } => {
                self.entries.remove(key);
            }
            Write::DeleteRange { start, end } => {
                self.entries.retain(|key, _| !is_within(key, start.as_deref(), end.as_deref()));
            }
            Write::Merge { key, operand } => {
                let operator = self.operator.expect("the script merges with an operator");
                let entry = self.entries.entry(key.clone());
                let entry = entry.or_insert_with(|| Entry { value: operator.zero(), expires: false });
                entry.value = operator.merge(&entry.value, operand);
            }
        }
    }
}

impl Operator {
    fn zero(self) -> Bytes {
        if self == Operator::AddI64 { vec![0; 8] } else { Vec::new() }
    }

    fn merge(self, value: &[u8], operand: &[u8]) -> Bytes {
        match self {
            Operator::Append => [value, operand].concat(),
            Operator::AddI64 => number(value).wrapping_add(number(operand)).to_le_bytes().to_vec(),
        }
    }
}

/// The number in a value of eight bytes.
pub fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

pub type Keyspaces = BTreeMap<String, Keyspace>;
/// Writes of a commit, each with the name of its keyspace.
pub type Writes = Vec<(String, Write)>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Serializable,
    Snapshot,
    Exclusive,
    ReadOnly,
    WriteOnly,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Serializable => "serializable",
            Kind::Snapshot => "snapshot",
            Kind::Exclusive => "exclusive",
            Kind::ReadOnly => "read_only",
            Kind::WriteOnly => "write_only",
        }
    }
}

/// A transaction: what it sees, its own writes included.
#[derive(Debug)]
pub struct Txn {
    pub kind: Kind,
    view: Keyspaces,
    writes: Writes,
    savepoints: Vec<(u64, Keyspaces, usize)>,
    /// Number of commits when it began.
    began: usize,
    /// What it has read: ranges of keys.
    read: Vec<(String, Option<Bytes>, Option<Bytes>)>,
}

/// A database.
#[derive(Default)]
pub struct Model {
    pub keyspaces: Keyspaces,
    pub txns: BTreeMap<u64, Txn>,
    pub commits: Vec<Writes>,
}

impl Model {
    pub fn begin(&mut self, txn: u64, kind: Kind) {
        let (view, began) = (self.keyspaces.clone(), self.commits.len());
        let state = Txn { kind, view, writes: Vec::new(), savepoints: Vec::new(), began, read: Vec::new() };
        assert!(self.txns.insert(txn, state).is_none(), "the script uses each number once at a time");
    }

    /// The entries that a reader of a range sees.
    pub fn entries(
        &mut self,
        txn: Option<u64>,
        keyspace: &str,
        start: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Vec<(Bytes, Entry)> {
        let keyspaces = match txn {
            None => &self.keyspaces,
            Some(txn) => {
                let txn = self.txns.get_mut(&txn).expect("a transaction");
                let owned = |bound: Option<&[u8]>| bound.map(<[u8]>::to_vec);
                txn.read.push((keyspace.to_owned(), owned(start), owned(end)));
                &txn.view
            }
        };
        let all = &keyspaces[keyspace].entries;
        let within = all.iter().filter(|(key, _)| is_within(key, start, end));
        within.map(|(key, entry)| (key.clone(), entry.clone())).collect()
    }

    pub fn get(&mut self, txn: Option<u64>, keyspace: &str, key: &[u8]) -> Option<Entry> {
        let behind = [key, &[0]].concat();
        self.entries(txn, keyspace, Some(key), Some(&behind)).pop().map(|(_, entry)| entry)
    }

    pub fn write(&mut self, txn: Option<u64>, keyspace: &str, write: Write) {
        match txn {
            None => self.apply(vec![(keyspace.to_owned(), write)]),
            Some(txn) => {
                let txn = self.txns.get_mut(&txn).expect("a transaction");
                txn.view.get_mut(keyspace).expect("a keyspace").apply(&write);
                txn.writes.push((keyspace.to_owned(), write));
            }
        }
    }

    fn apply(&mut self, writes: Writes) {
        for (keyspace, write) in &writes {
            self.keyspaces.get_mut(keyspace).expect("a keyspace").apply(write);
        }
        self.commits.push(writes);
    }

    pub fn savepoint(&mut self, txn: u64, savepoint: u64) {
        let txn = self.txns.get_mut(&txn).expect("a transaction");
        txn.savepoints.push((savepoint, txn.view.clone(), txn.writes.len()));
    }

    pub fn rollback_to(&mut self, txn: u64, savepoint: u64) {
        let txn = self.txns.get_mut(&txn).expect("a transaction");
        let at = txn.savepoints.iter().position(|(no, ..)| *no == savepoint).expect("a savepoint");
        txn.savepoints.truncate(at + 1);
        let (_, view, writes) = &txn.savepoints[at];
        txn.view = view.clone();
        txn.writes.truncate(*writes);
    }

    pub fn rollback(&mut self, txn: u64) {
        self.txns.remove(&txn).expect("a transaction");
    }

    /// Commits a transaction. Returns false, without effect, if it has a conflict.
    pub fn commit(&mut self, txn: u64) -> bool {
        let txn = self.txns.remove(&txn).expect("a transaction");
        let later: Vec<&(String, Write)> = self.commits[txn.began..].iter().flatten().collect();
        let reads = txn.read.iter().map(|(ks, start, end)| (ks, start.as_deref(), end.as_deref()));
        let reads_changed = reads.clone().any(|(ks, start, end)| {
            later.iter().any(|(other, write)| other == ks && write.touches(start, end))
        });
        let writes_changed = txn.writes.iter().any(|(ks, write)| {
            later.iter().any(|(other, was)| other == ks && write.keys().iter().any(|key| was.has(key)))
        });
        let is_refused = match txn.kind {
            Kind::Serializable => reads_changed || writes_changed,
            Kind::Snapshot => writes_changed,
            Kind::Exclusive | Kind::ReadOnly | Kind::WriteOnly => false,
        };
        if !is_refused && !txn.writes.is_empty() {
            self.apply(txn.writes);
        }
        !is_refused
    }

    /// Names of the keyspaces.
    pub fn names(&self) -> BTreeSet<&str> {
        self.keyspaces.keys().map(String::as_str).collect()
    }
}

impl Write {
    fn keys(&self) -> Vec<&[u8]> {
        match self {
            Write::Put { key, .. } | Write::Merge { key, .. } | Write::Delete { key } => vec![key],
            Write::DeleteRange { .. } => Vec::new(),
        }
    }

    fn has(&self, key: &[u8]) -> bool {
        match self {
            Write::DeleteRange { start, end } => is_within(key, start.as_deref(), end.as_deref()),
            write => write.keys() == [key],
        }
    }

    fn touches(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> bool {
        match self {
            Write::DeleteRange { start, end } => {
                let before = |end: Option<&[u8]>, start: Option<&[u8]>| match (end, start) {
                    (Some(end), Some(start)) => end <= start,
                    _ => false,
                };
                !before(end.as_deref(), from) && !before(to, start.as_deref())
            }
            write => write.keys().iter().any(|key| is_within(key, from, to)),
        }
    }
}
