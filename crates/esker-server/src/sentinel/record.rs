//! What etcd has of a group of servers, as JSON under `/esker/NAME/record`.

use serde::{Deserialize, Serialize};

use crate::config::source::Source;

/// The group, its newest election, and the primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// `host:port` of all servers.
    pub(super) servers: Vec<String>,
    /// The number of replicas that confirm a write.
    pub(super) quorum: usize,
    /// The newest ballot that a sentinel has taken.
    pub(super) ballot: u32,
    /// The server that leads in this ballot. `None` during an election.
    pub(super) primary: Option<String>,
    /// The server that led before.
    pub(super) last: Option<String>,
    /// Until the first primary leads: the server that has the data.
    pub(super) first: Option<String>,
}

impl Record {
    /// Returns the address of the server that leads.
    pub(super) fn primary(&self) -> Option<Source> {
        self.primary.as_deref().and_then(parse_source)
    }
}

/// Parses `host:port`. An IPv6 address is in brackets.
pub(super) fn parse_source(text: &str) -> Option<Source> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_matches(['[', ']']).to_owned();
    Some(Source { host, port: port.parse().ok()? })
}
