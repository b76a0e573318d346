//! The keyspaces of a server.

use std::io::Write;

use super::{FIRST, Remote, number, unsupported};
use crate::Answer;
use crate::args::{Common, Keyspaces};
use crate::commands::keyspaces;
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::shown;

impl Remote {
    fn keys_in(&mut self, name: &str) -> Result<u64> {
        self.enter(name)?;
        number(self.ask(&["ES.COUNT"])?)
    }

    pub(super) fn keyspaces(&mut self, common: &Common, action: &Keyspaces) -> Result<Answer> {
        match action {
            Keyspaces::List => {
                let mut out = output::stdout();
                let names = self.connection.borrow_mut().keyspaces()?;
                for name in names {
                    let entries = self.keys_in(&name)?;
                    keyspaces::print(&mut out, common, &name, entries)?;
                }
                out.flush()?;
            }
            Keyspaces::Create { name } => {
                if self.connection.borrow_mut().keyspaces()?.contains(name) {
                    return Err(Failure::message(format!("the keyspace `{}` is there", shown(name))));
                }
                self.ask(&["ES.KS", "CREATE", name])?;
            }
            Keyspaces::Drop { name, yes } => {
                let keys = self.keys_in(name)?;
                if !yes && !keyspaces::is_sure("drop", name, keys) {
                    return Ok(Answer::No);
                }
                self.enter(FIRST)?;
                self.ask(&["ES.KS", "DROP", name])?;
                if self.common.keyspace()? == name {
                    self.common.use_keyspace(FIRST.to_owned());
                }
            }
            Keyspaces::Rename { from, to } => {
                self.enter(FIRST)?;
                self.ask(&["ES.KS", "RENAME", from, to])?;
                if self.common.keyspace()? == from {
                    self.common.use_keyspace(to.clone());
                }
            }
            Keyspaces::Clear { name, yes } => {
                let keys = self.keys_in(name)?;
                if !yes && !keyspaces::is_sure("clear", name, keys) {
                    return Ok(Answer::No);
                }
                self.ask(&["ES.DELRANGE", "", ""])?;
            }
            Keyspaces::Operator { name, operator: Some(operator) } => {
                self.ask(&["ES.KS", "OPERATOR", name, operator])?;
            }
            Keyspaces::Operator { .. } => return unsupported("printing a merge operator"),
            Keyspaces::History(_) => return unsupported("`keyspaces history`"),
            Keyspaces::Limit(_) => return unsupported("`keyspaces limit`"),
            Keyspaces::Copy { .. } => return unsupported("`keyspaces copy`"),
        }
        Ok(Answer::Yes)
    }
}
