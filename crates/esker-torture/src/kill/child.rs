//! The child process: opens the database and works on it until it is killed.

use std::path::PathBuf;
use std::sync::Arc;

use esker::Db;
use esker_env::Env;

use super::Canary;
use super::protocol::{Message, Sender};
use crate::panicky::PanickyThreads;
use crate::shape::Shape;
use crate::writers::{Script, Task};
use esker_world::failure::{Failure, Result};
use esker_world::model::state::State;
use esker_world::op::Op;

/// Separator between names of keyspaces, which occurs in none of them.
pub(super) const BETWEEN_NAMES: &str = "|";

/// The parameters of a child on its command line.
#[derive(Clone, Debug)]
pub struct ChildJob {
    /// Directory of the database.
    pub dir: PathBuf,
    /// Determines options and operations.
    pub seed: u64,
    /// For each writer, the names of its keyspaces, oldest first.
    pub names: Vec<String>,
    /// The injected fault.
    pub canary: Option<Canary>,
}

/// Works until killed. Returns only after a failure.
///
/// # Errors
/// The error of an operation that must succeed.
pub fn run_child(job: &ChildJob) -> Result<()> {
    let sender = Sender::stdout()?;
    let mut env = Env::real();
    if job.canary == Some(Canary::Panic) {
        env.threads = Arc::new(PanickyThreads);
    }
    let db = Shape::of(job.seed).builder().env(env).open(&job.dir)?;
    sender.send(Message::Opened)?;
    std::thread::scope(|scope| {
        for (writer, names) in job.names.iter().enumerate() {
            let (db, sender) = (&db, &sender);
            scope.spawn(move || -> ! {
                let state = State::with_names(names.split(BETWEEN_NAMES).map(str::to_owned));
                let script = Script::new(job.seed, writer, state);
                // The first failure of any writer ends the child, so that the parent notices at once.
                let error = write(db, sender, writer, script, job.canary).expect_err("scripts have no end");
                eprintln!("writer {writer}: {error}");
                std::process::exit(3);
            });
        }
    });
    Err(Failure::new("all writers ended"))
}

fn write(db: &Db, sender: &Sender, writer: usize, mut script: Script, canary: Option<Canary>) -> Result<()> {
    let id = writer as u8;
    for n in 0_u64.. {
        let task = script.next();
        sender.send(Message::Intent(id))?;
        match canary {
            Some(Canary::AckEarly) => {
                sender.send(Message::Ack(id))?;
                script.perform(db, &task)?;
                script.go_on(&task);
                continue;
            }
            Some(Canary::Drop) if n % 50 == 20 && matches!(task.op, Op::Write(..) | Op::Batch(..)) => {}
            Some(Canary::Halves) => perform_in_halves(db, &script, &task)?,
            Some(Canary::Hang) if writer == 0 && n == 5 => loop {
                std::thread::park();
            },
            _ => script.perform(db, &task)?,
        }
        sender.send(Message::Ack(id))?;
        script.go_on(&task);
    }
    Ok(())
}

/// Commits a batch as two commits, for a canary.
fn perform_in_halves(db: &Db, script: &Script, task: &Task) -> Result<()> {
    let (Op::Batch(writes, durability), None) = (&task.op, task.transfer) else {
        return Ok(script.perform(db, task)?);
    };
    let (first, second) = writes.split_at(writes.len() / 2);
    for half in [first, second] {
        let op = Op::Batch(half.to_vec(), *durability);
        script.perform(db, &Task { op, transfer: None })?;
    }
    Ok(())
}
