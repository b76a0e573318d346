//! `esker shell`: commands one after the other on an open database.
//!
//! ```text
//!   terminal --console--> line --> command of the tool --> Standard --pager--> terminal
//!   a pipe or a file ---->'                                   `-----> a pipe or a file
//! ```
//!
//! shell.1. On a terminal the shell reports a command that fails and reads the next one. A script ends with it: what follows may build on it.
//! shell.2. A transaction that is open at the end is rolled back; the shell says so.
//! shell.3. The keyspace of the shell is there. If it goes with the transaction that made it, or comes back with the one that dropped or renamed
//!      it, the shell returns to the keyspace in which that began, and says so.

mod console;
mod line;
mod words;

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use self::console::{Console, Typed};
use self::line::{Asked, Line, ShellCommand};
use super::{check, compact, count, del, get, info, keyspaces, merge, past, put, scan, stats};
use crate::Answer;
use crate::args::{Check, Common, DEFAULT_KEYSPACE, Keyspaces, Opening};
use crate::database::{Database, Session};
use crate::failure::{Failure, Result};
use crate::text::shown;
use crate::{output, pager};

pub(super) fn run(session: &Session<'_>) -> Result<Answer> {
    let database = Database::open(session.opening, false)?;
    let mut common = session.common.clone();
    common.use_keyspace(common.keyspace()?.to_owned());
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let begun_in = DEFAULT_KEYSPACE.to_owned();
    let mut shell =
        Shell { database, opening: session.opening, common, is_terminal, begun_in, has_left: false };
    shell.database.keyspace(shell.common.keyspace()?)?;
    let ended = if is_terminal { shell.talk() } else { shell.read_script() };
    let rolled_back = shell.database.rollback();
    if rolled_back {
        output::print_message("the transaction was not committed: rolled back");
    }
    let closed = shell.database.close();
    let answer = ended?;
    closed?;
    Ok(if rolled_back { Answer::No } else { answer })
}

/// An open database, and how commands work on it.
struct Shell<'a> {
    database: Database,
    opening: &'a Opening,
    /// What the lines say nothing of; its keyspace is the one that `use` names.
    common: Common,
    /// Whether somebody types the lines.
    is_terminal: bool,
    /// The keyspace of the shell when the last transaction began.
    begun_in: String,
    /// Whether the shell has left a keyspace that was dropped or renamed since.
    has_left: bool,
}

/// What comes after a line.
enum Next {
    Line(Answer),
    End,
}

