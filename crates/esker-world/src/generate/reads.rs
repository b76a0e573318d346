//! Generates reads and background steps.

use esker::BackgroundStep;

use super::Generator;
use crate::op::{Move, Read, Reader, SLOTS};

impl Generator<'_> {
    pub(super) fn slot(&mut self) -> usize {
        self.choices.usize(0..SLOTS)
    }

    pub(super) fn reader(&mut self) -> Reader {
        match self.choices.u8(0..5) {
            0..2 => Reader::Latest,
            2..4 => Reader::Snapshot(self.slot()),
            _ => Reader::Transaction(self.slot()),
        }
    }

    pub(super) fn takes(&mut self, max: usize) -> Vec<bool> {
        let kind = self.choices.u8(0..3);
        let n = self.choices.usize(0..max);
        (0..n).map(|_| if kind == 2 { self.choices.bool() } else { kind == 1 }).collect()
    }

    pub(super) fn moves(&mut self, most: usize) -> Vec<Move> {
        let n = self.choices.usize(1..most);
        let one = |g: &mut Self| match g.choices.u8(0..16) {
            0 => Move::First,
            1 => Move::Last,
            2..4 => Move::Seek(g.key()),
            4..6 => Move::SeekBefore(g.key()),
            6..11 => Move::Next,
            _ => Move::Prev,
        };
        (0..n).map(|_| one(self)).collect()
    }

    pub(super) fn read(&mut self) -> Read {
        match self.choices.u8(0..20) {
            0..8 => Read::Get(self.key()),
            8 => Read::Contains(self.key()),
            9 => Read::MultiGet((0..self.choices.usize(0..6)).map(|_| self.key()).collect()),
            10..12 => Read::Ends,
            12..14 => Read::Len,
            14..17 => Read::Range { bounds: self.bounds(), takes: self.takes(20), keys_only: self.one_in(3) },
            17 => Read::Prefix {
                key: self.key(),
                len: self.choices.u16(0..100),
                backwards: self.choices.bool(),
            },
            _ => Read::Cursor(self.moves(30)),
        }
    }

    pub(super) fn step(&mut self) -> BackgroundStep {
        match self.choices.u8(0..8) {
            0..3 => BackgroundStep::Flush,
            3..6 => BackgroundStep::Compact { idle: self.choices.bool() },
            6 => BackgroundStep::PrepareLog,
            _ => BackgroundStep::SyncLog,
        }
    }
}
