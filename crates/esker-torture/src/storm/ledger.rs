//! A worker's intents and acknowledgements, in a file that survives the kill of its process. An intent is
//! written before its commit starts, an acknowledgement after it, so at most the last intent is in doubt.

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

/// The file of a worker.
pub(super) struct Ledger {
    file: File,
}

/// The content of a file.
pub(super) struct Recovered {
    /// The model after all acknowledged actions.
    pub(super) model: Model,
    /// The pending action and its start.
    pub(super) doubt: Option<(Action, u64)>,
}

fn path(dir: &Path, worker: usize) -> PathBuf {
    dir.join(format!("ledger-{worker}.jsonl"))
}

impl Ledger {
    /// Creates a file that starts with a model.
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

/// Reads the file of a worker. A new worker has none.
pub(super) fn read(dir: &Path, worker: usize, skips_folded_expiry: bool) -> Result<Recovered> {
    let mut recovered = Recovered { model: Model::new(worker, skips_folded_expiry), doubt: None };
    let Ok(bytes) = fs::read(path(dir, worker)) else { return Ok(recovered) };
    // A line without an end was truncated by the kill.
    for bytes in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let line = serde_json::from_slice(bytes).map_err(|error| Failure::new(format!("ledger: {error}")))?;
        match line {
            Line::Base(model) => recovered.model = model,
            Line::Intent(action, now_ms) => recovered.doubt = Some((action, now_ms)),
            Line::Ack(span) => {
                let (action, _) = recovered.doubt.take().ok_or_else(|| Failure::new("ledger: no intent"))?;
                recovered.model.apply(&action, span);
            }
        }
    }
    Ok(recovered)
}
