//! Describes the async commits of an engine. The modes of engines differ, so rows of async commits name them.
//!
//! A commit of [`Reached::System`] survives when the process is killed after it. Of commits of
//! [`Reached::Process`], some do not. `esker-bench async-commits` kills processes to test this.

use serde::Deserialize;

use crate::engine::leaked;

/// State of a commit of [`Durability::Async`](crate::Durability::Async) when it returns, and what follows
/// without further calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct AsyncCommits {
    /// State when it returns.
    pub reached: Reached,
    /// What follows without further calls.
    #[serde(deserialize_with = "leaked")]
    pub then: &'static str,
    /// Where the engine's authors describe it: a file, a page, a section.
    #[serde(deserialize_with = "leaked")]
    pub pointer: &'static str,
}

/// How far a commit has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Reached {
    /// In the memory of the process: lost if the process is killed.
    #[serde(rename = "in the process alone")]
    Process,
    /// Handed to the operating system, by a write or in a mapped file: lost only in a power cut.
    #[serde(rename = "handed to the operating system")]
    System,
}

impl Reached {
    /// Returns the name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "in the process alone",
            Self::System => "handed to the operating system",
        }
    }
}