impl Shell<'_> {
    /// On a terminal.
    fn talk(&mut self) -> Result<Answer> {
        let mut console = Console::new(self.database.db.clone())?;
        output::print_message("`help` lists the commands, `exit` or Ctrl-D leaves");
        loop {
            let line = match console.read(&self.prompt()?)? {
                Typed::Line(line) => line,
                Typed::Nothing => continue,
                Typed::End => return Ok(Answer::Yes),
            };
            if let Some((columns, rows)) = console.size() {
                pager::begin(columns, rows);
            }
            let start = Instant::now();
            let done = self.execute(&line);
            let paged = pager::end();
            match done {
                Ok(Next::End) => return Ok(Answer::Yes),
                Ok(Next::Line(_)) if line.trim().is_empty() => continue,
                Ok(Next::Line(_)) => {}
                Err(Failure::OutputClosed) if paged.stopped => {}
                Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
                // shell.1
                Err(failure) => output::print_message(&failure),
            }
            let seconds = start.elapsed().saturating_sub(paged.waited).as_secs_f64();
            output::print_message(format_args!("({seconds:.3} s)"));
        }
    }

    /// From a pipe or a file.
    fn read_script(&mut self) -> Result<Answer> {
        let mut answer = Answer::Yes;
        let mut line = String::new();
        for number in 1.. {
            line.clear();
            // No lock of it is kept: a command may ask something.
            let read = io::stdin().read_line(&mut line);
            if read.map_err(|e| Failure::message(format!("read the commands, line {number}: {e}")))? == 0 {
                break;
            }
            match self.execute(&line) {
                Ok(Next::End) => break,
                Ok(Next::Line(Answer::Yes)) => {}
                Ok(Next::Line(Answer::No)) => answer = Answer::No,
                Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
                // shell.1
                Err(failure) => return Err(Failure::message(format!("line {number}: {failure}"))),
            }
        }
        Ok(answer)
    }

    fn prompt(&self) -> Result<String> {
        let transaction = if self.database.in_transaction() { " (transaction)" } else { "" };
        Ok(format!("{}{transaction}> ", shown(self.common.keyspace()?)))
    }

    fn execute(&mut self, line: &str) -> Result<Next> {
        match line::parse(line)? {
            Asked::Nothing => Ok(Next::Line(Answer::Yes)),
            Asked::Help(text) => {
                let mut out = output::stdout();
                out.write_all(text.as_bytes())?;
                out.flush()?;
                Ok(Next::Line(Answer::Yes))
            }
            Asked::Command(line) if matches!(line.command, ShellCommand::Exit) => Ok(Next::End),
            Asked::Command(line) => self.command(*line).map(Next::Line),
        }
    }

    /// After the keyspace of the shell was renamed or dropped.
    fn leave_what_is_gone(&mut self, action: &Keyspaces) -> Result<()> {
        if !self.database.has_keyspace(self.common.keyspace()?) {
            self.common.use_keyspace(match action {
                Keyspaces::Rename { to, .. } => to.clone(),
                _ => DEFAULT_KEYSPACE.to_owned(),
            });
            self.has_left = true;
        }
        Ok(())
    }

    /// After a transaction that was not committed (shell.3).
    fn return_from_what_never_was(&mut self) -> Result<()> {
        if self.has_left || !self.database.has_keyspace(self.common.keyspace()?) {
            let is_there = self.database.has_keyspace(&self.begun_in);
            let name = if is_there { self.begun_in.clone() } else { DEFAULT_KEYSPACE.to_owned() };
            output::print_message(format_args!("working in the keyspace `{}` again", shown(&name)));
            self.common.use_keyspace(name);
        }
        Ok(())
    }

    /// Says what a script learns from the exit code.
    fn tell(&self, answer: Answer) -> Answer {
        if self.is_terminal && answer == Answer::No {
            output::print_message("not found");
        }
        answer
    }

    fn command(&mut self, line: Line) -> Result<Answer> {
        let common = line.common.within(&self.common);
        let session = &Session { common, opening: self.opening, shared: Some(&self.database) };
        if let Some(scan) = line.command.as_scan() {
            return scan::run(session, &scan);
        }
        match line.command {
            ShellCommand::Put(put) if put.value.is_none() => {
                return Err(Failure::message("put KEY VALUE: in the shell the value stands in the line"));
            }
            ShellCommand::Get(get) => return Ok(self.tell(get::run(session, &get)?)),
            ShellCommand::Put(put) => return put::run(session, &put),
            ShellCommand::Merge(merge) => return merge::run(session, &merge),
            ShellCommand::Del(del) => return Ok(self.tell(del::run(session, &del)?)),
            ShellCommand::Scan(scan) => return scan::run(session, &scan),
            ShellCommand::Versions(args) => return Ok(self.tell(past::versions(session, &args)?)),
            ShellCommand::Count(count) => return count::run(session, &count),
            ShellCommand::Keyspaces { action } => {
                let action = action.unwrap_or(Keyspaces::List);
                let answer = keyspaces::run(session, &action)?;
                self.leave_what_is_gone(&action)?;
                return Ok(answer);
            }
            ShellCommand::Info => return info::run(session),
            ShellCommand::Stats(args) => return stats::run(session, &args),
            ShellCommand::Compact => return compact::run(session),
            ShellCommand::Check => return check::run(session, &Check { offline: false }),
            ShellCommand::Begin => {
                self.database.begin()?;
                self.begun_in = self.common.keyspace()?.to_owned();
                self.has_left = false;
            }
            ShellCommand::Commit => {
                let was_open = self.database.in_transaction();
                let committed = self.database.commit();
                if was_open && committed.is_err() {
                    self.return_from_what_never_was()?;
                }
                committed?;
            }
            ShellCommand::Rollback => {
                if !self.database.rollback() {
                    return Err(Failure::message("there is no transaction: `begin` begins one"));
                }
                self.return_from_what_never_was()?;
            }
            ShellCommand::Use { name } => {
                self.database.keyspace(&name)?;
                self.common.use_keyspace(name);
                self.has_left = false;
            }
            ShellCommand::Exit | ShellCommand::Prefix { .. } | ShellCommand::First | ShellCommand::Last => {}
        }
        Ok(Answer::Yes)
    }
}
