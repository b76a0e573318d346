//! What writers were promised, and whether what is left keeps the promises.
//!
//! ```text
//!   base World, each writer's ops, Intent and Ack in the order in which they were heard
//!       + what is found after a crash  --verify--> how far each writer came, or what is wrong
//! ```
//!
//! journal.1. A writer begins an operation after the one before is acknowledged: what is left of it is the state after its
//!     first k operations, for some k. So each operation is all or nothing.
//! journal.2. Every operation that was acknowledged with enough durability for the kind of crash is among them.
//! journal.3. Commits of all writers have one order, and what is left is a prefix of it: if an operation is left, or was
//!     promised, then so is every operation of anybody that was acknowledged before it began.
//! journal.4. The bank is what the transactions that are left make of it. Where a writer's keyspaces fit several numbers of its
//!     operations, some choice of them makes the bank.

use esker::Durability;

use crate::writers::{Bank, Found, Said, Task, World};

/// How the world ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The process died; the operating system lives on.
    Process,
    /// The machine lost power.
    Power,
}

impl Crash {
    /// Whether what was acknowledged like this survives.
    fn spares(self, durability: Durability) -> bool {
        match self {
            Crash::Process => durability >= Durability::Buffered,
            Crash::Power => durability == Durability::Sync,
        }
    }
}

/// Something a writer said about its operation of this index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// It begins.
    Intent { writer: usize, index: usize },
    /// It is acknowledged, which promises this much.
    Ack { writer: usize, index: usize, durability: Durability },
}

/// The promises since `base`.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    base: World,
    tasks: Vec<Vec<Task>>,
    events: Vec<Event>,
    /// What the database promises where an operation does not say.
    default: Durability,
}

/// What a crash left.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// Everything.
    pub(crate) world: World,
    /// How many operations of each writer.
    pub(crate) ops: Vec<usize>,
    /// How many of them had not been acknowledged.
    pub(crate) unacknowledged: usize,
    /// How many acknowledged ones are lost, as they may be.
    pub(crate) lost: usize,
}

impl Journal {
    /// Nothing promised yet; `default` is the database's durability.
    pub(crate) fn new(base: World, default: Durability) -> Self {
        let writers = base.writers.len();
        Journal { base, tasks: vec![Vec::new(); writers], events: Vec::new(), default }
    }

    /// A writer begins its next operation.
    pub(crate) fn intent(&mut self, writer: usize, task: Task) {
        self.events.push(Event::Intent { writer, index: self.tasks[writer].len() });
        self.tasks[writer].push(task);
    }

    /// A writer's last operation is acknowledged.
    pub(crate) fn ack(&mut self, writer: usize) {
        let task = self.tasks[writer].last().expect("an acknowledgement follows its intent");
        let durability = task.op.durability(self.default);
        self.events.push(Event::Ack { writer, index: self.tasks[writer].len() - 1, durability });
    }

    /// Takes what was said into the promises.
    pub(crate) fn hear(&mut self, said: &Said) {
        match said {
            Said::Opened => {}
            Said::Intent { writer, task } => self.intent(*writer, (**task).clone()),
            Said::Ack { writer } => self.ack(*writer),
        }
    }

    /// Acknowledged operations.
    pub(crate) fn acknowledged(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Ack { .. })).count()
    }

    /// Compares what a crash left with what was promised.
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
        let world = self.with_bank(&matches, &mut Vec::new(), &found.bank);
        let (ops, world) = world.map_err(|made| {
            format!("the bank holds {:?}; the transactions that are left make {made:?}", found.bank)
        })?;
        let unacknowledged = ops.iter().zip(&acked).map(|(n, acked)| n.saturating_sub(*acked)).sum();
        let lost = ops.iter().zip(&acked).map(|(n, acked)| acked.saturating_sub(*n)).sum();
        Ok(Left { world, ops, unacknowledged, lost })
    }

    /// What so many operations of each writer make.
    fn after(&self, ops: &[usize]) -> World {
        let mut world = self.base.clone();
        for (writer, (tasks, n)) in self.tasks.iter().zip(ops).enumerate() {
            tasks[..*n].iter().for_each(|task| world.apply(writer, task));
        }
        world
    }

    /// The most operations of each writer, of those that match, that make this bank: where a writer's states before and after a
    /// transfer are alike, since what was written beside it has been removed, the bank tells which is left. Else, what the most
    /// of all make. `ops`: those of the first writers.
    fn with_bank(
        &self,
        matches: &[Vec<usize>],
        ops: &mut Vec<usize>,
        bank: &Bank,
    ) -> Result<(Vec<usize>, World), Bank> {
        let Some(matching) = matches.get(ops.len()) else {
            let world = self.after(ops);
            return if world.bank == *bank { Ok((ops.clone(), world)) } else { Err(world.bank) };
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

    /// How many operations of a writer make what is found of it: all such numbers, ascending, never none (journal.1).
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
                "writer {writer}: what is left is no state after 0 to {n} operations; after {n}: {text}"
            ));
        }
        Ok(matching)
    }

    /// How many operations of each writer were acknowledged, and how many must be left because of what (journal.2, journal.3).
    fn promises(&self, crash: Crash, matches: &[Vec<usize>]) -> (Vec<usize>, Vec<Promise>) {
        let writers = self.tasks.len();
        let mut acked = vec![0; writers];
        let mut seen: Vec<Vec<Vec<usize>>> = vec![Vec::new(); writers];
        // Each promise to a writer includes those before it.
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

    /// Goes on after a crash of the process that left this: what is lost never happened, what was not acknowledged
    /// has been seen now. Nothing is promised about it yet, but what follows comes after it (journal.3).
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

/// So many operations of each writer must be left, because of one operation.
#[derive(Clone)]
struct Promise {
    needed: Vec<usize>,
    to: usize,
    index: usize,
    /// Because it is left itself; otherwise, because it was acknowledged.
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
