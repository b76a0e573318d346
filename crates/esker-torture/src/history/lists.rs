//! Checks whether transactions over lists have their promised isolation: snapshot isolation or
//! serializability.
//!
//! ```text
//!   transactions of reads and appends --order of each list--> ww, wr, rw, time edges --cycles--> anomalies
//! ```
//!
//! The method is that of Elle (Kingsbury and Alvaro, "Elle: inferring isolation anomalies from experimental
//! observations", 2020): every appended element is unique, so a read of a list shows the order of all earlier
//! versions and their writers. Anomalies have Adya's names.
//!
//! Allowed are write skew and, in general, cycles with two consecutive antidependencies around a transaction
//! that was only promised a snapshot. Everything else is forbidden. A scan reads every key of its
//! range, including missing ones, so a phantom is an ordinary antidependency.
//!
//! Time counts: a transaction that ended before another began precedes it. Snapshots show the state when they
//! are taken. A transaction with unknown outcome from which a committed one has read is committed, at its end
//! at the latest, and all of its reads and appends count.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::graph::{Edge, Graph};

/// An element of a list, unique in the history.
pub type Element = u32;

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Appended an element to the list of a key.
    Append(u64, Element),
    /// Read the list of a key.
    Read(u64, Vec<Element>),
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It committed.
    Committed,
    /// It certainly did not commit.
    Aborted,
    /// A crash left it unknown.
    Unknown,
}

/// The isolation promised to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Promise {
    /// It reads one snapshot, and commits only if no other transaction wrote the same keys.
    Snapshot,
    /// In addition, what it has read is unchanged when it commits, if it writes anything.
    Serializable,
}

/// A transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its promised isolation.
    pub promise: Promise,
    /// Its steps in order.
    pub accesses: Vec<Access>,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began.
    pub began: u64,
    /// When it ended. If that is unknown, the latest possible time.
    pub ended: u64,
}

/// A violation of a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its name.
    pub kind: Kind,
    /// A description of the transactions and reasons.
    pub detail: String,
}

/// Kinds of anomalies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A transaction does not see its own writes, or reads two states.
    Internal,
    /// An element occurs twice in a list.
    Duplicate,
    /// Two reads of a list where neither is a prefix of the other.
    IncompatibleOrder,
    /// An element that was never appended.
    Garbage,
    /// A read from an aborted transaction.
    G1a,
    /// A read of an intermediate state of a transaction.
    G1b,
    /// A cycle of writes.
    G0,
    /// A cycle of writes and reads.
    G1c,
    /// A cycle with one antidependency over one key that both read and write.
    LostUpdate,
    /// A cycle with one antidependency.
    GSingle,
    /// A cycle with several antidependencies, none consecutive.
    LongFork,
    /// Two serializable transactions that each read what the other overwrote.
    WriteSkew,
    /// A longer cycle with two consecutive antidependencies around a serializable transaction.
    G2,
    /// A cycle only because of time: a read or write took effect too late.
    RealTime,
}

/// Returns all anomalies of a history.
pub fn check(history: &[Transaction]) -> Vec<Anomaly> {
    let writers = writers(history);
    let history = &with_outcomes(history, &writers);
    let mut anomalies = Vec::new();
    for (t, transaction) in history.iter().enumerate() {
        if transaction.outcome == Outcome::Committed {
            check_reads(t, transaction, history, &writers, &mut anomalies);
        }
    }
    let orders = orders(history, &mut anomalies);
    // Cycles are meaningless if the versions are inconsistent.
    if anomalies.is_empty() {
        let checker = Cycles::new(history, &writers, &orders);
        anomalies.extend(checker.find());
    }
    anomalies
}

/// Returns the transaction that appended each element.
fn writers(history: &[Transaction]) -> HashMap<Element, usize> {
    let mut writers = HashMap::new();
    for (t, transaction) in history.iter().enumerate() {
        for access in &transaction.accesses {
            if let Access::Append(_, element) = access {
                let before = writers.insert(*element, t);
                assert!(before.is_none(), "element {element} is appended twice: the history is malformed");
            }
        }
    }
    writers
}

