//! The promises made to writers, and whether the state after a crash keeps them.
//!
//! ```text
//!   base, each writer's operations, Intent and Ack in the order of their arrival
//!       + the state after a crash  --verify--> how many operations of each writer survived, or what is wrong
//! ```
//!
//! - A writer starts an operation after the previous one is acknowledged. So its state after a crash
//!   is that after its first k operations, for some k, and each operation is atomic.
//! - Every operation acknowledged with sufficient durability for the kind of crash is among them.
//! - The commits of all writers have one order, and a prefix of it survives: if an operation survives or was
//!   promised, so does every operation of any writer that was acknowledged before it started.
//! - The bank is the result of the surviving transactions. If a writer's keyspaces match several
//!   numbers of operations, some choice of them results in the bank.

use esker::Durability;

use crate::writers::{Bank, Expected, Found, Task, WriterEvent};

/// The kind of crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process died; the operating system continued.
    Process,
    /// The machine lost power.
    Power,
}

impl Crash {
    /// Returns whether a commit acknowledged with this durability survives.
    fn spares(self, durability: Durability) -> bool {
        match self {
            Crash::Process => durability >= Durability::Buffered,
            Crash::Power => durability == Durability::Sync,
        }
    }
}

/// A report of a writer about its operation with this index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The operation starts.
    Intent { writer: usize, index: usize },
    /// The operation is acknowledged with this durability.
    Ack { writer: usize, index: usize, durability: Durability },
}

/// The promises since `base`.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    base: Expected,
    tasks: Vec<Vec<Task>>,
    events: Vec<Event>,
    /// Durability of operations that do not specify it.
    default: Durability,
}

/// The state after a crash.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// The contents.
    pub(crate) expected: Expected,
    /// Number of surviving operations per writer.
    pub(crate) ops: Vec<usize>,
    /// Number of surviving operations that were not acknowledged.
    pub(crate) unacknowledged: usize,
    /// Number of acknowledged operations that are lost, as permitted.
    pub(crate) lost: usize,
}

impl Journal {
    /// Creates a journal without promises. `default` is the default durability of the database.
    pub(crate) fn new(base: Expected, default: Durability) -> Self {
        let writers = base.writers.len();
        Journal { base, tasks: vec![Vec::new(); writers], events: Vec::new(), default }
    }

    /// Records that a writer starts its next operation.
    pub(crate) fn intent(&mut self, writer: usize, task: Task) {
        self.events.push(Event::Intent { writer, index: self.tasks[writer].len() });
        self.tasks[writer].push(task);
    }

    /// Records that a writer's last operation is acknowledged.
    pub(crate) fn ack(&mut self, writer: usize) {
        let task = self.tasks[writer].last().expect("an acknowledgement follows its intent");
        let durability = task.op.durability(self.default);
        self.events.push(Event::Ack { writer, index: self.tasks[writer].len() - 1, durability });
    }

    /// Records a report of a writer.
    pub(crate) fn hear(&mut self, said: &WriterEvent) {
        match said {
            WriterEvent::Opened => {}
            WriterEvent::Intent { writer, task } => self.intent(*writer, (**task).clone()),
            WriterEvent::Ack { writer } => self.ack(*writer),
        }
    }

