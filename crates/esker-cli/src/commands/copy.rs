//! `esker copy`: copies all data from one store to another.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use esker::Db;
use esker_kv::copy::{Copied, compare, copy};
use esker_kv::local::Local;
use esker_kv::{Kv, STORES, Space, Span, connect};
use esker_server::store::{OWNER_SPACE, commits_of, raise_commits};

use crate::Answer;
use crate::args::Opening;
use crate::database::{Database, env, when_free};
use crate::failure::{Failure, Result};
use crate::output::{self, plural, plural_as, size};
use crate::progress::{OpeningProgress, Progress};
use crate::text::shown;

pub(crate) const HELP: &str = "\
FROM and TO are directories of databases, or URLs of stores: postgres://user@host/database,
tikv://host:port, slatedb://bucket/path, esker://host:port/keyspace. Only what differs is written, so that a copy that was interrupted
goes on, and a second copy brings over what has changed. At the end both sides are compared.

Exit code 1: TO has keys or whole keyspaces that FROM has not, or was changed meanwhile.

Examples:
  esker copy data postgres://esker@db1/esker
  esker copy data tikv://pd1:2379 --keyspace users --keyspace orders
  esker copy postgres://esker@db1/esker data2 --remove";

/// The options of `esker copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Directory or URL to copy from
    from: String,
    /// Directory or URL to copy to
    to: String,
    /// Remove keys that only TO has, from the keyspaces that are copied
    #[arg(long)]
    remove: bool,
    /// Copy entries that expire as ones that do not: other stores keep no expiry
    #[arg(long)]
    drop_ttl: bool,
    /// Only compare
    #[arg(long, conflicts_with_all = ["remove", "drop_ttl"])]
    compare: bool,
}

/// The keyspace of a server's first numbered database.
const FIRST_DATABASE: &str = "r0";

/// One side of a copy.
struct Side {
    kv: Arc<dyn Kv>,
    /// The database, if it is one of Esker's.
    db: Option<Db>,
}

fn failed(which: &str) -> impl Fn(esker_kv::Error) -> Failure {
    move |error| Failure::message(format!("{}: {error}", shown(which)))
}

/// Returns whether this is a URL, not a directory.
fn is_url(name: &str) -> Result<bool> {
    let scheme = name.split_once(':').map_or("", |(scheme, _)| scheme);
    let is_known = scheme == "postgresql"
        || STORES.iter().any(|(url, ..)| url.split_once("://").is_some_and(|(known, _)| known == scheme));
    match name.contains("://") {
        false if is_known => Err(Failure::message(format!(
            "{scheme}: is followed by two slashes in a URL; a directory of this name is ./{}",
            shown(name)
        ))),
        is_url => Ok(is_url),
    }
}

/// Opens a side that is only read.
fn source(opening: &Opening, name: &str) -> Result<Side> {
    if is_url(name)? {
        return Ok(Side { kv: connect(name).map_err(|e| Failure::message(e.to_string()))?, db: None });
    }
    let database = Database::open_in_to_read(opening, PathBuf::from(name))?;
    let db = database.db.clone();
    Ok(Side { kv: Arc::new(Local::new(db.clone())), db: Some(db) })
}

fn target(opening: &Opening, name: &str) -> Result<Side> {
    if is_url(name)? {
        return Ok(Side { kv: connect(name).map_err(failed("TO"))?, db: None });
    }
    let (env, progress) = (env(opening)?, OpeningProgress::default());
    let opened = when_free(opening.wait, || {
        let progress = progress.clone();
        Db::builder().env(env.clone()).on_event(move |event| progress.note(event)).open(Path::new(name))
    });
    progress.finish();
    let db = opened.map_err(|error| Failure::Engine(PathBuf::from(name), error))?;
    Ok(Side { kv: Arc::new(Local::new(db.clone())), db: Some(db) })
}

pub(super) fn run(opening: &Opening, keyspaces: &[String], args: &CopyArgs) -> Result<Answer> {
    is_url(&args.to)?;
    let from = source(opening, &args.from)?;
    let names = names(&*from.kv, keyspaces)?;
    if !args.drop_ttl && !args.compare && from.db.as_ref().is_some_and(|db| db.stats().expiring > 0) {
        return Err(Failure::message(
            "entries of FROM expire, and a copy keeps no expiry: let them expire, copy a server's data with \
             `esker import --server`, or give --drop-ttl",
        ));
    }
    let to = if args.compare { source(opening, &args.to) } else { target(opening, &args.to) }?;
    let snapshot = from.kv.snapshot().map_err(failed("FROM"))?;
    if !args.compare && names.iter().any(|name| name == FIRST_DATABASE) {
        raise_versions(&from, &to)?;
    }
    let mut all = Differences::default();
    for name in &names {
        let space = from.kv.find_space(name).map_err(failed("FROM"))?;
        let Some(space) = space else { continue };
        let source = (&*snapshot as &dyn esker_kv::Reads, &space);
        all.add(if args.compare { compared(&to, source)? } else { one(&to, source, args)? });
    }
    if keyspaces.is_empty() {
        all.add(only_in(&*to.kv, &names)?);
    }
    if let Some(db) = to.db.filter(|_| !args.compare) {
        drop(to.kv);
        db.close().map_err(|error| Failure::Engine(PathBuf::from(&args.to), error))?;
    }
    Ok(all.report(args))
}

