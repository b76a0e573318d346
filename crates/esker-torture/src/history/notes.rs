//! Notes of clients in a process that will be killed: calls and returns, as lines of a file.
//!
//! ```text
//!   Called --the call--> Returned        two ticks of one clock; without a return, the outcome is unknown
//! ```
//!
//! A line is written to the operating system before its call starts or after it returned, so it survives the
//! process. A line truncated by the kill is ignored: an announced call was not started, and a reported one
//! was announced or only read.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::events::{Event, Record};
use esker_world::failure::{Failure, Result};

/// One line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// A call that may take effect starts.
    Called { called: u64, event: Event },
    /// A call has returned; `None` means without effect.
    Returned { called: u64, returned: u64, event: Option<Event> },
    /// A commit failed for lack of space.
    Refused,
}

/// The file of notes.
#[derive(Debug)]
pub(crate) struct Notes(File);

impl Notes {
    /// Opens the file for appending.
    pub(crate) fn append(path: &Path) -> io::Result<Notes> {
        OpenOptions::new().append(true).open(path).map(Notes)
    }

    /// Writes a line with one call, starting with a line end, so that a truncated line ends where the next
    /// one begins.
    pub(crate) fn write(&self, line: &Line) -> io::Result<()> {
        let mut bytes = vec![b'\n'];
        serde_json::to_writer(&mut bytes, line)?;
        (&self.0).write_all(&bytes)
    }
}

/// What a process has reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Returned calls.
    pub(crate) returned: Vec<Record>,
    /// Start and possible effect of each pending call.
    pub(crate) pending: Vec<(u64, Event)>,
    /// Number of commits that failed for lack of space.
    pub(crate) refused: u64,
    /// The last reported tick.
    pub(crate) last_tick: u64,
}

impl Report {
    /// Reads the notes of a killed process with this many threads.
    pub(crate) fn read(path: &Path, threads: usize) -> Result<Report> {
        Self::parse(&std::fs::read(path)?, threads)
    }

    fn parse(text: &[u8], threads: usize) -> Result<Report> {
        let mut report = Report::default();
        let mut pending = BTreeMap::new();
        let mut cut = 0;
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(Line::Called { called, event }) => {
                    report.last_tick = report.last_tick.max(called);
                    pending.insert(called, event);
                }
                Ok(Line::Returned { called, returned, event }) => {
                    report.last_tick = report.last_tick.max(returned);
                    pending.remove(&called);
                    report.returned.extend(event.map(|event| Record { called, returned, event }));
                }
                Ok(Line::Refused) => report.refused += 1,
                Err(_) => cut += 1,
            }
        }
        if cut > threads {
            return Err(Failure::new(format!("{cut} lines of {threads} threads are not notes")));
        }
        report.pending.extend(pending);
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::super::linear::Action;
    use super::*;

    const INCREMENT: Event = Event::Counter(Action::Increment(7));

    #[test]
    fn calls_without_a_return_are_pending_and_lines_that_were_cut_are_left_out() {
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
        let expected = Report {
            returned: vec![record(1, 5, INCREMENT), record(6, 7, Event::Bank(1))],
            pending: vec![(2, INCREMENT)],
            refused: 1,
            last_tick: 7,
        };
        assert_eq!(Report::read(&path, 1).unwrap(), expected);
        assert!(Report::read(&path, 0).is_err());
    }
}