/// Returns the history in which transactions from which committed ones have read are committed, too.
fn with_outcomes(history: &[Transaction], writers: &HashMap<Element, usize>) -> Vec<Transaction> {
    let mut history = history.to_vec();
    let mut to_visit: Vec<usize> =
        (0..history.len()).filter(|t| history[*t].outcome == Outcome::Committed).collect();
    while let Some(t) = to_visit.pop() {
        let accesses = history[t].accesses.clone();
        for access in &accesses {
            let Access::Read(_, list) = access else { continue };
            for writer in list.iter().filter_map(|element| writers.get(element)) {
                if history[*writer].outcome == Outcome::Unknown {
                    history[*writer].outcome = Outcome::Committed;
                    to_visit.push(*writer);
                }
            }
        }
    }
    history
}

/// Returns the elements that a transaction appends to a key, in order.
fn appends(transaction: &Transaction, key: u64) -> impl Iterator<Item = Element> {
    transaction.accesses.iter().filter_map(move |access| match access {
        Access::Append(k, element) if *k == key => Some(*element),
        _ => None,
    })
}

/// Checks single reads: own writes, and elements that must not be visible.
fn check_reads(
    t: usize,
    transaction: &Transaction,
    history: &[Transaction],
    writers: &HashMap<Element, usize>,
    anomalies: &mut Vec<Anomaly>,
) {
    let mut report =
        |kind, detail: String| anomalies.push(Anomaly { kind, detail: format!("T{t}: {detail}") });
    // For each key, the list known from a read so far, and own appends since.
    let mut known: BTreeMap<u64, (Option<Vec<Element>>, Vec<Element>)> = BTreeMap::new();
    for access in &transaction.accesses {
        let (key, list) = match access {
            Access::Append(key, element) => {
                known.entry(*key).or_default().1.push(*element);
                continue;
            }
            Access::Read(key, list) => (*key, list),
        };
        let (seen, own) = known.entry(key).or_default();
        let is_own = match seen {
            Some(seen) => *list == [&seen[..], own].concat(),
            None => list.ends_with(own),
        };
        if !is_own {
            report(
                Kind::Internal,
                format!("read {list:?} of key {key} after {seen:?} and own appends {own:?}"),
            );
        }
        let external = &list[..list.len() - own.len().min(list.len())];
        for (i, element) in external.iter().enumerate() {
            if external[..i].contains(element) {
                report(Kind::Duplicate, format!("key {key} holds {element} twice: {list:?}"));
            }
            match writers.get(element) {
                None => {
                    report(Kind::Garbage, format!("key {key} contains {element}, which was never appended"))
                }
                Some(&w) if history[w].outcome == Outcome::Aborted => {
                    report(Kind::G1a, format!("read {element} of key {key} from T{w}, which aborted"));
                }
                Some(_) => {}
            }
        }
        if let Some(&w) = external.last().and_then(|last| writers.get(last))
            && w != t
            && appends(&history[w], key).last() != external.last().copied()
        {
            report(Kind::G1b, format!("read {list:?} of key {key}, an intermediate state of T{w}"));
        }
        *seen = Some(external.to_vec());
    }
}

/// Returns the order of versions of each key, which is the longest list that was read.
fn orders(history: &[Transaction], anomalies: &mut Vec<Anomaly>) -> BTreeMap<u64, Vec<Element>> {
    let mut orders: BTreeMap<u64, Vec<Element>> = BTreeMap::new();
    for (t, transaction) in history.iter().enumerate().filter(|(_, t)| t.outcome == Outcome::Committed) {
        for access in &transaction.accesses {
            let Access::Read(key, list) = access else { continue };
            let longest = orders.entry(*key).or_default();
            let (short, long) =
                if list.len() < longest.len() { (list, &*longest) } else { (&*longest, list) };
            if !long.starts_with(short) {
                let detail = format!("T{t} read {list:?} of key {key}, another {longest:?}");
                anomalies.push(Anomaly { kind: Kind::IncompatibleOrder, detail });
            } else if list.len() > longest.len() {
                longest.clone_from(list);
            }
        }
    }
    orders
}

/// The dependencies of a history with consistent versions.
struct Cycles<'a> {
    history: &'a [Transaction],
    graph: Graph,
}

