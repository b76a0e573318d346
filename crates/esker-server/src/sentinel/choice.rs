//! Which of the fenced servers leads.
//!
//! A confirmed write is on `quorum + 1` of all servers, and `servers - quorum` are fenced. Together these are
//! more than there are, so one server is in both. Positions in the epochs of ballots are ordered (ballot.2):
//! the newest of the fenced servers has everything that any of them has of confirmed writes.

use crate::replication::Position;

/// What a server replied when it was fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fenced<T> {
    pub(crate) server: T,
    /// The ballot before. A server that had promised none, because it is new or has lost its data, does not
    /// count.
    pub(crate) before: u32,
    pub(crate) at: Position,
}

/// Returns how many servers have to be fenced.
pub(crate) fn needed(servers: usize, quorum: usize) -> usize {
    servers - quorum
}

/// Returns the server that leads. Of several with the newest commit it is the first, but `last` only if no
/// other server has that commit.
///
/// # Errors
/// Returns how many servers count if they are too few.
pub(crate) fn choose<T: PartialEq>(
    fenced: Vec<Fenced<T>>,
    needed: usize,
    last: Option<&T>,
) -> Result<T, usize> {
    let members: Vec<_> = fenced.into_iter().filter(|fenced| fenced.before > 0).collect();
    if members.len() < needed {
        return Err(members.len());
    }
    let count = members.len();
    let newest = members
        .into_iter()
        .rev()
        .max_by_key(|fenced| (fenced.at.epoch.number, fenced.at.seq, Some(&fenced.server) != last));
    newest.map(|fenced| fenced.server).ok_or(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::Epoch;

    #[test]
    fn the_newest_of_enough_servers_leads() {
        // Fenced: name, ballot before, epoch, commit. Needed, last --> leads, or how many count.
        for (fenced, needed, last, expected) in [
            (&[("a", 1, 4096, 9), ("b", 1, 4096, 7)][..], 2, None, Ok("a")),
            (&[("a", 1, 4096, 9), ("b", 2, 8192, 7)], 2, None, Ok("b")),
            (&[("a", 1, 4096, 9), ("b", 1, 4096, 9)], 2, None, Ok("a")),
            (&[("a", 1, 4096, 9), ("b", 1, 4096, 9)], 2, Some("a"), Ok("b")),
            (&[("a", 1, 4096, 9), ("b", 1, 4096, 8)], 2, Some("a"), Ok("a")),
            (&[("a", 1, 4096, 9), ("b", 0, 9000, 10)], 2, None, Err(1)),
            (&[("a", 1, 4096, 9), ("b", 0, 9000, 10), ("c", 3, 4097, 1)], 2, None, Ok("c")),
            (&[], 1, None, Err(0)),
        ] {
            let of = |&(server, before, number, seq): &(&'static str, u32, u32, u64)| Fenced {
                server,
                before,
                at: Position { epoch: Epoch { number, mark: 1 }, seq },
            };
            let fenced = fenced.iter().map(of).collect();
            assert_eq!(choose(fenced, needed, last.as_ref()), expected);
        }
    }
}
