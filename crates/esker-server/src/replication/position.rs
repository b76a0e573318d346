//! Positions in a history of commits, and the comparison of two histories.
//!
//! ```text
//!   epoch 1-9f..: commits 1 to 40      begun by the first primary
//!   epoch 2-03..: commits 41 to 77     the same server restarted, or another one promoted after commit 40
//!   epoch 3-c1..: commits from 78 on
//! ```
//!
//! - An epoch belongs to one run of one primary: its mark is drawn at random. So an epoch and a number name
//!   one commit for ever.
//! - Numbers continue from epoch to epoch without a gap.
//! - A position beyond the end of its epoch, or in an epoch that a history lacks, belongs to a fork.

use std::fmt;
use std::str::FromStr;

use crate::replication::bytes::{Broken, Reader};

/// One run of one primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// Its place in the order of the history's epochs.
    pub number: u32,
    /// Drawn at random.
    pub mark: u64,
}

/// The position of a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its number.
    pub seq: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.number, self.mark)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.seq)
    }
}

impl FromStr for Epoch {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, mark) = text.split_once('-').ok_or(())?;
        let mark = u64::from_str_radix(mark, 16).map_err(drop)?;
        Ok(Epoch { number: number.parse().map_err(drop)?, mark })
    }
}

impl Epoch {
    /// Returns the epoch after this one.
    pub fn next(self) -> Self {
        Epoch { number: self.number + 1, mark: fastrand::u64(1..) }
    }
}

impl Position {
    /// Encodes the position.
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.number.to_le_bytes());
        out.extend_from_slice(&self.epoch.mark.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
    }

    /// Decodes what [`encode`](Self::encode) writes.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Broken> {
        Ok(Position { epoch: Epoch { number: reader.u32()?, mark: reader.u64()? }, seq: reader.u64()? })
    }
}

/// Epochs, each with the last commit before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<(Epoch, u64)>);

/// How a position relates to a history.
#[derive(Debug, PartialEq, Eq)]
pub enum Relation {
    /// The history passes through it.
    Prefix,
    /// It belongs to another history, for this reason.
    Fork(String),
}

impl History {
    /// Creates a history of these epochs, oldest first.
    pub fn new(epochs: Vec<(Epoch, u64)>) -> Self {
        History(epochs)
    }

    /// Returns the epochs, oldest first, each with the last commit before it.
    pub fn epochs(&self) -> &[(Epoch, u64)] {
        &self.0
    }

    /// Begins another epoch.
    pub fn push(&mut self, epoch: (Epoch, u64)) {
        self.0.retain(|(_, start)| *start < epoch.1);
        self.0.push(epoch);
    }

    /// Returns the newest epoch.
    pub fn newest(&self) -> Epoch {
        self.0.last().map_or(Epoch::default(), |(epoch, _)| *epoch)
    }

    /// Returns the epoch of a commit.
    pub fn epoch_of(&self, seq: u64) -> Epoch {
        let found = self.0.iter().rev().find(|(_, start)| *start < seq);
        found.or(self.0.first()).map_or(Epoch::default(), |(epoch, _)| *epoch)
    }

    /// Returns how a position relates to this history, whose newest commit is `newest`.
    pub fn relation(&self, newest: u64, at: Position) -> Relation {
        let Some(found) = self.0.iter().position(|(epoch, _)| *epoch == at.epoch) else {
            return Relation::Fork(format!("epoch {} is not part of this server's history", at.epoch));
        };
        let end = self.0.get(found + 1).map_or(newest, |(_, start)| *start);
        if at.seq > end {
            return Relation::Fork(format!(
                "in epoch {} this server's history ends with commit {end}, and the replica has commits up to {}",
                at.epoch, at.seq
            ));
        }
        Relation::Prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(number: u32, mark: u64) -> Epoch {
        Epoch { number, mark }
    }

    #[test]
    fn forks_are_distinguished_from_prefixes() {
        let (a, b, c) = (epoch(1, 10), epoch(2, 20), epoch(3, 30));
        let history = History::new(vec![(a, 0), (b, 40), (c, 77)]);
        // Newest commit 90: epoch, number -> does the history pass through it?
        let table = [
            ((a, 0), true),
            ((a, 40), true),
            ((a, 41), false),
            ((b, 41), true),
            ((b, 77), true),
            ((b, 78), false),
            ((c, 90), true),
            ((c, 91), false),
            ((epoch(2, 21), 41), false),
            ((epoch(4, 1), 91), false),
        ];
        for ((epoch, seq), is_prefix) in table {
            let relation = history.relation(90, Position { epoch, seq });
            assert_eq!(relation == Relation::Prefix, is_prefix, "{epoch} {seq}: {relation:?}");
        }
        let of = [40, 41, 77, 78].map(|seq| history.epoch_of(seq).number);
        assert_eq!((of, history.newest()), ([1, 2, 2, 3], c));
    }

    #[test]
    fn positions_are_written_and_read() {
        let position = Position { epoch: epoch(7, 0xAB), seq: 5 };
        assert_eq!(position.to_string(), "7-00000000000000ab 5");
        assert_eq!("7-00000000000000ab".parse(), Ok(position.epoch));
        let mut bytes = Vec::new();
        position.encode(&mut bytes);
        assert_eq!(bytes, [7, 0, 0, 0, 0xAB, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Position::decode(&mut Reader::new(&bytes)).unwrap(), position);
        assert!(["", "7", "x-1", "7-zz"].iter().all(|text| text.parse::<Epoch>().is_err()));
    }
}
