//! What etcd has of a group of servers, as JSON under `/esker/NAME/record`.

use serde::{Deserialize, Serialize};

use crate::config::source::Source;
use crate::replication::Ballot;

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
    /// Decodes what etcd has.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let is_server =
            |name: &Option<String>| name.as_ref().is_none_or(|name| record.servers.contains(name));
        if record.quorum == 0 || record.quorum >= record.servers.len() {
            return Err(format!("its quorum is {} of {} servers", record.quorum, record.servers.len()));
        }
        if record.ballot >= Ballot::MAX {
            return Err(format!("its ballot is {}, and the last one is {}", record.ballot, Ballot::MAX));
        }
        if ![&record.primary, &record.last, &record.first].into_iter().all(is_server) {
            return Err("its primary is not one of its servers".to_owned());
        }
        Ok(record)
    }

    /// Returns whether its servers are these, in any order.
    pub(super) fn has_servers<'a>(&self, names: impl Iterator<Item = &'a String>) -> bool {
        let mut theirs: Vec<_> = self.servers.iter().collect();
        let mut names: Vec<_> = names.collect();
        theirs.sort();
        names.sort();
        theirs == names
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_record_is_refused() {
        let good =
            r#"{"servers":["a:1","b:1"],"quorum":1,"ballot":3,"primary":"a:1","last":null,"first":null}"#;
        assert!(Record::decode(good.as_bytes()).is_ok());
        for (from, to) in [
            ("}", ""),
            (r#""quorum":1"#, r#""quorum":2"#),
            (r#""quorum":1"#, r#""quorum":0"#),
            (r#""ballot":3"#, r#""ballot":4294967295"#),
            (r#""primary":"a:1""#, r#""primary":"c:1""#),
        ] {
            assert!(Record::decode(good.replace(from, to).as_bytes()).is_err(), "{from} --> {to}");
        }
    }
}
