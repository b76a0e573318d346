//! What the async commits of an engine have done when they return. No mode of one engine can be made that of another, so rows of async
//! commits say which is which.
//!
//! bench_api_async_commits.1. What is said to be [`Reached::System`] is there when the process is killed behind the commit; of what is said to be
//!      [`Reached::Process`] some is not. `esker-bench async-commits` kills processes and holds the adapters to it.

/// What an engine's commits of [`Durability::Async`](crate::Durability::Async) have done when they return, and what comes then by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncCommits {
    /// Where the commit is.
    pub reached: Reached,
    /// How it gets further without being asked to.
    pub then: &'static str,
    /// Where the engine's authors say so: a file, a page, a section.
    pub pointer: &'static str,
}

/// How far a commit has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// In the memory of the process: lost if that is killed.
    Process,
    /// Handed to the operating system, by a write or in a map of a file: lost with the machine's power only.
    System,
}

impl Reached {
    /// For reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "in the process alone",
            Self::System => "handed to the operating system",
        }
    }
}
