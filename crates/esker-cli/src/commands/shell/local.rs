//! The shell of a directory: commands of the tool on one open database.
//!
//! shell_local.1. The keyspace of the shell is there. If it goes with the transaction that made it, or comes back with the one that dropped or renamed
//!      it, the shell returns to the keyspace in which that began, and says so.

use super::super::{check, compact, count, del, get, info, keyspaces, merge, past, put, scan, stats};
use super::console::Names;
use super::line::{Line, ShellCommand};
use super::{Subject, tell, tell_rolled_back};
use crate::Answer;
use crate::args::{Check, Common, DEFAULT_KEYSPACE, Keyspaces, Opening};
use crate::database::{Database, Session};
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::shown;

/// An open database, and how commands work on it.
pub(super) struct Local<'a> {
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

impl<'a> Local<'a> {
    /// Opens the database.
    pub(super) fn open(session: &Session<'a>, is_terminal: bool) -> Result<Self> {
        let database = Database::open(session.opening, false)?;
        let mut common = session.common.clone();
        common.use_keyspace(common.keyspace()?.to_owned());
        database.keyspace(common.keyspace()?)?;
        let begun_in = DEFAULT_KEYSPACE.to_owned();
        Ok(Local { database, opening: session.opening, common, is_terminal, begun_in, has_left: false })
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

    /// After a transaction that was not committed (shell_local.1).
    fn return_from_what_never_was(&mut self) -> Result<()> {
        if self.has_left || !self.database.has_keyspace(self.common.keyspace()?) {
            let is_there = self.database.has_keyspace(&self.begun_in);
            let name = if is_there { self.begun_in.clone() } else { DEFAULT_KEYSPACE.to_owned() };
            output::print_message(format_args!("working in the keyspace `{}` again", shown(&name)));
            self.common.use_keyspace(name);
        }
        Ok(())
    }
}

impl Subject for Local<'_> {
    fn prompt(&self) -> Result<String> {
        let transaction = if self.database.in_transaction() { " (transaction)" } else { "" };
        Ok(format!("{}{transaction}> ", shown(self.common.keyspace()?)))
    }

    fn names(&self) -> Names {
        let db = self.database.db.clone();
        Box::new(move || db.keyspaces().unwrap_or_default())
    }

    fn run(&mut self, line: Line) -> Result<Answer> {
        let common = line.common.within(&self.common);
        let session = &Session { common, opening: self.opening, shared: Some(&self.database) };
        if let Some(scan) = line.command.as_scan() {
            return scan::run(session, &scan);
        }
        match line.command {
            ShellCommand::Put(put) if put.value.is_none() => {
                return Err(Failure::message("put KEY VALUE: in the shell the value stands in the line"));
            }
            ShellCommand::Get(get) => return Ok(tell(self.is_terminal, get::run(session, &get)?)),
            ShellCommand::Put(put) => return put::run(session, &put),
            ShellCommand::Merge(merge) => return merge::run(session, &merge),
            ShellCommand::Del(del) => return Ok(tell(self.is_terminal, del::run(session, &del)?)),
            ShellCommand::Scan(scan) => return scan::run(session, &scan),
            ShellCommand::Versions(args) => {
                return Ok(tell(self.is_terminal, past::versions(session, &args)?));
            }
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

    fn end(self: Box<Self>) -> Result<bool> {
        let rolled_back = self.database.rollback();
        if rolled_back {
            tell_rolled_back();
        }
        self.database.close()?;
        Ok(rolled_back)
    }
}
