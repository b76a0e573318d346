//! An open database.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker::{CheckReport, Error, SeqNo};
use napi::bindgen_prelude::{Env, JsValue, Object, ToNapiValue, Unknown};
use napi_derive::napi;

use crate::completion::{Completions, Loop, Outcome};
use crate::error::{Failure, caught};
use crate::feed::NativeFeed;
use crate::options::{NewKeyspace, OpenOptions, durability, isolation};
use crate::pool::WAITS;
use crate::registry::Opened;
use crate::shared::Shared;
use crate::transaction::NativeTxn;
use crate::txn::{State, Txn};
use crate::view::NativeView;

#[napi]
pub struct NativeDb {
    shared: Arc<Shared>,
}

/// No path: a database in memory.
fn open_with(done: Arc<Completions>, path: Option<&str>, options: &OpenOptions) -> Result<NativeDb, Failure> {
    Ok(NativeDb { shared: Shared::open(done, path, options)? })
}

/// Opens a database while JavaScript goes on.
#[napi(catch_unwind)]
pub fn open(calls: &Loop, number: u32, path: Option<String>, options: OpenOptions) {
    let done = calls.done.clone();
    WAITS.run(move || {
        done.finish(number, || {
            let db = open_with(done.clone(), path.as_deref(), &options)?;
            Ok(Outcome::made(|env| db.into_unknown(env)))
        });
    });
}

/// Opens a database.
#[napi(catch_unwind)]
pub fn open_sync(
    env: &Env,
    calls: &Loop,
    path: Option<String>,
    options: OpenOptions,
) -> napi::Result<NativeDb> {
    caught(|| open_with(calls.done.clone(), path.as_deref(), &options)).map_err(|why| why.thrown(env))
}

/// Removes the files of a database while JavaScript goes on.
#[napi(catch_unwind)]
pub fn destroy(calls: &Loop, number: u32, path: String) {
    let done = calls.done.clone();
    WAITS.run(move || {
        done.finish(number, || {
            esker::destroy(&path)?;
            Ok(Outcome::Nothing)
        });
    });
}

#[napi]
impl NativeDb {
    /// Runs a job that may take long.
    fn job(&self, number: u32, body: impl FnOnce(&Shared) -> crate::completion::Result + Send + 'static) {
        let shared = self.shared.clone();
        WAITS.run(move || {
            let done = shared.done.clone();
            done.finish(number, || body(&shared));
        });
    }

    #[napi(getter)]
    pub fn path(&self) -> String {
        self.shared.db.path().display().to_string()
    }

    /// Returns the keyspace of a name. A missing one is created here and now, unless that may never end.
    #[napi(catch_unwind)]
    pub fn keyspace(&self, env: &Env, name: String, create: bool) -> napi::Result<NativeView> {
        let open = || {
            let db = &self.shared.db;
            let found = match db.open_keyspace(&name) {
                Err(Error::KeyspaceNotFound(_)) if create => {
                    if self.shared.exclusive.load(Ordering::SeqCst) > 0 {
                        return Err(Failure::invalid(format!(
                            "keyspace {name:?} does not exist, and an exclusive transaction is open: \
                             create it before, by `await db.createKeyspace`"
                        )));
                    }
                    db.keyspace(&name)
                }
                found => found,
            };
            Ok(NativeView::new(self.shared.clone(), found?))
        };
        caught(open).map_err(|why| why.thrown(env))
    }

    #[napi(catch_unwind)]
    pub fn create(&self, number: u32, name: String, options: NewKeyspace) {
        self.job(number, move |shared| {
            shared.db.create_keyspace_with(&name, options.options()?)?;
            Ok(Outcome::Nothing)
        });
    }

    #[napi(catch_unwind)]
    pub fn drop_keyspace(&self, number: u32, name: String) {
        self.job(number, move |shared| {
            shared.db.drop_keyspace(&name)?;
            Ok(Outcome::Nothing)
        });
    }

    #[napi(catch_unwind)]
    pub fn rename(&self, number: u32, from: String, to: String) {
        self.job(number, move |shared| {
            shared.db.rename_keyspace(&from, &to)?;
            Ok(Outcome::Nothing)
        });
    }

    #[napi(catch_unwind)]
    pub fn names(&self, env: &Env) -> napi::Result<Vec<String>> {
        caught(|| Ok(self.shared.db.keyspaces()?)).map_err(|why| why.thrown(env))
    }

    #[napi(catch_unwind)]
    pub fn snapshot(&self) -> NativeTxn {
        let state = State::Snapshot(self.shared.db.snapshot());
        NativeTxn::new(self.shared.clone(), Txn::new(state, None))
    }

