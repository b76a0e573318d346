//! Collects the records of all lives of a history and runs all checkers.
//!
//! ```text
//!   Records of a life, Cut --add--> operations, transactions, bank, forks --> linear.rs, lists.rs, here
//! ```
//!
//! If a crash ended a life, calls that returned before it count, pending ones are unknown, and later ones
//! never happened (torture_history.3).

use std::collections::BTreeMap;

use super::HistorySummary;
use super::events::{Event, Record};
use super::keyspaces::MONEY;
use super::linear::{self, Action, Operation};
use super::lists::{self, Outcome, Promise, Transaction};
use esker_world::failure::{Failure, Result};

/// Ticks just before and just after a crash.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) before: u64,
    pub(super) after: u64,
}

/// A complete history.
#[derive(Default)]
pub(super) struct Story {
    operations: Vec<Operation>,
    transactions: Vec<Transaction>,
    bank: Vec<u64>,
    /// Operations on the counter.
    counter: Vec<Operation>,
    forks: Vec<(u64, bool, bool)>,
}

impl Story {
    /// Adds the records of one life, which a crash may have ended (torture_history.3).
    pub(super) fn add(&mut self, records: Vec<Record>, cut: Option<Cut>) {
        for Record { called, mut returned, event } in records {
            let unknown = cut.is_some_and(|cut| returned > cut.before);
            let never = cut.is_some_and(|cut| called > cut.after);
            // A database that continues beside its crashed state must still have the right sum.
            if let Event::Bank(sum) = event {
                self.bank.push(sum);
            }
            if never {
                continue;
            }
            if let Some(cut) = cut.filter(|_| unknown) {
                returned = cut.after;
            }
            match event {
                Event::Register(_, action) | Event::Counter(action) if unknown && action.only_reads() => {}
                Event::Fork(..) if unknown => {}
                Event::Register(key, action) => {
                    self.operations.push(Operation { key, action, called, returned, maybe: unknown });
                }
                Event::Counter(action) => {
                    self.counter.push(Operation { key: 0, action, called, returned, maybe: unknown });
                }
                Event::Lists(accesses, outcome, promise) => {
                    let outcome = match outcome {
                        Outcome::Committed if unknown => Outcome::Unknown,
                        other => other,
                    };
                    let (began, ended) = (called, returned);
                    self.transactions.push(Transaction { promise, accesses, outcome, began, ended });
                }
                Event::Bank(_) => {}
                Event::Fork(group, first, second) => self.forks.push((group, first, second)),
            }
        }
    }

    /// Returns whether the bank has been seen, so that its money is durable.
    pub(super) fn has_money(&self) -> bool {
        !self.bank.is_empty()
    }

    /// Runs all checkers and reports all failures, so that one anomaly does not hide that a canary's own goes
    /// undetected.
    pub(super) fn check(&self) -> Result<()> {
        let mut wrong = Vec::new();
        if let Err(operations) = linear::check(&self.operations) {
            wrong.push(format!("a key is not linearizable: {operations:#?}"));
        }
        let mut kinds = Vec::new();
        for anomaly in lists::check(&self.transactions) {
            // Report the first anomaly of each kind.
            if !kinds.contains(&anomaly.kind) {
                kinds.push(anomaly.kind);
                wrong.push(format!("{:?}: {}", anomaly.kind, anomaly.detail));
            }
        }
        if let Some(sum) = self.bank.iter().find(|sum| **sum != MONEY) {
            wrong.push(format!("a snapshot of the bank holds {sum}, of {MONEY}"));
        }
        if let Err(operations) = linear::check(&self.counter) {
            wrong.push(format!("the counter is not linearizable: {operations:#?}"));
        }
        if let Some(group) = long_fork(&self.forks) {
            wrong.push(format!("long fork over the two keys of group {group}"));
        }
        if wrong.is_empty() { Ok(()) } else { Err(Failure::new(wrong.join("\n"))) }
    }

    pub(super) fn count(&self, summary: &mut HistorySummary) {
        let outcomes = |outcome| self.transactions.iter().filter(|t| t.outcome == outcome).count() as u64;
        summary.operations += self.operations.len() as u64;
        summary.committed += outcomes(Outcome::Committed);
        let serializable = self.transactions.iter().filter(|t| t.promise == Promise::Serializable);
        summary.serializable += serializable.filter(|t| t.outcome == Outcome::Committed).count() as u64;
        summary.aborted += outcomes(Outcome::Aborted);
        summary.unknown += outcomes(Outcome::Unknown);
        summary.bank_snapshots += self.bank.len() as u64;
        let is_increment = |o: &&Operation| !o.maybe && matches!(o.action, Action::Increment(_));
        summary.increments += self.counter.iter().filter(is_increment).count() as u64;
        summary.fork_snapshots += self.forks.len() as u64;
    }
}

/// Returns a group where one snapshot shows only the first key and another one only the second, so that
/// they disagree about the order of two writes.
fn long_fork(snapshots: &[(u64, bool, bool)]) -> Option<u64> {
    let mut alone: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
    for &(group, first, second) in snapshots {
        let seen = alone.entry(group).or_default();
        seen.0 |= first && !second;
        seen.1 |= second && !first;
    }
    alone.into_iter().find(|(_, seen)| *seen == (true, true)).map(|(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(called: u64, returned: u64, event: Event) -> Record {
        Record { called, returned, event }
    }

    #[test]
    fn a_long_fork_takes_two_snapshots_that_disagree() {
        assert_eq!(
            long_fork(&[(1, true, false), (1, true, true), (2, false, true), (1, false, false)]),
            None
        );
        assert_eq!(long_fork(&[(1, true, false), (2, true, true), (1, false, true)]), Some(1));
    }

    #[test]
    fn torture_history_3_a_crash_makes_what_was_under_way_unknown_and_what_came_later_nothing() {
        let mut story = Story::default();
        let write = |value| Event::Register(1, Action::Write(Some(value)));
        let records = vec![
            record(0, 1, write(1)),
            record(2, 11, write(2)),
            record(3, 12, Event::Register(1, Action::Read(Some(2)))),
            record(14, 15, write(3)),
            record(4, 13, Event::Counter(Action::Increment(0))),
        ];
        story.add(records, Some(Cut { before: 10, after: 13 }));
        let known: Vec<_> = story.operations.iter().map(|o| (o.returned, o.maybe)).collect();
        assert_eq!(known, [(1, false), (13, true)]);
        let with_count = |count| {
            let counter = Operation { action: Action::Read(Some(count)), called: 20, ..story.counter[0] };
            let counter = Operation { returned: 21, maybe: false, ..counter };
            Story { counter: vec![story.counter[0], counter], ..Story::default() }.check()
        };
        assert!(story.counter[0].maybe && with_count(1).is_ok() && with_count(2).is_err());
        assert!(story.check().is_ok());
    }

    #[test]
    fn money_that_is_missing_is_noticed() {
        let mut story = Story::default();
        story.add(vec![record(0, 1, Event::Bank(MONEY))], None);
        assert!(story.check().is_ok());
        story.add(vec![record(2, 3, Event::Bank(MONEY - 1))], None);
        assert!(story.check().is_err());
    }
}
