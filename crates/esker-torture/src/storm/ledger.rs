//! What a worker was about to do, and what was acknowledged: a file of lines that survives the kill of its process.
//!
//! storm_ledger.1. An intent is written before the commit begins, an acknowledgement after it: at most the last intent is in doubt.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use esker_world::failure::{Failure, Result};
use serde::{Deserialize, Serialize};

use super::model::{Action, Model, Span};

#[derive(Serialize, Deserialize)]
enum Line {
    Base(Model),
    Intent(Action, u64),
    Ack(Span),
}

/// A worker's file.
pub(super) struct Ledger {
    file: File,
}

/// What a file says.
pub(super) struct Story {
    /// After all that was acknowledged.
    pub(super) model: Model,
    /// What was under way, and when it began.
    pub(super) doubt: Option<(Action, u64)>,
}

fn path(dir: &Path, worker: usize) -> PathBuf {
    dir.join(format!("ledger-{worker}.jsonl"))
}

impl Ledger {
    /// Begins a file with what is known.
    pub(super) fn begin(dir: &Path, worker: usize, model: &Model) -> Result<Self> {
        let (path, new) = (path(dir, worker), dir.join(format!("ledger-{worker}.new")));
        fs::write(&new, line(&Line::Base(model.clone()))?)?;
        fs::rename(&new, &path)?;
        Ok(Ledger { file: OpenOptions::new().append(true).open(path)? })
    }

    pub(super) fn intent(&mut self, action: &Action, now_ms: u64) -> Result<()> {
        Ok(self.file.write_all(&line(&Line::Intent(action.clone(), now_ms))?)?)
    }

    pub(super) fn ack(&mut self, span: Span) -> Result<()> {
        Ok(self.file.write_all(&line(&Line::Ack(span))?)?)
    }
}

fn line(line: &Line) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line).map_err(|error| Failure::new(error.to_string()))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Reads a worker's file; a new worker has none.
pub(super) fn read(dir: &Path, worker: usize, skips_folded_expiry: bool) -> Result<Story> {
    let mut story = Story { model: Model::new(worker, skips_folded_expiry), doubt: None };
    let Ok(bytes) = fs::read(path(dir, worker)) else { return Ok(story) };
    // A line without an end was being written when its process was killed.
    for bytes in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let line = serde_json::from_slice(bytes).map_err(|error| Failure::new(format!("ledger: {error}")))?;
        match line {
            Line::Base(model) => story.model = model,
            Line::Intent(action, now_ms) => story.doubt = Some((action, now_ms)),
            Line::Ack(span) => {
                let (action, _) = story.doubt.take().ok_or_else(|| Failure::new("ledger: no intent"))?;
                story.model.apply(&action, span);
            }
        }
    }
    Ok(story)
}