    /// Returns the number of acknowledged operations.
    pub(crate) fn acknowledged(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Ack { .. })).count()
    }

    /// Compares the state after a crash with the promises.
    pub(crate) fn verify(&self, found: &Found, crash: Crash) -> Result<Left, String> {
        let writers = self.tasks.len();
        let mut matches = (0..writers).map(|w| self.matches(w, found)).collect::<Result<Vec<_>, _>>()?;
        let (acked, promises) = self.promises(crash, &matches);
        for promise in promises {
            for (writer, matching) in matches.iter_mut().enumerate() {
                let most = *matching.last().expect("it is never empty");
                matching.retain(|&n| n >= promise.needed[writer]);
                if matching.is_empty() {
                    let mut op = format!("{:?}", self.tasks[writer][most]);
                    op.truncate(300);
                    let needed = promise.needed[writer];
                    return Err(format!(
                        "writer {writer}: {most} operations are left, but {promise} when {needed} had been \
                         acknowledged; the first that is missing is {op}"
                    ));
                }
            }
        }
        let expected = self.with_bank(&matches, &mut Vec::new(), &found.bank);
        let (ops, expected) = expected.map_err(|made| {
            format!("the bank contains {:?}; the surviving transactions result in {made:?}", found.bank)
        })?;
        let unacknowledged = ops.iter().zip(&acked).map(|(n, acked)| n.saturating_sub(*acked)).sum();
        let lost = ops.iter().zip(&acked).map(|(n, acked)| acked.saturating_sub(*n)).sum();
        Ok(Left { expected, ops, unacknowledged, lost })
    }

    /// Returns the contents after these numbers of operations per writer.
    fn after(&self, ops: &[usize]) -> Expected {
        let mut expected = self.base.clone();
        for (writer, (tasks, n)) in self.tasks.iter().zip(ops).enumerate() {
            tasks[..*n].iter().for_each(|task| expected.apply(writer, task));
        }
        expected
    }

    /// Chooses the largest matching numbers of operations that result in this bank. A writer's states before
    /// and after a transfer may be equal if its other writes were removed; then only the bank distinguishes
    /// them. If no choice matches, returns the result of the largest numbers. `ops` contains the choice for
    /// the first writers.
    fn with_bank(
        &self,
        matches: &[Vec<usize>],
        ops: &mut Vec<usize>,
        bank: &Bank,
    ) -> Result<(Vec<usize>, Expected), Bank> {
        let Some(matching) = matches.get(ops.len()) else {
            let expected = self.after(ops);
            return if expected.bank == *bank { Ok((ops.clone(), expected)) } else { Err(expected.bank) };
        };
        let tasks = &self.tasks[ops.len()];
        let mut made = None;
        let mut tried = None;
        for &n in matching.iter().rev() {
            let is_new =
                tried.is_none_or(|tried: usize| tasks[n..tried].iter().any(|task| task.transfer.is_some()));
            tried = Some(n);
            if is_new {
                ops.push(n);
                let found = self.with_bank(matches, ops, bank);
                ops.pop();
                match found {
                    Ok(found) => return Ok(found),
                    Err(bank) => made = made.or(Some(bank)),
                }
            }
        }
        Err(made.unwrap_or_default())
    }

    /// Returns all numbers of operations of a writer that match the contents found, ascending and never
    /// empty.
    fn matches(&self, writer: usize, found: &Found) -> Result<Vec<usize>, String> {
        let (tasks, digest) = (&self.tasks[writer], found.digest(writer));
        let mut state = self.base.writers[writer].clone();
        let mut matching = Vec::new();
        for n in 0..=tasks.len() {
            if n > 0 {
                state.perform(&tasks[n - 1].op);
            }
            if state.digest() == digest {
                matching.push(n);
            }
        }
        if matching.is_empty() {
            let n = tasks.len();
            let text = state.difference(&found.writers[writer]).unwrap_or_default();
            return Err(format!(
                "writer {writer}: the contents match no state after 0 to {n} operations; after {n}: {text}"
            ));
        }
        Ok(matching)
    }

    /// Returns the number of acknowledged operations per writer, and which operations must survive for which
    /// reason.
    fn promises(&self, crash: Crash, matches: &[Vec<usize>]) -> (Vec<usize>, Vec<Promise>) {
        let writers = self.tasks.len();
        let mut acked = vec![0; writers];
        let mut seen: Vec<Vec<Vec<usize>>> = vec![Vec::new(); writers];
        // Each promise to a writer includes the earlier ones.
        let mut last: Vec<Option<Promise>> = vec![None; writers];
        for event in &self.events {
            match *event {
                Event::Intent { writer, .. } => seen[writer].push(acked.clone()),
                Event::Ack { writer, index, durability } => {
                    acked[writer] = index + 1;
                    if crash.spares(durability) {
                        let mut needed = seen[writer][index].clone();
                        needed[writer] = index + 1;
                        last[writer] = Some(Promise { needed, to: writer, index, left: false });
                    }
                }
            }
        }
        let mut promises: Vec<Promise> = last.into_iter().flatten().collect();
        for (writer, matching) in matches.iter().enumerate() {
            if let Some(index) = matching[0].checked_sub(1) {
                promises.push(Promise { needed: seen[writer][index].clone(), to: writer, index, left: true });
            }
        }
        (acked, promises)
    }

    /// Continues after a kill with this state: lost operations never happened, and unacknowledged ones have
    /// been seen. Being seen promises nothing, but later operations come after them.
    pub(crate) fn settle(&mut self, left: &Left) {
        let happened = |writer: usize, index: usize| index < left.ops[writer];
        self.events.retain(|event| match *event {
            Event::Intent { writer, index } | Event::Ack { writer, index, .. } => happened(writer, index),
        });
        for (writer, &n) in left.ops.iter().enumerate() {
            self.tasks[writer].truncate(n);
            let known = |event: &Event| matches!(event, Event::Ack { writer: w, index, .. } if *w == writer && index + 1 == n);
            if n > 0 && !self.events.iter().any(known) {
                self.events.push(Event::Ack { writer, index: n - 1, durability: Durability::None });
            }
        }
    }
}

/// These numbers of operations per writer must survive, because of one operation.
#[derive(Clone)]
struct Promise {
    needed: Vec<usize>,
    to: usize,
    index: usize,
    /// Whether the operation itself survived; otherwise it was acknowledged.
    left: bool,
}

impl std::fmt::Display for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.left { "is left" } else { "was acknowledged" };
        write!(f, "operation {} of writer {} {what}", self.index, self.to)
    }
}

#[cfg(test)]
mod tests;
