//! The interface between the lab and an engine: what it is, what it can do, and how it opens a database.
//!
//! ```text
//! Engine --open(dir)------------------> Store          one ordered map
//!        --open_keyspaces(dir, count)-> Keyspaces      many
//!        --open_transactions(dir)-----> Transactions   transactions that read what they write
//!        --open_expiring(dir)---------> Expiring       entries that expire
//! ```

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Deserializer};

use crate::async_commits::AsyncCommits;
use crate::expiring::Expiring;
use crate::keyspaces::{Keyspaces, Prefixed};
use crate::serving::Serving;
use crate::store::{Durability, Failure, Feature, OpenOptions, Result, Store};
use crate::transactions::{OneWriter, TransactionKind, Transactions};

/// An engine, which opens databases.
pub trait Engine: Sync {
    /// Name on the command line and in results.
    fn name(&self) -> &'static str;

    /// Version of the engine and of the crate that binds it.
    fn version(&self) -> String;

    /// Every option that differs from the engine's defaults, or that readers ask about, with its reason.
    fn options(&self) -> &'static [EngineOption];

    /// Returns what its transactions guarantee. Reports show it beside the results.
    fn isolation(&self) -> Isolation;

    /// Returns why the engine cannot do this, or `None` if it can. Rows that need the feature have the
    /// reason.
    fn cannot(&self, _feature: Feature) -> Option<&'static str> {
        None
    }

    /// Returns the first of these modes that the engine has.
    fn first_of(&self, modes: &[Durability]) -> Option<Durability> {
        modes.iter().copied().find(|mode| self.cannot(mode.feature()).is_none())
    }

    /// Describes its commits of [`Durability::Async`]; `None` for an engine without that mode.
    fn async_commits(&self) -> Option<AsyncCommits>;

    /// Returns why commits of the engine sync although the lab asks for none. The lab notes the syncs that it
    /// counts with this reason.
    fn syncs_unasked(&self) -> Option<&'static str> {
        None
    }

    /// Returns why the engine cannot run this suite at all, or `None` if it can.
    fn cannot_run(&self, _suite: &str) -> Option<String> {
        None
    }

    /// Returns whether `list` and the default run leave the engine out. Such engines test the lab itself.
    fn hidden(&self) -> bool {
        false
    }

    /// Builds the program of an engine in another language. That may take minutes.
    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Starts the program of an engine in another language. Called once, before a suite runs.
    fn start(&self) -> Result<()> {
        Ok(())
    }

    /// Creates a database in `dir` if that is empty, otherwise opens the existing one.
    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>>;

    /// Creates a database with keyspaces 0 to `count` in `dir` if that is empty, otherwise opens the existing
    /// one. The default is for an engine with one order, or with keyspaces that are not meant for thousands:
    /// it prefixes keys, as users of such engines do.
    fn open_keyspaces(&self, dir: &Path, options: &OpenOptions, _count: u32) -> Result<Box<dyn Keyspaces>> {
        Ok(Box::new(Prefixed { store: self.open(dir, options)?, durability: options.durability }))
    }

    /// Returns the command of a program that serves a database of this engine with the Redis protocol, until
    /// a client sends `SHUTDOWN`. Returns `None` if there is no such program.
    fn serve(&self, _serving: Serving<'_>) -> Result<Option<Command>> {
        Ok(None)
    }

    /// Returns the kinds of its transactions that read what they write, the kind that its authors prefer
    /// first. Empty if the adapter has no such transactions.
    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &[]
    }

    /// Creates a database for transactions of this kind in `dir` if that is empty, otherwise opens the
    /// existing one. The default is for engines that have only [`TransactionKind::OneWriter`], and whose
    /// [`Writer`](crate::Writer) has [`Writer::get`](crate::Writer::get).
    fn open_transactions(
        &self,
        dir: &Path,
        options: &OpenOptions,
        kind: TransactionKind,
    ) -> Result<Box<dyn Transactions>> {
        if kind == TransactionKind::OneWriter && self.transaction_kinds().contains(&kind) {
            return Ok(Box::new(OneWriter(self.open(dir, options)?)));
        }
        Err(Failure::Unsupported(format!("no transactions of the kind: {}", kind.name())))
    }

    /// Creates a database whose entries may expire in `dir` if that is empty, otherwise opens the existing
    /// one.
    fn open_expiring(&self, _dir: &Path, _options: &OpenOptions) -> Result<Box<dyn Expiring>> {
        Err(Failure::Unsupported("its entries do not expire".to_owned()))
    }
}

/// One option of an adapter, with its reason.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct EngineOption {
    /// The option as the engine calls it.
    #[serde(deserialize_with = "leaked")]
    pub option: &'static str,
    /// Its value.
    #[serde(deserialize_with = "leaked")]
    pub value: &'static str,
    /// Reason for the value.
    #[serde(deserialize_with = "leaked")]
    pub reason: &'static str,
    /// Where the engine's authors advise or use it: a file, a page, a section. Empty for a default.
    #[serde(deserialize_with = "leaked")]
    pub pointer: &'static str,
}

/// Reads a text that stays until the process ends: the description of an engine in another language.
pub(crate) fn leaked<'de, D: Deserializer<'de>>(text: D) -> std::result::Result<&'static str, D::Error> {
    Ok(String::deserialize(text)?.leak())
}

/// The options of an adapter: option, value, reason and pointer of each, on one line.
#[macro_export]
macro_rules! engine_options {
    ($($option:expr, $value:expr, $reason:expr, $pointer:expr;)*) => {
        &[$($crate::EngineOption { option: $option, value: $value, reason: $reason, pointer: $pointer }),*]
    };
}

/// What the transactions of an engine guarantee, as the adapter uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Isolation {
    /// Each write is atomic by itself; several together are not.
    #[serde(rename = "single operations")]
    Operation,
    /// A batch of writes is atomic. There are no reads within a transaction, and no conflicts.
    #[serde(rename = "atomic batches")]
    Batch,
    /// Reads see one snapshot. Conflicting writers fail or wait.
    #[serde(rename = "snapshot isolation")]
    Snapshot,
    /// Transactions have the same effect as if they ran one after the other.
    #[serde(rename = "serializable")]
    Serializable,
}

impl Isolation {
    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operation => "single operations",
            Self::Batch => "atomic batches",
            Self::Snapshot => "snapshot isolation",
            Self::Serializable => "serializable",
        }
    }
}

/// Returns why an engine has no transactions that read what they write.
pub fn no_transactions(engine: &dyn Engine) -> Failure {
    Failure::Unsupported(match engine.isolation() {
        Isolation::Operation | Isolation::Batch => {
            "it has no transactions that read and write, as far as its adapter uses it".to_owned()
        }
        _ => "its adapter writes alone: transactions that read what they write are not in it".to_owned(),
    })
}
