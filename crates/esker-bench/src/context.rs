//! Where, when and how results came about: the contents of run.json.
//!
//! ```text
//! machine.rs, the command line, the adapters -> Context -> run.json -> report/runs.rs
//!                           run.json of earlier calls --'  (--resume)
//! ```
//!
//! - `--resume` adds its call to the earlier ones: options, dates and commands of all calls stay. It is
//!   refused on another machine.
//! - A command has no path of the machine.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::scale::Scale;
use crate::suites::Suite;
use esker_bench_api::results::Record;
use esker_bench_api::{Engine, Failure, Feature, Result};

/// Where, when and how the results of a run came about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Context {
    pub(crate) machine: Machine,
    /// State in which the engines found the device.
    #[serde(default = "not_trimmed")]
    pub(crate) device: String,
    /// Commit of this repository, with `-dirty` if files differ from it.
    pub(crate) commit: String,
    /// The first call.
    #[serde(flatten)]
    pub(crate) first: Call,
    /// The calls with `--resume`, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) resumed: Vec<Call>,
    pub(crate) engines: Vec<EngineContext>,
    /// The suites that ran; empty in results from before this was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) workloads: Vec<Workload>,
    /// Whether all turns ended. The records then leave out rows that an engine does not support.
    #[serde(default)]
    pub(crate) is_finished: bool,
    /// The suites of the records beside run.json; empty until they are noted.
    #[serde(skip)]
    pub(crate) suites: Vec<String>,
}

/// A suite at one scale, with everything needed to repeat the work elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Workload {
    pub(crate) suite: String,
    pub(crate) scale: String,
    /// What is made, and the generator with its seed and parameters.
    pub(crate) streams: Vec<[String; 2]>,
    /// Name and work of each row, with its counts.
    pub(crate) rows: Vec<[String; 2]>,
}

impl Workload {
    pub(crate) fn of(suite: &Suite, scale: Scale) -> Self {
        let streams = (suite.streams)().into_iter();
        Self {
            suite: suite.name.to_owned(),
            scale: scale.name().to_owned(),
            streams: streams.map(|stream| [stream.what.to_owned(), stream.generator]).collect(),
            rows: suite.rows(scale).into_iter().map(|row| [row.name, row.work]).collect(),
        }
    }
}

/// One call of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Seconds since 1970, UTC.
    pub(crate) started_unix_s: u64,
    /// The command, without paths.
    pub(crate) command: String,
}

/// [`Context::device`] of a run with `--trim`.
const TRIMMED: &str = "trimmed before each turn";
/// [`Context::device`] of a run without `--trim`.
const NOT_TRIMMED: &str = "as earlier runs left it, not trimmed";

/// Default for results from before `--trim` existed.
fn not_trimmed() -> String {
    NOT_TRIMMED.to_owned()
}

/// Returns [`Context::device`] of a run with or without `--trim`.
pub(crate) fn device(trim: bool) -> String {
    if trim { TRIMMED } else { NOT_TRIMMED }.to_owned()
}

impl Context {
    /// Notes which suites the run and each engine have, from the records.
    pub(crate) fn note_suites(&mut self, records: &[Record]) {
        let suites_of = |engine: Option<&str>| {
            let mut suites: Vec<String> = Vec::new();
            for record in records.iter().filter(|record| engine.is_none_or(|name| record.engine == name)) {
                if !suites.contains(&record.suite) {
                    suites.push(record.suite.clone());
                }
            }
            suites
        };
        self.suites = suites_of(None);
        for engine in &mut self.engines {
            engine.suites = suites_of(Some(&engine.name));
        }
    }

    /// Returns all calls, the first one first.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &Call> {
        std::iter::once(&self.first).chain(&self.resumed)
    }

    /// Adds a call that resumes the earlier ones.
    pub(crate) fn resumed_by(mut self, call: Self) -> Result<Self> {
        if !self.machine.may_be(&call.machine) {
            if self.machine.may_be_with_another_disk(&call.machine) {
                return Err(Failure::Engine(format!(
                    "the results to resume are of another disk or another setting of it ({}), this is {}; nothing else of the machine differs",
                    self.machine.disk, call.machine.disk
                )));
            }
            return Err(Failure::Engine(format!(
                "the results to resume are of another machine ({}), this is {}",
                self.machine.line(),
                call.machine.line()
            )));
        }
        // The new description may contain more about the machine.
        self.machine = call.machine;
        if !self.device.split(", or ").any(|known| known == call.device) {
            self.device += &format!(", or {}", call.device);
        }
        add_engines(&mut self.engines, call.engines);
        let new = call.workloads.into_iter().filter(|workload| !self.workloads.contains(workload));
        let new: Vec<Workload> = new.collect();
        self.workloads.extend(new);
        self.resumed.push(call.first);
        self.resumed.extend(call.resumed);
        Ok(self)
    }
}

