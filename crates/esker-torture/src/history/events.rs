//! What clients observe, and when.

use serde::{Deserialize, Serialize};

use super::linear::Action;
use super::lists::{Access, Outcome, Promise};

/// An observed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    Register(u64, Action),
    Lists(Vec<Access>, Outcome, Promise),
    /// The sum of all accounts in one snapshot.
    Bank(u64),
    /// An action on the counter.
    Counter(Action),
    /// Which of a group's two keys exist in one snapshot.
    Fork(u64, bool, bool),
}

/// A call and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) called: u64,
    pub(crate) returned: u64,
    pub(crate) event: Event,
}
