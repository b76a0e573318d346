//! The table of commands, which drives dispatch, `COMMAND` and docs/commands.md.

use std::sync::LazyLock;

use super::{
    acl, bits, connection, dump, elections, expiry, geo, hash_fields, hashes, hyper_log_logs, inside, keys,
    latency, list_pops, lists, operations, ordered, pubsub, replication, rows, scan, scripts, server, sets,
    slots, sort, sorted_sets, stream_claims, stream_deletes, stream_groups, stream_info, streams,
    string_conditions, strings, transactions,
};
use crate::command::spec::{self, Spec, Specs};
#[cfg(test)]
use crate::resp::Request;
use crate::run::registry::Command;

static TABLES: &[&[Command]] = &[
    connection::TABLE,
    keys::TABLE,
    expiry::TABLE,
    scan::TABLE,
    sort::TABLE,
    dump::TABLE,
    strings::TABLE,
    string_conditions::TABLE,
    bits::TABLE,
    hyper_log_logs::TABLE,
    hashes::TABLE,
    hash_fields::TABLE,
    sets::TABLE,
    sorted_sets::TABLE,
    sorted_sets::RANGES,
    sorted_sets::COMBINE,
    sorted_sets::POPS,
    geo::TABLE,
    lists::TABLE,
    list_pops::TABLE,
    streams::TABLE,
    stream_groups::TABLE,
    stream_claims::TABLE,
    stream_deletes::TABLE,
    stream_info::TABLE,
    pubsub::TABLE,
    transactions::TABLE,
    scripts::TABLE,
    server::TABLE,
    replication::TABLE,
    elections::TABLE,
    slots::TABLE,
    inside::TABLE,
    acl::TABLE,
    latency::TABLE,
    ordered::TABLE,
    ordered::FEED,
    ordered::MESSAGES,
    ordered::SPACES,
    ordered::TRANSACTIONS,
    rows::TABLE,
    rows::SLICES,
    rows::TRANSACTIONS,
    operations::TABLE,
];

static SPECS: LazyLock<Vec<&'static Spec>> = LazyLock::new(|| commands().map(|command| &**command).collect());

/// Returns all commands.
pub fn commands() -> impl Iterator<Item = &'static Command> {
    TABLES.iter().copied().flatten()
}

/// Returns the specifications of all commands, in the same order.
pub fn specs() -> Specs {
    &SPECS
}

/// Generates docs/commands.md. A test compares the file with this text.
pub fn commands_document() -> String {
    spec::document(specs())
}

/// Returns the command of a request.
#[cfg(test)]
pub fn command_of(request: &Request) -> &'static Command {
    commands().find(|command| request.is(0, command.name)).unwrap()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::command::flag;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a document of the repository, no file of a database")]
    fn the_document_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
        let made = commands_document();
        if std::env::var_os("ESKER_WRITE_DOCS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == made,
            "regenerate docs/commands.md: ESKER_WRITE_DOCS=1 cargo test -p esker-server the_document"
        );
    }

    #[test]
    fn names_are_unique_and_lines_make_sense() {
        let mut names = HashSet::new();
        for command in commands() {
            assert!(names.insert(command.name), "{} twice", command.name);
            assert_eq!(command.name, command.name.to_lowercase());
            assert!(command.arity != 0 && command.summary.ends_with('.'), "{}", command.name);
            let is_both = flag::WRITE | flag::READ;
            assert!(command.flags & is_both != is_both, "{} reads or writes", command.name);
        }
    }

    #[test]
    fn keys_are_found_where_the_table_says() {
        let find = |text: &str| {
            let request = Request::of(text.split(' '));
            let keys = command_of(&request).keys_of(&request).into_iter();
            keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(find("mset a 1 b 2"), "a b");
        assert_eq!(find("msetex 2 a 1 b 2 ex 5"), "a b");
        assert_eq!(find("get a"), "a");
        assert_eq!(find("del a b c"), "a b c");
        assert_eq!(find("ping"), "");
        // Values of options are not keys, whatever their text is.
        assert_eq!(find("xreadgroup group streams c streams a >"), "a");
        assert_eq!(find("xreadgroup group g streams count 1 noack streams a b > >"), "a b");
        assert_eq!(find("xreadgroup group g c claim 5 streams a >"), "a");
        assert_eq!(find("xreadgroup group g c streams a b >"), "");
        assert_eq!(find("xread block 5 count 1 streams streams 0"), "streams");
        assert_eq!(find("xread x streams a 0"), "");
        assert_eq!(find("sort a by store get store limit 0 store"), "a");
        assert_eq!(find("sort a store b by store store c"), "a c");
        assert_eq!(find("sort a store b get store"), "a b");
        assert_eq!(find("georadius a 0 0 1 m count store store b"), "a b");
        assert_eq!(find("georadiusbymember a store 1 m storedist b"), "a b");
        assert_eq!(find("georadius a 0 0 1 m store b storedist c"), "a c");
    }

    #[test]
    fn uses_have_the_names_of_redis() {
        let show = |text: &str| {
            let request = Request::of(text.split(' '));
            let command = command_of(&request);
            let flags = command.key_uses(&request).into_iter();
            flags
                .map(|(key, used)| format!("{} {}", key.escape_ascii(), used.names().join(" ")))
                .collect::<Vec<_>>()
                .join(", ")
        };
        assert_eq!(show("get a"), "a RO access");
        assert_eq!(show("mset a 1 b 2"), "a OW update, b OW update");
        assert_eq!(show("set a 1"), "a OW update");
        assert_eq!(show("set a 1 ifeq 2"), "a RW access update");
        assert_eq!(show("delex a"), "a RM delete");
        assert_eq!(show("delex a ifeq 2"), "a RW access delete");
        assert_eq!(show("incr a"), "a RW access update");
        assert_eq!(show("hset a f v"), "a RW update");
        assert_eq!(show("lmove a b left right"), "a RW access delete, b RW insert");
        assert_eq!(show("sort a store b"), "a RO access, b OW update");
        assert_eq!(show("del a"), "a RM delete");
    }
}