/// An engine with the options of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EngineContext {
    pub(crate) name: String,
    pub(crate) version: String,
    /// What its transactions guarantee.
    pub(crate) isolation: String,
    /// What its async commits have done when they return; `None` in results from before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) async_commits: Option<AsyncContext>,
    /// Option, value, reason and pointer.
    pub(crate) options: Vec<[String; 4]>,
    /// The suites that it ran with these options, from the records beside run.json; empty until they are
    /// noted.
    #[serde(skip)]
    pub(crate) suites: Vec<String>,
}

/// Description of an engine's async commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AsyncContext {
    /// A name of [`Reached`](esker_bench_api::Reached), or [`NO_ASYNC_COMMITS`].
    pub(crate) reached: String,
    /// What happens then without a call, or why the engine lacks the mode.
    pub(crate) then: String,
    pub(crate) pointer: String,
}

/// [`AsyncContext::reached`] of an engine without such a mode.
pub(crate) const NO_ASYNC_COMMITS: &str = "no such mode";

impl AsyncContext {
    pub(crate) fn of(engine: &dyn Engine) -> Self {
        let (reached, then, pointer) = match engine.async_commits() {
            Some(said) => (said.reached.name(), said.then, said.pointer),
            None => (NO_ASYNC_COMMITS, engine.cannot(Feature::AsyncCommits).unwrap_or_default(), ""),
        };
        let [reached, then, pointer] = [reached, then, pointer].map(str::to_owned);
        Self { reached, then, pointer }
    }
}

impl EngineContext {
    /// Returns whether both are one engine with the same guarantees and the same values of its options,
    /// whatever the reasons. Unknown async commits count as equal.
    fn ran_like(&self, other: &Self) -> bool {
        let reached = |engine: &Self| engine.async_commits.as_ref().map(|said| said.reached.clone());
        let values = |engine: &Self| -> Vec<[String; 2]> {
            engine.options.iter().map(|[option, value, ..]| [option.clone(), value.clone()]).collect()
        };
        self.name == other.name
            && self.version == other.version
            && self.isolation == other.isolation
            && values(self) == values(other)
            && reached(self).zip(reached(other)).is_none_or(|(one, two)| one == two)
    }
}

