//! The shell on a server: sends the same commands as requests.
//!
//! ```text
//!   get, put, scan ... --ES.GET, ES.SET, ES.RANGE ...--> server
//!   use NAME --> ES.KS USE NAME, or SELECT N for rN
//! ```
//!
//! A line with `-k` works in that keyspace only; the next line works in the current one again.

mod keyspaces;

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use redis::{RedisError, Value};

use super::console::Names;
use super::line::{Line, ShellCommand};
use super::{Subject, tell, tell_rolled_back};
use crate::Answer;
use crate::args::{Common, Count, Del, Get, Keyspaces, Merge, Put, Scan};
use crate::bounds::Bounds;
use crate::commands::ttl::TtlArgs;
use crate::commands::{count, del, get, scan, ttl};
use crate::database::transaction::no_transaction;
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::shown;

/// Number of entries requested at a time.
const PAGE: usize = 256;
/// Name of the database in which connections start; the equivalent of `default` in a directory.
pub(crate) const FIRST: &str = "r0";
/// Prefix of a line of `ES.VERIFY` that reports no problem.
const PASSED_OVER: &str = "passed over: ";

/// A connection to a server.
struct Connection {
    inner: redis::Connection,
    address: String,
}

/// A server, and how commands work on it.
pub(super) struct Remote {
    connection: Rc<RefCell<Connection>>,
    /// Options that lines inherit; its keyspace is the current one.
    common: Common,
    /// The keyspace in which the server has the connection.
    server_keyspace: String,
    is_terminal: bool,
    in_transaction: bool,
}

impl Connection {
    fn open(address: &str, login: Option<(&str, &str)>) -> Result<Self> {
        let failed = |error: RedisError| Failure::message(format!("{}: {error}", shown(address)));
        let client = redis::Client::open(format!("redis://{address}/")).map_err(failed)?;
        let inner = client.get_connection().map_err(failed)?;
        let mut connection = Connection { inner, address: address.to_owned() };
        if let Some((user, password)) = login {
            connection.ask(&["AUTH", user, password])?;
        }
        Ok(connection)
    }

    /// Sends a request and returns the reply.
    fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value> {
        let mut request = redis::Cmd::new();
        for word in words {
            request.arg(word.as_ref());
        }
        request.query(&mut self.inner).map_err(|error| {
            Failure::message(match error.code() {
                Some(code) => format!("the server: {code} {}", shown(error.detail().unwrap_or_default())),
                None => format!("{}: {}", shown(&self.address), shown(&error)),
            })
        })
    }

    /// Returns the names of the keyspaces.
    fn keyspaces(&mut self) -> Result<Vec<String>> {
        let names = items(self.ask(&["ES.KS", "LIST"])?)?;
        Ok(names
            .into_iter()
            .filter_map(bytes)
            .map(|name| String::from_utf8_lossy(&name).into_owned())
            .collect())
    }
}

fn unexpected<T>() -> Result<T> {
    Err(Failure::message("unexpected reply: is this an Esker server?"))
}

fn items(reply: Value) -> Result<Vec<Value>> {
    match reply {
        Value::Array(items) => Ok(items),
        _ => unexpected(),
    }
}

fn number(reply: Value) -> Result<u64> {
    match reply {
        Value::Int(n) if n >= 0 => Ok(n as u64),
        _ => unexpected(),
    }
}

