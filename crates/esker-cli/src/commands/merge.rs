//! `esker merge` and `esker keyspaces operator`: values built by a merge operator.

use crate::Answer;
use crate::args::Merge;
use crate::database::{Database, Session};
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::shown;

pub(super) fn run(session: &Session<'_>, merge: &Merge) -> Result<Answer> {
    let name = session.common.keyspace()?;
    let key = session.common.decode(&merge.key)?;
    let operand = session.common.decode(&merge.operand)?;
    let operand = match merge.number {
        Some(form) => form.encode(&operand)?,
        None => operand,
    };
    let database = session.open()?;
    let keyspace = database.keyspace(name)?;
    if keyspace.merge_operator().is_none() {
        return Err(Failure::message(format!(
            "the keyspace `{}` has no merge operator: set one with `esker keyspaces operator {} NAME`",
            shown(name),
            shown(name)
        )));
    }
    database.write(|writes| writes.merge(&keyspace, &key, &operand))?;
    database.close()?;
    Ok(Answer::Yes)
}

/// Prints or sets the merge operator of a keyspace.
pub(super) fn operator(
    session: &Session<'_>,
    database: &Database,
    name: &str,
    operator: Option<&str>,
) -> Result<()> {
    let keyspace = database.keyspace(name)?;
    if let Some(operator) = operator {
        if database.in_transaction() {
            let text = "a transaction cannot set a merge operator: `commit` or `rollback` first";
            return Err(Failure::message(text));
        }
        return keyspace.set_merge_operator(operator).map_err(|error| database.failure(error));
    }
    let operator = keyspace.merge_operator();
    match session.common.json {
        true => output::print_json(&serde_json::json!({ "keyspace": name, "operator": operator })),
        false => output::print_line(
            operator.as_deref().map_or_else(|| "none".to_owned(), |name| shown(name).to_string()),
        ),
    }
}