impl<'a> Cycles<'a> {
    fn new(
        history: &'a [Transaction],
        writers: &HashMap<Element, usize>,
        orders: &BTreeMap<u64, Vec<Element>>,
    ) -> Self {
        let mut cycles = Cycles { history, graph: Graph::new(history.len()) };
        for (t, _) in history.iter().enumerate().filter(|(_, t)| t.promise == Promise::Serializable) {
            cycles.graph.set_serializable(t);
        }
        for (key, order) in orders {
            for pair in order.windows(2) {
                cycles.graph.add(writers[&pair[0]], writers[&pair[1]], Edge::Ww);
            }
            // Committed appends that no read has seen are later than those that were seen.
            let unseen: Vec<usize> = history
                .iter()
                .enumerate()
                .filter(|(_, t)| t.outcome == Outcome::Committed)
                .filter(|(_, t)| appends(t, *key).any(|element| !order.contains(&element)))
                .map(|(t, _)| t)
                .collect();
            if let Some(last) = order.last() {
                unseen.iter().for_each(|t| cycles.graph.add(writers[last], *t, Edge::Ww));
            }
            for (t, transaction) in history.iter().enumerate() {
                if transaction.outcome == Outcome::Committed {
                    cycles.add_reads(t, *key, order, &unseen, writers);
                }
            }
        }
        cycles.add_times();
        cycles
    }

    fn add_reads(
        &mut self,
        t: usize,
        key: u64,
        order: &[Element],
        unseen: &[usize],
        writers: &HashMap<Element, usize>,
    ) {
        for access in &self.history[t].accesses {
            let Access::Read(k, list) = access else { continue };
            if *k != key {
                continue;
            }
            let external = list.iter().take_while(|element| writers[element] != t).count();
            if let Some(last) = external.checked_sub(1) {
                self.graph.add(writers[&list[last]], t, Edge::Wr);
            }
            match order.get(external) {
                Some(next) => self.graph.add(t, writers[next], Edge::Rw),
                None => unseen.iter().for_each(|u| self.graph.add(t, *u, Edge::Rw)),
            }
        }
    }

    /// Adds time as edges: every end leads to a time node, time nodes form a chain, and the last one before a
    /// beginning leads to it.
    fn add_times(&mut self) {
        let mut times = Vec::new();
        for (t, transaction) in self.history.iter().enumerate() {
            if transaction.outcome != Outcome::Aborted {
                times.push((transaction.began, false, t));
            }
            if transaction.outcome == Outcome::Committed {
                times.push((transaction.ended, true, t));
            }
        }
        times.sort_unstable();
        let mut now = None;
        for (_, is_end, t) in times {
            if is_end {
                let node = self.graph.add_node();
                self.graph.add(t, node, Edge::Time);
                if let Some(before) = now.replace(node) {
                    self.graph.add(before, node, Edge::Time);
                }
            } else if let Some(now) = now {
                self.graph.add(now, t, Edge::Time);
            }
        }
    }

    /// Returns the worst kind of cycle.
    fn find(&self) -> Option<Anomaly> {
        use Edge::{Rw, Time, Wr, Ww};
        let levels: [&[Edge]; 4] = [&[Ww], &[Ww, Wr], &[Ww, Wr, Rw], &[Ww, Wr, Rw, Time]];
        let cycle = levels.iter().find_map(|allowed| self.graph.cycle(allowed))?;
        let count = |edge| cycle.iter().filter(|(_, e)| *e == edge).count();
        // The last edge leads to the first node.
        let next = cycle.iter().cycle().skip(1);
        let has_two_in_a_row = cycle.iter().zip(next).any(|((_, a), (_, b))| (*a, *b) == (Rw, Rw));
        let kind = match (count(Time), count(Rw), count(Wr)) {
            (1.., ..) => Kind::RealTime,
            (0, 0, 0) => Kind::G0,
            (0, 0, _) => Kind::G1c,
            (0, 2, 0) if has_two_in_a_row && cycle.len() == 2 => Kind::WriteSkew,
            _ if has_two_in_a_row => Kind::G2,
            (0, 1, 0) if cycle.len() == 2 => Kind::LostUpdate,
            (0, 1, _) => Kind::GSingle,
            _ => Kind::LongFork,
        };
        let mut detail = String::new();
        for (node, edge) in &cycle {
            if let Some(transaction) = self.history.get(*node) {
                detail += &format!("T{node} {:?} ", transaction.accesses);
            }
            detail += &format!("-{edge:?}-> ").to_lowercase();
        }
        Some(Anomaly { kind, detail: detail + "the first" })
    }
}

#[cfg(test)]
mod tests;