/// Adds engines of another call or run. Each engine has one entry for each set of options.
pub(crate) fn add_engines(all: &mut Vec<EngineContext>, more: Vec<EngineContext>) {
    for engine in more {
        match all.iter_mut().find(|known| known.ran_like(&engine)) {
            Some(known) => {
                let new = engine.suites.iter().filter(|suite| !known.suites.contains(suite)).cloned();
                let new: Vec<String> = new.collect();
                known.suites.extend(new);
                known.async_commits = known.async_commits.take().or(engine.async_commits);
            }
            None => all.push(engine),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::report::summary::tests::record;
    use crate::suites;
    use esker_bench_api::Isolation;

    /// A run on this machine, of suite `redb` unless other suites are noted.
    pub(crate) fn context(command: &str, engines: Vec<EngineContext>) -> Context {
        Context {
            machine: Machine::describe(&std::env::temp_dir()),
            device: device(false),
            commit: "abc".to_owned(),
            first: Call { started_unix_s: 1_795_360_870, command: command.to_owned() },
            resumed: Vec::new(),
            engines,
            workloads: Vec::new(),
            is_finished: false,
            suites: vec!["redb".to_owned()],
        }
    }

    /// An engine without options, of which no suite is noted.
    pub(crate) fn of_class(name: &str, isolation: Isolation) -> EngineContext {
        EngineContext {
            name: name.to_owned(),
            version: "1.0".to_owned(),
            isolation: isolation.name().to_owned(),
            async_commits: None,
            options: Vec::new(),
            suites: Vec::new(),
        }
    }

    fn engine(name: &str, cache: &str) -> EngineContext {
        let options = vec![["cache", cache, "its default", ""].map(str::to_owned)];
        EngineContext { options, ..of_class(name, Isolation::Snapshot) }
    }

    #[test]
    fn calls_that_resume_keep_what_was_there() {
        let first = context("lab run redb", vec![engine("esker", "1 GiB")]);
        let text = serde_json::to_string(&first).unwrap();
        assert!(text.contains("\"started_unix_s\":1795360870") && !text.contains("resumed"), "{text}");
        assert!(!text.contains("workloads"), "as it was before they were noted: {text}");
        let mut read: Context = serde_json::from_str(&text).unwrap();
        read.workloads = vec![Workload::of(suites::find("redb").unwrap(), Scale::Test)];
        let mut second =
            context("lab run redb --resume", vec![engine("esker", "1 GiB"), engine("lmdb", "-")]);
        second.device = device(true);
        second.first.started_unix_s += 1;
        let workload = |name: &str| Workload::of(suites::find(name).unwrap(), Scale::Test);
        second.workloads = vec![workload("redb"), workload("int")];
        let both = read.resumed_by(second).unwrap();
        let both: Context = serde_json::from_str(&serde_json::to_string(&both).unwrap()).unwrap();
        assert_eq!(both.workloads, [workload("redb"), workload("int")], "each once");
        assert_eq!(both.workloads[0].streams[0], ["items", "items::Items, seed 3"]);
        assert!(both.workloads[0].rows[0][1].contains("2000 items"), "{:?}", both.workloads[0].rows[0]);
        let calls: Vec<_> = both.calls().map(|call| (call.started_unix_s, call.command.as_str())).collect();
        assert_eq!(calls, [(1_795_360_870, "lab run redb"), (1_795_360_871, "lab run redb --resume")]);
        let engines: Vec<&str> = both.engines.iter().map(|engine| engine.name.as_str()).collect();
        assert_eq!((engines, both.device), (vec!["esker", "lmdb"], format!("{NOT_TRIMMED}, or {TRIMMED}")));
        let mut read_ahead = context("lab run redb --resume", Vec::new());
        let mut there = first.clone();
        "ext4 on vda, read-ahead 8192 KiB".clone_into(&mut there.machine.disk);
        "ext4 on vda, read-ahead 128 KiB".clone_into(&mut read_ahead.machine.disk);
        let refused = there.resumed_by(read_ahead).unwrap_err().to_string();
        assert!(!refused.contains("another machine") && refused.contains("nothing else"), "{refused}");
        assert!(refused.contains("read-ahead 8192 KiB") && refused.contains("128 KiB"), "{refused}");
        let mut elsewhere = context("lab run redb --resume", Vec::new());
        elsewhere.machine.cpu = "another".to_owned();
        assert!(first.resumed_by(elsewhere).unwrap_err().to_string().contains("of another machine"));
    }

    #[test]
    fn what_is_noted_of_async_commits_is_kept_and_tells_engines_apart() {
        let said = |reached: &str| AsyncContext {
            reached: reached.to_owned(),
            then: "synced".to_owned(),
            pointer: String::new(),
        };
        let of = |async_commits| EngineContext { async_commits, ..engine("esker", "1 GiB") };
        let old = serde_json::to_string(&of(None)).unwrap();
        assert!(!old.contains("async_commits"), "as it was before it was noted: {old}");
        let mut all = vec![serde_json::from_str(&old).unwrap()];
        add_engines(&mut all, vec![of(Some(said("here")))]);
        add_engines(&mut all, vec![of(None), of(Some(said("there")))]);
        let kept: Vec<_> = all.into_iter().map(|engine| engine.async_commits).collect();
        assert_eq!(kept, [Some(said("here")), Some(said("there"))]);
    }

    #[test]
    fn an_engine_that_ran_with_other_options_stands_twice() {
        let mut all = Vec::new();
        for (suite, cache, isolation, reason) in [
            ("int", "1 GiB", "snapshot isolation", "its default"),
            ("large", "2 GiB", "snapshot isolation", "its default"),
            ("redb", "1 GiB", "snapshot isolation", "in other words"),
            ("open", "1 GiB", "atomic batches", "its default"),
            ("int", "1 GiB", "snapshot isolation", "its default"),
        ] {
            let options = vec![["cache", cache, reason, ""].map(str::to_owned)];
            let engine = EngineContext { isolation: isolation.to_owned(), options, ..engine("esker", "") };
            let mut run = context("", vec![engine]);
            run.note_suites(&[Record { suite: suite.to_owned(), ..record("esker", "load", 1, Some(1.0)) }]);
            assert_eq!(run.suites, [suite]);
            add_engines(&mut all, run.engines);
        }
        let sets = all.iter().map(|engine| (engine.options[0][1].as_str(), engine.suites.join(", ")));
        let expected = [("1 GiB", "int, redb"), ("2 GiB", "large"), ("1 GiB", "open")];
        assert_eq!(sets.collect::<Vec<_>>(), expected.map(|(cache, suites)| (cache, suites.to_owned())));
    }
}