/// In what FROM and TO differ at the end.
#[derive(Clone, Copy, Default)]
struct Differences {
    /// Keys of FROM that TO lacks or has with another value.
    missing: u64,
    /// Keys that only TO has, in keyspaces that both have.
    extra: u64,
    /// Keys of keyspaces that only TO has.
    in_others: u64,
}

impl Differences {
    fn add(&mut self, more: Differences) {
        self.missing += more.missing;
        self.extra += more.extra;
        self.in_others += more.in_others;
    }

    fn report(&self, args: &CopyArgs) -> Answer {
        let remedies = if args.compare {
            ["copy them with `esker copy`", "`esker copy --remove` removes them", "see above"]
        } else {
            ["something else writes to TO: stop it and copy again", "--remove removes them", "they stay"]
        };
        let whats = ["differs in TO or is not there", "is only in TO", "is in keyspaces that only TO has"];
        for ((count, what), remedy) in
            [self.missing, self.extra, self.in_others].into_iter().zip(whats).zip(remedies)
        {
            if count > 0 {
                let what = if count == 1 { what.to_owned() } else { many(what) };
                output::print_message(format_args!("{} {what}: {remedy}", plural(count, "key")));
            }
        }
        if self.missing + self.extra + self.in_others > 0 { Answer::No } else { Answer::Yes }
    }
}

/// Turns what is said of one key into what is said of several.
fn many(what: &str) -> String {
    what.replace("differs", "differ").replace("is ", "are ")
}

/// Counts the keys of keyspaces that only TO has.
fn only_in(to: &dyn Kv, names: &[String]) -> Result<Differences> {
    let mut found = Differences::default();
    for name in to.spaces().map_err(failed("TO"))? {
        if name == OWNER_SPACE || names.contains(&name) {
            continue;
        }
        let Some(space) = to.find_space(&name).map_err(failed("TO"))? else { continue };
        let keys = to.count(&space, Span::ALL).map_err(failed("TO"))?;
        if keys > 0 {
            output::print_message(format_args!("{}: only in TO, {}", shown(&name), plural(keys, "key")));
        }
        found.in_others += keys;
    }
    Ok(found)
}

/// Copies a keyspace and compares it.
fn one(to: &Side, source: (&dyn esker_kv::Reads, &Space), args: &CopyArgs) -> Result<Differences> {
    let space = source.1;
    let target = to.kv.space(space.name()).map_err(failed("TO"))?;
    let progress = Progress::bytes(None);
    let mut tick = |copied: &Copied| progress.set(copied.bytes, || space.name().to_owned());
    let copied = copy(source, (&*to.kv, &target), args.remove, &mut tick).map_err(failed("copy"))?;
    progress.finish();
    let fixed = to.kv.snapshot().map_err(failed("TO"))?;
    let found = compare(source, (&*fixed, &target)).map_err(failed("compare"))?;
    let same = copied.entries - copied.written;
    output::print_message(format_args!(
        "{}: {}, {} ({} written, {same} were the same)",
        shown(space.name()),
        plural_as(copied.entries, "entry", "entries"),
        size(copied.bytes),
        copied.written
    ));
    Ok(Differences { missing: found.written, extra: found.extra, in_others: 0 })
}

/// Compares a keyspace. TO need not have it.
fn compared(to: &Side, source: (&dyn esker_kv::Reads, &Space)) -> Result<Differences> {
    let space = source.1;
    let found = match to.kv.find_space(space.name()).map_err(failed("TO"))? {
        Some(target) => {
            let fixed = to.kv.snapshot().map_err(failed("TO"))?;
            compare(source, (&*fixed, &target)).map_err(failed("compare"))?
        }
        None => {
            let keys = source.0.count(space, Span::ALL).map_err(failed("FROM"))?;
            Copied { entries: keys, written: keys, ..Copied::default() }
        }
    };
    output::print_message(format_args!(
        "{}: {} in FROM, {} missing or different in TO, {} only in TO",
        shown(space.name()),
        plural_as(found.entries, "entry", "entries"),
        found.written,
        found.extra
    ));
    Ok(Differences { missing: found.written, extra: found.extra, in_others: 0 })
}

/// Returns the keyspaces to copy.
fn names(kv: &dyn Kv, chosen: &[String]) -> Result<Vec<String>> {
    let mut names = kv.spaces().map_err(failed("FROM"))?;
    names.retain(|name| name != OWNER_SPACE);
    if names.is_empty() {
        return Err(Failure::message("FROM has no keyspaces: is its address right?"));
    }
    if let Some(missing) = chosen.iter().find(|name| !names.contains(name)) {
        return Err(Failure::message(format!("FROM has no keyspace `{}`", shown(missing))));
    }
    Ok(if chosen.is_empty() { names } else { chosen.to_vec() })
}

/// Makes sure that a server on TO gives its collections larger versions than those that are copied.
fn raise_versions(from: &Side, to: &Side) -> Result<()> {
    let needed = match &from.db {
        Some(db) => db.snapshot().seqno().get() + 1,
        None => commits_of(&*from.kv).map_err(failed("FROM"))?,
    };
    match &to.db {
        None => raise_commits(&*to.kv, needed).map_err(failed("TO")),
        Some(db) if db.snapshot().seqno().get() >= needed => Ok(()),
        Some(_) => Err(Failure::message(
            "FROM has the data of a server, with versions that are newer than TO: start servers on both, and copy with \
             `esker import --redis`",
        )),
    }
}
