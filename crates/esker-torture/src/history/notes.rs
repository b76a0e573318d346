//! What clients of a process that will be killed write down: calls and returns, as lines of a file.
//!
//! ```text
//!   Called --the call--> Returned        two ticks of one clock; a line without the other: nobody knows
//! ```
//!
//! notes.1. A line is handed to the operating system before the call that it announces is made, or after the one that it
//!      reports has returned. So it outlives the process.
//! notes.2. A line that the kill cut short is left out: what it announces was not begun; what it reports was announced, or only
//!      read something.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::clients::{Event, Record};
use esker_world::failure::{Failure, Result};

/// One line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// A call that may take effect begins.
    Called { called: u64, event: Event },
    /// A call has returned; none: it took no effect.
    Returned { called: u64, returned: u64, event: Option<Event> },
    /// A commit has failed for want of space.
    Refused,
}

/// The file that is written.
#[derive(Debug)]
pub(crate) struct Notes(File);

impl Notes {
    /// Goes on behind what is there.
    pub(crate) fn append(path: &Path) -> io::Result<Notes> {
        OpenOptions::new().append(true).open(path).map(Notes)
    }

    /// Writes a line with one call, its end first: so a line that was cut ends where the next begins.
    pub(crate) fn write(&self, line: &Line) -> io::Result<()> {
        let mut bytes = vec![b'\n'];
        serde_json::to_writer(&mut bytes, line)?;
        (&self.0).write_all(&bytes)
    }
}

/// What a process has told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Calls that have returned.
    pub(crate) returned: Vec<Record>,
    /// When each of the other calls began, and what it may have done.
    pub(crate) under_way: Vec<(u64, Event)>,
    /// Commits that have failed for want of space.
    pub(crate) refused: u64,
    /// The last tick that was told.
    pub(crate) last_tick: u64,
}

impl Told {
    /// Reads what a process with so many threads has written until it was killed.
    pub(crate) fn read(path: &Path, threads: usize) -> Result<Told> {
        Self::parse(&std::fs::read(path)?, threads)
    }

    fn parse(text: &[u8], threads: usize) -> Result<Told> {
        let mut told = Told::default();
        let mut under_way = BTreeMap::new();
        let mut cut = 0;
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(Line::Called { called, event }) => {
                    told.last_tick = told.last_tick.max(called);
                    under_way.insert(called, event);
                }
                Ok(Line::Returned { called, returned, event }) => {
                    told.last_tick = told.last_tick.max(returned);
                    under_way.remove(&called);
                    told.returned.extend(event.map(|event| Record { called, returned, event }));
                }
                Ok(Line::Refused) => told.refused += 1,
                Err(_) => cut += 1,
            }
        }
        if cut > threads {
            return Err(Failure::new(format!("{cut} lines of {threads} threads are no notes")));
        }
        told.under_way.extend(under_way);
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::super::linear::Action;
    use super::*;

    const INCREMENT: Event = Event::Counter(Action::Increment(7));

    #[test]
    fn notes_2_calls_without_a_return_are_under_way_and_lines_that_were_cut_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        File::create(&path).unwrap();
        let notes = Notes::append(&path).unwrap();
        let line = |line| notes.write(&line).unwrap();
        line(Line::Called { called: 1, event: INCREMENT });
        line(Line::Called { called: 2, event: INCREMENT });
        line(Line::Called { called: 3, event: INCREMENT });
        line(Line::Returned { called: 1, returned: 5, event: Some(INCREMENT) });
        line(Line::Returned { called: 3, returned: 4, event: None });
        (&notes.0).write_all(b"\n{\"Returned\":{\"called\":2").unwrap();
        line(Line::Refused);
        line(Line::Returned { called: 6, returned: 7, event: Some(Event::Bank(1)) });
        let record = |called, returned, event| Record { called, returned, event };
        let expected = Told {
            returned: vec![record(1, 5, INCREMENT), record(6, 7, Event::Bank(1))],
            under_way: vec![(2, INCREMENT)],
            refused: 1,
            last_tick: 7,
        };
        assert_eq!(Told::read(&path, 1).unwrap(), expected);
        assert!(Told::read(&path, 0).is_err());
    }
}