    #[napi(catch_unwind)]
    pub fn batch(&self) -> NativeTxn {
        let state = State::Batch(Box::new(self.shared.db.batch()));
        NativeTxn::new(self.shared.clone(), Txn::new(state, None))
    }

    /// Begins a transaction. An exclusive one waits for its turn.
    #[napi(catch_unwind)]
    pub fn begin(
        &self,
        env: &Env,
        number: u32,
        kind: Option<String>,
        lasting: Option<String>,
    ) -> napi::Result<Option<NativeTxn>> {
        let begin = || {
            let mut options = self.shared.db.transaction();
            let kind = kind.as_deref().map(isolation).transpose()?;
            if let Some(kind) = kind {
                options = options.isolation(kind);
            }
            if let Some(name) = &lasting {
                options = options.durability(durability(name)?);
            }
            NativeTxn::begin(&self.shared, number, options, kind)
        };
        caught(begin).map_err(|why| why.thrown(env))
    }

    #[napi(catch_unwind)]
    pub fn sync(&self, number: u32) {
        self.job(number, |shared| Ok(shared.db.sync().map(|()| Outcome::Nothing)?));
    }

    #[napi(catch_unwind)]
    pub fn flush(&self, number: u32) {
        self.job(number, |shared| Ok(shared.db.flush().map(|()| Outcome::Nothing)?));
    }

    #[napi(catch_unwind)]
    pub fn compact(&self, number: u32) {
        self.job(number, |shared| Ok(shared.db.compact().map(|()| Outcome::Nothing)?));
    }

    #[napi(catch_unwind)]
    pub fn check(&self, number: u32) {
        self.job(number, |shared| {
            let report = shared.db.check()?;
            match report.is_sound() {
                true => Ok(Outcome::made(|env| report_of(env, report))),
                false => Err(Failure::unsound(report.problems)),
            }
        });
    }

    #[napi(catch_unwind)]
    pub fn checkpoint(&self, number: u32, directory: String) {
        self.job(number, move |shared| {
            let made = shared.db.checkpoint(PathBuf::from(directory))?;
            Ok(Outcome::Number(made.seqno.get() as f64))
        });
    }

    #[napi(catch_unwind)]
    pub fn close(&self, number: u32) {
        self.job(number, |shared| {
            let opened = shared.opened.lock().take();
            opened.map_or(Ok(()), Opened::close)?;
            Ok(Outcome::Nothing)
        });
    }

    /// Returns the figures of the database by their names.
    #[napi(catch_unwind)]
    pub fn stats<'env>(&self, env: &'env Env) -> napi::Result<Object<'env>> {
        let mut stats = Object::new(env)?;
        let mut outcome = Ok(());
        self.shared.db.stats().each(|figure| {
            if let (Ok(()), Some(value)) = (&outcome, figure.value.number()) {
                outcome = stats.set(figure.name, value);
            }
        });
        outcome.map(|()| stats)
    }

    /// Says in a word whether all is well, and what is wrong.
    #[napi(catch_unwind)]
    pub fn health(&self) -> Vec<String> {
        use esker::Health;
        let (word, text) = match self.shared.db.health() {
            Health::Ok => ("ok", String::new()),
            Health::NoSpace(work) => ("no-space", work.error),
            Health::Retrying(work) => ("retrying", work.error),
            Health::Poisoned { cause } => ("poisoned", cause),
            Health::Closed => ("closed", String::new()),
            _ => ("other", String::new()),
        };
        vec![word.to_owned(), text]
    }

    /// Returns the number of the newest commit that readers see.
    #[napi(getter)]
    pub fn newest(&self) -> f64 {
        self.shared.db.snapshot().seqno().get() as f64
    }

    #[napi(catch_unwind)]
    pub fn feed(&self, env: &Env, after: f64) -> napi::Result<NativeFeed> {
        let open = || {
            let number = crate::options::whole(after, "after")?;
            let after =
                SeqNo::try_new(number).ok_or_else(|| Failure::invalid("there are no such commits"))?;
            Ok(NativeFeed::new(self.shared.clone(), self.shared.db.feed_after(after)?))
        };
        caught(open).map_err(|why| why.thrown(env))
    }
}

/// What a check has read, and harmless findings.
fn report_of(env: &Env, report: CheckReport) -> napi::Result<Unknown<'_>> {
    let mut all = Object::new(env)?;
    let counts = [
        ("tables", report.tables),
        ("blocks", report.blocks),
        ("entries", report.entries),
        ("bytes", report.bytes),
        ("logSegments", report.log_segments),
        ("commits", report.commits),
    ];
    for (name, count) in counts {
        all.set(name, count as f64)?;
    }
    all.set("notes", report.notes)?;
    Ok(all.to_unknown())
}
