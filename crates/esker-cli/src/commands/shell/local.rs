//! The shell on a directory: runs the commands of the tool on one open database.
//!
//! The current keyspace always exists. When a rollback undoes its creation, or a drop or rename of the
//! previous one, the shell returns to the keyspace in which the transaction began, and says so.

use super::super::{
    check, compact, count, del, feed, get, info, keyspaces, merge, past, put, scan, stats, ttl,
};
use super::console::Names;
use super::line::{Line, ShellCommand};
use super::{Subject, tell, tell_rolled_back};
use crate::Answer;
use crate::args::{Check, Common, DEFAULT_KEYSPACE, Keyspaces, Opening};
use crate::database::transaction::no_transaction;
use crate::database::{Database, Session};
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::shown;

/// An open database and the state of the shell.
pub(super) struct Local<'a> {
    database: Database,
    opening: &'a Opening,
    /// Options that lines inherit; its keyspace is the current one.
    common: Common,
    /// Whether a user types the lines.
    is_terminal: bool,
    /// The current keyspace when the last transaction began.
    begun_in: String,
    /// Whether the shell has left a keyspace dropped or renamed since then.
    has_left: bool,
}

impl<'a> Local<'a> {
    /// Opens the database.
    pub(super) fn open(session: &Session<'a>, is_terminal: bool) -> Result<Self> {
        let database = Database::open_as_possible(session.opening)?;
        let mut common = session.common.clone();
        common.use_keyspace(common.keyspace()?.to_owned());
        database.keyspace(common.keyspace()?)?;
        let begun_in = DEFAULT_KEYSPACE.to_owned();
        Ok(Local { database, opening: session.opening, common, is_terminal, begun_in, has_left: false })
    }

    /// Selects another keyspace after the current one was renamed or dropped.
    fn leave_removed_keyspace(&mut self, action: &Keyspaces) -> Result<()> {
        if !self.database.has_keyspace(self.common.keyspace()?) {
            self.common.use_keyspace(match action {
                Keyspaces::Rename { to, .. } => to.clone(),
                _ => DEFAULT_KEYSPACE.to_owned(),
            });
            self.has_left = true;
        }
        Ok(())
    }

    /// Returns to the keyspace in which a rolled back transaction began, if it changed or removed the current
    /// one.
    fn return_after_rollback(&mut self) -> Result<()> {
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
        self.database.catch_up()?;
        let common = line.common.within(&self.common);
        let session = &Session { common, opening: self.opening, shared: Some(&self.database) };
        if let Some(scan) = line.command.as_scan() {
            return scan::run(session, &scan);
        }
        match line.command {
            ShellCommand::Put(put) if put.value.is_none() => {
                return Err(Failure::message("put KEY VALUE: the shell takes the value from the line"));
            }
            ShellCommand::Get(get) => return Ok(tell(self.is_terminal, get::run(session, &get)?)),
            ShellCommand::Put(put) => return put::run(session, &put),
            ShellCommand::Merge(merge) => return merge::run(session, &merge),
            ShellCommand::Del(del) => return Ok(tell(self.is_terminal, del::run(session, &del)?)),
            ShellCommand::Scan(scan) => return scan::run(session, &scan),
            ShellCommand::Versions(args) => {
                return Ok(tell(self.is_terminal, past::versions(session, &args)?));
            }
            ShellCommand::Ttl(args) => return Ok(tell(self.is_terminal, ttl::run(session, &args)?)),
            ShellCommand::Count(count) => return count::run(session, &count),
            ShellCommand::Feed(args) => return feed::run(session, &args),
            ShellCommand::Keyspaces { action } => {
                let action = action.unwrap_or(Keyspaces::List);
                let answer = keyspaces::run(session, &action)?;
                self.leave_removed_keyspace(&action)?;
                return Ok(answer);
            }
            ShellCommand::Info => return info::run(session),
            ShellCommand::Stats(args) => return stats::run(session, &args),
            ShellCommand::Compact => return compact::all(session),
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
                    self.return_after_rollback()?;
                }
                committed?;
            }
            ShellCommand::Savepoint { name } => self.database.set_savepoint(&name)?,
            ShellCommand::Rollback { savepoint: Some(name) } => {
                self.database.rollback_to(&name)?;
                if !self.database.has_keyspace(self.common.keyspace()?) {
                    self.return_after_rollback()?;
                }
            }
            ShellCommand::Rollback { savepoint: None } => {
                if !self.database.rollback() {
                    return Err(no_transaction());
                }
                self.return_after_rollback()?;
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
