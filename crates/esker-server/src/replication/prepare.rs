//! Turns a received copy of a database into a replica.

use esker::Db;

use super::apply::text;
use super::ballot::Ballot;
use super::position::Position;
use super::records::{Records, Role};
use crate::config::source::Source;

/// Records in the copy that it is a replica, with the name and the ballot of the database that it replaces.
pub fn prepare(db: Db, source: &Source, name: Option<&str>, ballot: Ballot) -> Result<(), String> {
    let records = Records::open(&db).map_err(text)?;
    let history = records.history().map_err(text)?;
    let position = match records.role().map_err(text)? {
        Some(Role::Primary(base)) => {
            let seq = base.seq_of(db.snapshot().seqno().get());
            let seq = seq.ok_or("the copy's start position is after its end")?;
            Position { epoch: history.epoch_of(seq), seq }
        }
        Some(Role::Replica(_)) => records.position().map_err(text)?.ok_or("the copy has no position")?,
        _ => return Err("the copy was made while its server was becoming a primary".to_owned()),
    };
    records.begin_copy(source, position, name, ballot).map_err(text)?;
    drop(records);
    db.close().map_err(text)
}
