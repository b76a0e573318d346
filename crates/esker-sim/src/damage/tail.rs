//! The log's last segment, and how many of its commits may be lost if its bytes change.
//!
//! ```text
//!   undamaged segment --dump--> records --bytes now--> the first damaged one --> proof after it? --> commits
//! ```
//!
//! A record proves the durability of the earlier records that it covers (docs/formats/wal.md). While its
//! header is intact, damage to them loses no commit: recovery reports it instead of treating it as a torn
//! write. Without proof, the log ends at the first damaged record. All commits before that record are kept.

use std::ops::Range;

use esker::{DumpItem, DumpOptions, DumpValue};

use super::files::{Files, disk, env, last_segment, path};

/// Size of the header of a record.
const RECORD_HEADER_BYTES: usize = 24;

/// A record of the segment.
struct TailRecord {
    /// Its position, without padding.
    bytes: Range<usize>,
    /// Bytes of the segment that were durable when it was written.
    synced_to: usize,
    /// Whether it is a complete commit, or the last part of one.
    ends_commit: bool,
}

impl TailRecord {
    fn header(&self) -> Range<usize> {
        self.bytes.start..self.bytes.start + RECORD_HEADER_BYTES
    }
}

/// The undamaged last segment of a log.
#[derive(Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    records: Vec<TailRecord>,
    /// Whether an `End` follows the records.
    is_finished: bool,
}

impl Tail {
    /// Returns the tail of these files; without records if there is no log.
    pub(super) fn of(files: &Files) -> Tail {
        let Some(name) = last_segment(files) else { return Tail::default() };
        let mut tail = Tail { bytes: files[name].clone(), ..Tail::default() };
        let options = DumpOptions::default().env(env(&disk(files), 0)).entries(false);
        let shown = options.dump(path(name), |item| tail.add(&item));
        shown.unwrap_or_else(|error| panic!("subject.1: dump of the undamaged log: {error}"));
        tail
    }

    fn add(&mut self, item: &DumpItem) {
        use DumpValue::{Number, Text};
        let field = |name: &str| item.fields.iter().find(|field| field.0 == name).map(|field| &field.1);
        match (item.kind, field("kind"), field("bytes"), field("synced_to")) {
            ("record", Some(Text(kind)), Some(Number(payload)), Some(Number(synced_to))) => {
                let start = item.offset as usize;
                self.records.push(TailRecord {
                    bytes: start..start + RECORD_HEADER_BYTES + *payload as usize,
                    synced_to: *synced_to as usize,
                    ends_commit: kind == "full" || kind == "last",
                });
            }
            ("end", ..) => self.is_finished = true,
            _ => {}
        }
    }

    /// Returns the number of commits that end in the segment.
    pub(super) fn commits(&self) -> usize {
        self.commits_from(0)
    }

    /// Returns the number of commits that end in this record or later.
    fn commits_from(&self, record: usize) -> usize {
        self.records[record..].iter().filter(|record| record.ends_commit).count()
    }

    /// Returns how many of the newest commits recovery may lose if the segment has these bytes.
    pub(super) fn commits_at_stake(&self, now: &[u8]) -> usize {
        let is_whole = |bytes: Range<usize>| now.get(bytes.clone()) == self.bytes.get(bytes);
        let damaged = self.records.iter().position(|record| !is_whole(record.bytes.clone()));
        let is_proven = damaged.is_some_and(|damaged| {
            let start = self.records[damaged].bytes.start;
            let proves = |later: &TailRecord| later.synced_to > start && is_whole(later.header());
            self.records[damaged..].iter().any(proves)
        });
        match damaged {
            // A later record proves the damage.
            _ if is_proven => 0,
            // If recovery had finished this segment, an earlier version of it may have held more commits, and
            // the damaged bytes may be that version.
            _ if self.is_finished => self.commits(),
            // Without proof the log ends here.
            Some(damaged) => self.commits_from(damaged),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five records: two pairs, each synced together, and a single one. Each has 30 bytes and starts at a
    /// multiple of 32.
    fn tail(is_finished: bool) -> Tail {
        let record =
            |(at, synced_to): (usize, usize)| TailRecord { bytes: at..at + 30, synced_to, ends_commit: true };
        let records = [(32, 32), (64, 32), (96, 96), (128, 96), (160, 160)].map(record);
        Tail { bytes: (0..192).collect(), records: records.into(), is_finished }
    }

    /// Returns the commits at stake when these bytes are changed.
    fn at_stake(tail: &Tail, others: &[usize]) -> usize {
        let mut now = tail.bytes.clone();
        others.iter().for_each(|at| now[*at] ^= 1);
        tail.commits_at_stake(&now)
    }

    #[test]
    fn damage_that_a_later_record_proves_costs_nothing() {
        for tail in [tail(false), tail(true)] {
            // In the last case, the payload of the record that is the proof is damaged as well.
            let harms: [&[usize]; 8] = [
                &[40],
                &[70],
                &[100],
                &[130],
                &[40, 70, 100],
                &[40, 100, 130],
                &[100, 130],
                &[40, 100, 130, 160 + RECORD_HEADER_BYTES],
            ];
            for others in harms {
                assert_eq!(at_stake(&tail, others), 0, "{others:?}");
            }
        }
    }

    #[test]
    fn damage_without_proof_costs_what_does_not_end_before_it() {
        let tail = tail(false);
        // The last case changes only the segment's header and padding.
        let harms: [(&[usize], usize); 5] = [
            (&[165], 1),
            (&[130, 165], 2),
            (&[100, 165], 3),
            (&[40, 100, 130, 165], 5),
            (&[0, 62, 126, 191], 0),
        ];
        for (others, commits) in harms {
            assert_eq!(at_stake(&tail, others), commits, "{others:?}");
        }
        assert_eq!((tail.commits(), tail.commits_at_stake(&[])), (5, 5));
        assert_eq!(tail.commits_at_stake(&tail.bytes[..150]), 2, "a part of it");
        let finished = self::tail(true);
        assert_eq!(at_stake(&finished, &[191]), 5, "it may be what it was before it was finished");
    }
}
