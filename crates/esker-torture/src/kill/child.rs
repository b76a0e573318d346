//! The child: opens the database and works on it until it is killed.

use std::path::PathBuf;
use std::sync::Arc;

use esker::Db;
use esker_env::Env;

use super::Canary;
use super::protocol::{Message, Sender};
use crate::panicky::PanickyThreads;
use crate::script::{Op, Script, perform};
use crate::shape::Shape;
use esker_world::failure::{Failure, Result};

/// What the parent tells its child on the command line.
#[derive(Clone, Debug)]
pub struct ChildJob {
    /// The database's directory.
    pub dir: PathBuf,
    /// Determines options and operations.
    pub seed: u64,
    /// For each writer, the name of its second keyspace, or nothing.
    pub scratch: Vec<String>,
    /// What to do wrong.
    pub canary: Option<Canary>,
}

/// Works until it is killed; returns only when something fails.
///
/// # Errors
/// What an operation that must succeed fails with.
pub fn run_child(job: &ChildJob) -> Result<()> {
    let sender = Sender::stdout()?;
    let mut env = Env::real();
    if job.canary == Some(Canary::Panic) {
        env.threads = Arc::new(PanickyThreads);
    }
    let db = Shape::of(job.seed).builder().env(env).open(&job.dir)?;
    sender.send(Message::Opened)?;
    std::thread::scope(|scope| {
        for (writer, scratch) in job.scratch.iter().enumerate() {
            let (db, sender) = (&db, &sender);
            let scratch = (!scratch.is_empty()).then(|| scratch.clone());
            let script = Script::new(job.seed, writer, scratch);
            scope.spawn(move || -> ! {
                // The first failure of any writer ends the child: the parent must see it at once.
                let error = write(db, sender, writer, script, job.canary).expect_err("scripts have no end");
                eprintln!("writer {writer}: {error}");
                std::process::exit(3);
            });
        }
    });
    Err(Failure::new("all writers ended"))
}

fn write(db: &Db, sender: &Sender, writer: usize, script: Script, canary: Option<Canary>) -> Result<()> {
    let id = writer as u8;
    for (n, op) in script.enumerate() {
        sender.send(Message::Intent(id))?;
        match canary {
            Some(Canary::AckEarly) => {
                sender.send(Message::Ack(id))?;
                perform(db, &op)?;
                continue;
            }
            Some(Canary::Drop)
                if n % 50 == 20 && !matches!(op, Op::Create(_) | Op::Drop(_) | Op::Rename(..)) => {}
            Some(Canary::Halves) => perform_in_halves(db, &op)?,
            Some(Canary::Hang) if writer == 0 && n == 5 => loop {
                std::thread::park();
            },
            _ => perform(db, &op)?,
        }
        sender.send(Message::Ack(id))?;
    }
    Ok(())
}

/// A commit that is two.
fn perform_in_halves(db: &Db, op: &Op) -> Result<()> {
    let Op::Batch(changes, durability) = op else { return Ok(perform(db, op)?) };
    let (first, second) = changes.split_at(changes.len() / 2);
    perform(db, &Op::Batch(first.to_vec(), *durability))?;
    Ok(perform(db, &Op::Batch(second.to_vec(), *durability))?)
}