fn bytes(reply: Value) -> Option<Vec<u8>> {
    match reply {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

/// Returns the number of the database if `name` is that of a numbered one.
pub(crate) fn database(name: &str) -> Option<&str> {
    name.strip_prefix('r').filter(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Refuses a command that a server does not support.
fn unsupported<T>(what: &str) -> Result<T> {
    Err(Failure::message(format!("{what} works on a directory: stop the server, or copy its database")))
}

impl Remote {
    pub(super) fn connect(
        address: &str,
        login: Option<(&str, &str)>,
        common: &Common,
        is_terminal: bool,
    ) -> Result<Self> {
        let connection = Rc::new(RefCell::new(Connection::open(address, login)?));
        let mut common = common.clone();
        if !common.names_keyspace() {
            common.use_keyspace(FIRST.to_owned());
        }
        let name = common.keyspace()?.to_owned();
        let mut remote = Remote {
            connection,
            common,
            server_keyspace: FIRST.to_owned(),
            is_terminal,
            in_transaction: false,
        };
        remote.enter(&name)?;
        Ok(remote)
    }

    fn ask<W: AsRef<[u8]>>(&self, words: &[W]) -> Result<Value> {
        self.connection.borrow_mut().ask(words)
    }

    /// Makes the server work in this keyspace.
    fn enter(&mut self, name: &str) -> Result<()> {
        if self.server_keyspace == name {
            return Ok(());
        }
        match database(name) {
            Some(number) => {
                self.ask(&["SELECT", number])?;
                self.ask(&["ES.KS", "USE"])?;
            }
            None => drop(self.ask(&["ES.KS", "USE", name])?),
        }
        name.clone_into(&mut self.server_keyspace);
        Ok(())
    }

    fn get(&mut self, common: &Common, get: &Get) -> Result<Answer> {
        if get.at.is_some() {
            return unsupported("--at");
        }
        let key = common.decode(&get.key)?;
        let (mut answer, mut out) = (Answer::No, output::stdout());
        for name in common.keyspaces() {
            self.enter(name)?;
            let Some(value) = bytes(self.ask(&[&b"ES.GET"[..], &key])?) else { continue };
            answer = Answer::Yes;
            get::print(&mut out, common, get.number, name, &key, &value)?;
        }
        out.flush()?;
        Ok(tell(self.is_terminal, answer))
    }

    fn put(&mut self, common: &Common, put: &Put) -> Result<Answer> {
        let Some(value) = &put.value else {
            return Err(Failure::message("put KEY VALUE: the shell takes the value from the line"));
        };
        let (key, mut value) = (common.decode(&put.key)?, common.decode(value)?);
        if let Some(form) = put.number {
            value = form.encode(&value)?;
        }
        self.enter(common.keyspace()?)?;
        let Some(ttl) = put.ttl else {
            self.ask(&[&b"ES.SET"[..], &key, &value])?;
            return Ok(Answer::Yes);
        };
        if database(&self.server_keyspace).is_none() || self.in_transaction {
            return Err(Failure::message(
                "--ttl works in a database of the server (`use r0`), outside of transactions",
            ));
        }
        let ms = ttl.as_millis().max(1).to_string();
        self.ask(&[&b"SET"[..], &key, &value, b"PX", ms.as_bytes()])?;
        Ok(Answer::Yes)
    }

    fn ttl(&mut self, common: &Common, args: &TtlArgs) -> Result<Answer> {
        let key = common.decode(&args.key)?;
        let mut answer = Answer::No;
        for name in common.keyspaces() {
            self.enter(name)?;
            if database(&self.server_keyspace).is_none() || self.in_transaction {
                return Err(Failure::message(
                    "`ttl` works in a database of the server (`use r0`), outside of transactions",
                ));
            }
            let seconds = match self.ask(&[&b"PTTL"[..], &key])? {
                // -2: there is no such key. -1: it does not expire.
                Value::Int(-2) => continue,
                Value::Int(ms) => u64::try_from(ms).ok().map(|ms| ms as f64 / 1000.0),
                _ => return unexpected(),
            };
            answer = Answer::Yes;
            ttl::print(common, name, seconds)?;
        }
        Ok(tell(self.is_terminal, answer))
    }

    fn merge(&mut self, common: &Common, merge: &Merge) -> Result<Answer> {
        let (key, mut operand) = (common.decode(&merge.key)?, common.decode(&merge.operand)?);
        if let Some(form) = merge.number {
            operand = form.encode(&operand)?;
        }
        self.enter(common.keyspace()?)?;
        self.ask(&[&b"ES.MERGE"[..], &key, &operand])?;
        Ok(Answer::Yes)
    }

    fn del(&mut self, common: &Common, args: &Del) -> Result<Answer> {
        let mut words = vec![b"ES.DEL".to_vec()];
        for key in &args.keys {
            words.push(common.decode(key)?);
        }
        if args.keys.is_empty() {
            let Some((from, to)) = ends(&args.range.bounds(common)?) else { return del::answer(common, 0) };
            words = vec![b"ES.DELRANGE".to_vec(), from, to];
        }
        let mut removed = 0;
        for name in common.keyspaces() {
            self.enter(name)?;
            removed += number(self.ask(&words)?)?;
        }
        Ok(tell(self.is_terminal, del::answer(common, removed)?))
    }

    fn scan(&mut self, common: &Common, args: &Scan) -> Result<Answer> {
        if args.at.is_some() || args.since.is_some() {
            return unsupported("the past");
        }
        let bounds = args.range.bounds(common)?;
        let mut writer = scan::writer(common, args.keys_only)?;
        for name in common.keyspaces() {
            if common.has_several() {
                writer.begin_keyspace(name);
            }
            self.enter(name)?;
            let Some((mut from, mut to)) = ends(&bounds) else { break };
            let mut left = args.limit.unwrap_or(usize::MAX);
            let mut is_first = true;
            while left > 0 {
                let page = left.min(PAGE);
                let limit = page.to_string();
                let mut words = vec![&b"ES.RANGE"[..], &from, &to, b"LIMIT", limit.as_bytes()];
                words.extend(args.reverse.then_some(&b"REV"[..]));
                words.extend((!args.reverse && !is_first).then_some(&b"EXCL"[..]));
                words.extend(args.keys_only.then_some(&b"KEYS"[..]));
                let mut reply = items(self.ask(&words)?)?.into_iter();
                let (mut count, mut last) = (0, Vec::new());
                while let Some(key) = reply.next().and_then(bytes) {
                    // A key that is not a string has no value.
                    let value = if args.keys_only { None } else { reply.next().and_then(bytes) };
                    writer.write(&key, &value.unwrap_or_default())?;
                    (count, last) = (count + 1, key);
                }
                if count < page {
                    break;
                }
                left -= count;
                is_first = false;
                match args.reverse {
                    // The empty key is the first one, and an empty bound means no bound.
                    true if last.is_empty() => break,
                    true => to = last,
                    false => from = last,
                }
            }
        }
        writer.finish()?;
        Ok(Answer::Yes)
    }

    fn count(&mut self, common: &Common, args: &Count) -> Result<Answer> {
        let bounds = args.range.bounds(common)?;
        let mut out = output::stdout();
        for name in common.keyspaces() {
            self.enter(name)?;
            let entries = match ends(&bounds) {
                None => 0,
                Some(_) if bounds.is_all() => number(self.ask(&["ES.COUNT"])?)?,
                Some((from, to)) => number(self.ask(&[&b"ES.COUNT"[..], &from, &to])?)?,
            };
            count::print(&mut out, common, name, ("entries", entries))?;
        }
        out.flush()?;
        Ok(Answer::Yes)
    }

    /// Prints pairs of names and values.
    fn figures(&self, common: &Common, request: &str) -> Result<Answer> {
        let texts = items(self.ask(&[request])?)?.into_iter().filter_map(bytes);
        let texts: Vec<String> = texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect();
        let pairs: Vec<_> = texts.chunks_exact(2).map(|pair| (shown(&pair[0]), shown(&pair[1]))).collect();
        if common.json {
            let pairs = pairs.into_iter().map(|(name, value)| (name, output::json_figure(&value)));
            output::print_json(&serde_json::Value::Object(pairs.collect()))?;
            return Ok(Answer::Yes);
        }
        let mut out = output::stdout();
        output::write_pairs(&mut out, &pairs)?;
        out.flush()?;
        Ok(Answer::Yes)
    }

    fn check(&self, common: &Common) -> Result<Answer> {
        let report = items(self.ask(&["ES.VERIFY"])?)?.into_iter().filter_map(bytes);
        let report = report.map(|line| String::from_utf8_lossy(&line).into_owned());
        let (passed_over, problems): (Vec<_>, Vec<_>) =
            report.partition(|line| line.starts_with(PASSED_OVER));
        let answer = if problems.is_empty() { Answer::Yes } else { Answer::No };
        if common.json {
            let report = serde_json::json!({ "problems": problems, "passed_over": passed_over });
            return output::printed(answer, output::print_json(&report));
        }
        passed_over.iter().try_for_each(|line| output::print_line(shown(line)))?;
        if problems.is_empty() {
            return output::printed(answer, output::print_line("the database is sound"));
        }
        output::printed(answer, problems.iter().try_for_each(|problem| output::print_line(shown(problem))))
    }

    fn info(&self) -> Result<Answer> {
        let Some(text) = bytes(self.ask(&["INFO"])?) else { return unexpected() };
        let mut out = output::stdout();
        for line in String::from_utf8_lossy(&text).lines() {
            writeln!(out, "{}", shown(line))?;
        }
        out.flush()?;
        Ok(Answer::Yes)
    }

    fn begin(&mut self) -> Result<()> {
        if self.in_transaction {
            return Err(Failure::message("a transaction is open: `commit` or `rollback` ends it"));
        }
        self.ask(&["ES.BEGIN"])?;
        self.in_transaction = true;
        Ok(())
    }

    fn end_transaction(&mut self, how: &str) -> Result<()> {
        if !self.in_transaction {
            return Err(no_transaction());
        }
        // A failed commit ends the transaction, too.
        self.in_transaction = false;
        self.ask(&[how]).map(drop)
    }
}

/// Returns the start and end keys; an empty end means no bound. `None` if no key can lie between them.
fn ends(bounds: &Bounds) -> Option<(Vec<u8>, Vec<u8>)> {
    let end = |bound: std::ops::Bound<Vec<u8>>| match bound {
        std::ops::Bound::Included(key) | std::ops::Bound::Excluded(key) => key,
        std::ops::Bound::Unbounded => Vec::new(),
    };
    bounds.range().map(|(from, to)| (end(from), end(to)))
}

impl Subject for Remote {
    fn prompt(&self) -> Result<String> {
        let transaction = if self.in_transaction { " (transaction)" } else { "" };
        let address = shown(&self.connection.borrow().address);
        Ok(format!("{address} {}{transaction}> ", shown(self.common.keyspace()?)))
    }

    fn names(&self) -> Names {
        let connection = self.connection.clone();
        Box::new(move || connection.borrow_mut().keyspaces().unwrap_or_default())
    }

    fn run(&mut self, line: Line) -> Result<Answer> {
        let common = &line.common.within(&self.common);
        if let Some(scan) = line.command.as_scan() {
            return self.scan(common, &scan);
        }
        match &line.command {
            ShellCommand::Get(get) => return self.get(common, get),
            ShellCommand::Put(put) => return self.put(common, put),
            ShellCommand::Merge(merge) => return self.merge(common, merge),
            ShellCommand::Del(del) => return self.del(common, del),
            ShellCommand::Scan(scan) => return self.scan(common, scan),
            ShellCommand::Ttl(args) => return self.ttl(common, args),
            ShellCommand::Versions(_) => return unsupported("`versions`"),
            ShellCommand::Feed(_) => return unsupported("`feed`"),
            ShellCommand::Count(count) => return self.count(common, count),
            ShellCommand::Keyspaces { action } => {
                return self.keyspaces(common, action.as_ref().unwrap_or(&Keyspaces::List));
            }
            ShellCommand::Info => return self.info(),
            ShellCommand::Stats(_) => return self.figures(common, "ES.STATS"),
            ShellCommand::Compact => drop(self.ask(&["ES.COMPACT"])?),
            ShellCommand::Check => return self.check(common),
            ShellCommand::Begin => self.begin()?,
            ShellCommand::Commit => self.end_transaction("ES.COMMIT")?,
            ShellCommand::Savepoint { name } => {
                self.in_transaction.then_some(()).ok_or_else(no_transaction)?;
                self.ask(&["ES.SAVEPOINT", name])?;
            }
            ShellCommand::Rollback { savepoint: Some(name) } => {
                self.in_transaction.then_some(()).ok_or_else(no_transaction)?;
                self.ask(&["ES.ROLLBACK", "TO", name])?;
            }
            ShellCommand::Rollback { savepoint: None } => self.end_transaction("ES.ROLLBACK")?,
            ShellCommand::Use { name } => {
                self.enter(name)?;
                self.common.use_keyspace(name.clone());
            }
            ShellCommand::Exit | ShellCommand::Prefix { .. } | ShellCommand::First | ShellCommand::Last => {}
        }
        Ok(Answer::Yes)
    }

    fn end(self: Box<Self>) -> Result<bool> {
        if self.in_transaction {
            tell_rolled_back();
        }
        // The server rolls it back when the connection ends.
        Ok(self.in_transaction)
    }
}
