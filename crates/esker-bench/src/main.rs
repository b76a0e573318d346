//! The lab: measures Esker beside other embedded key-value engines.
//!
//! ```text
//! cli -> runner --spawns--> child -> suites/NAME --drives--> engines/NAME   (traits: esker_bench_api)
//!          |                  '-- recorder, measure: a row's time, memory, bytes
//!          '-- results.jsonl -> report/: terminal table, report.html
//! ```
//!
//! Read in this order: engine and store of esker_bench_api, suites/redb, engines/lmdb, recorder, measure,
//! runner, report/summary. docs/benchmarking.md has the rules of fairness and explains how to add an engine
//! or a suite.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the lab is a program around the engine and measures the real machine: it needs no replaceable Env"
)]

mod async_commits;
mod child;
mod cli;
mod compare;
mod context;
mod engines;
#[cfg(test)]
mod gate;
mod limit;
mod load;
mod machine;
mod measure;
mod parent;
mod progress;
mod published;
mod recorder;
mod report;
mod row;
mod runner;
mod scale;
mod step_progress;
mod suites;
mod syncs;
mod track;

use std::fs::{self, File};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::cli::{ChildArguments, Cli, Command, FIRST_LOOK, RunArguments};
use crate::context::{AsyncContext, Call, Context, EngineContext, Workload};
use crate::machine::Machine;
use crate::report::runs::Runs;
use crate::report::summary::{Summary, is_lacking};
use crate::scale::Scale;
use crate::suites::{SUITES, Suite};
use esker_bench_api::results::Record;
use esker_bench_api::{Engine, Failure, Feature, Result};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        None => Cli::try_parse_from(FIRST_LOOK).map_err(Failure::engine).and_then(|cli| match cli.command {
            Some(Command::Run(arguments)) => run(&arguments),
            _ => Err(Failure::engine("`run` did not parse as itself")),
        }),
        Some(Command::List) => list(),
        Some(Command::Run(arguments)) => run(&arguments),
        Some(Command::SeedTables { results }) => seed_tables(&results),
        Some(Command::Child(arguments)) => run_child(&arguments),
        Some(Command::Report { files, out }) => report_of(&files, &out),
        Some(Command::Picture { results, out }) => picture(&results, &out),
        Some(Command::Compare { before, after }) => compare(&before, &after),
        Some(Command::Load(arguments)) => {
            find_engine(&arguments.engine).and_then(|engine| load::command::load(engine, &arguments))
        }
        Some(Command::Read(arguments)) => load::read::read(&arguments),
        Some(Command::Makedata(arguments)) => load::command::makedata(&arguments),
        Some(Command::AsyncCommits { engines, dir }) => check_async_commits(&engines, &dir),
        Some(Command::AsyncWriter { engine, commits, dir }) => {
            find_engine(&engine).and_then(|engine| async_commits::write(engine, &dir, commits))
        }
        Some(Command::AsyncSurvivors { engine, commits, dir }) => find_engine(&engine)
            .and_then(|engine| async_commits::survivors(engine, &dir, commits))
            .and_then(|there| show(&format!("{there}\n"))),
        Some(Command::OpenWriter { engine, count, end, dir }) => {
            find_engine(&engine).and_then(|engine| suites::open::write(engine, &dir, count, end))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("esker-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn find_suite(name: &str) -> Result<&'static Suite> {
    let names = || SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ");
    suites::find(name).ok_or_else(|| Failure::Engine(format!("no suite {name}; there are: {}", names())))
}

fn find_engine(name: &str) -> Result<&'static dyn Engine> {
    let names = || engines::shown().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
    engines::find(name).ok_or_else(|| Failure::Engine(format!("no engine {name}; there are: {}", names())))
}

/// Returns the engines with these names, or without names those that run by default.
fn chosen(names: &[String]) -> Result<Vec<&'static dyn Engine>> {
    if names.is_empty() {
        return Ok(engines::default().collect());
    }
    names.iter().map(|name| find_engine(name)).collect()
}

fn check_async_commits(names: &[String], dir: &Path) -> Result<()> {
    let mut against = Vec::new();
    for engine in chosen(names)? {
        let found = async_commits::check(engine, dir)?;
        show(&format!("{}\n", found.line(engine.name())))?;
        if !found.is_sound() {
            against.push(engine.name());
        }
    }
    if against.is_empty() {
        return Ok(());
    }
    Err(Failure::Wrong(format!("async commits are not what their adapters say: {}", against.join(", "))))
}

fn list() -> Result<()> {
    let mut text = String::from("Suites and their rows (counts of scale quick)\n");
    for suite in SUITES {
        text += &format!("\n  {}: {}\n", suite.name, suite.summary);
        for row in suite.rows(Scale::Quick) {
            text += &format!("    {:<26} {}\n", row.name, row.work);
        }
    }
    text += "\nEngines and their options\n";
    for engine in engines::shown() {
        text += &format!("\n  {} {}\n", engine.name(), engine.version());
        if let Some(said) = engine.async_commits() {
            let (reached, then, pointer) = (said.reached.name(), said.then, said.pointer);
            text += &format!("    an async commit is, when it returns: {reached} - {then} [{pointer}]\n");
        }
        for feature in Feature::ALL {
            if let Some(why) = engine.cannot(feature) {
                text += &format!("    cannot: {} - {why}\n", feature.name());
            }
        }
        for option in engine.options() {
            let pointer =
                if option.pointer.is_empty() { String::new() } else { format!(" [{}]", option.pointer) };
            text += &format!("    {}: {} - {}{pointer}\n", option.option, option.value, option.reason);
        }
    }
    let scales: Vec<&str> = Scale::SHOWN.iter().map(|scale| scale.name()).collect();
    text += &format!("\nScales: {}\n", scales.join(", "));
    show(&text)
}

/// Prints `text`. If the reader is gone (`| head`), the rest is dropped.
fn show(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Failure::engine),
    }
}

fn run_child(arguments: &ChildArguments) -> Result<()> {
    let suite = find_suite(&arguments.suite)?;
    let own = suite.own_engine.filter(|engine| engine.name() == arguments.engine);
    let job = child::Job {
        suite,
        engine: own.map_or_else(|| find_engine(&arguments.engine), Ok)?,
        scale: arguments.scale,
        run: arguments.run,
        group: arguments.group,
        commit: &arguments.commit,
        memory_limit: &arguments.memory_limit,
    };
    child::run(&job, &arguments.dir, arguments.traced)
}

/// Returns the requested groups, counted from 0. Each suite must have all of them.
fn parts(arguments: &RunArguments, suites: &[&'static Suite]) -> Result<Vec<usize>> {
    for suite in suites {
        let parts = suite.groups(arguments.scale);
        if let Some(wrong) = arguments.parts.iter().find(|part| !(1..=parts).contains(part)) {
            let (suite, scale) = (suite.name, arguments.scale.name());
            let text =
                format!("suite {suite} has no part {wrong}: at scale {scale} it has {parts}, from 1 on");
            return Err(Failure::Engine(text));
        }
    }
    Ok(arguments.parts.iter().map(|part| part - 1).collect())
}

fn run(arguments: &RunArguments) -> Result<()> {
    let all = arguments.suites.iter().any(|name| name == "all");
    let suites = if all {
        SUITES.to_vec()
    } else {
        arguments.suites.iter().map(|name| find_suite(name)).collect::<Result<Vec<_>, _>>()?
    };
    let parts = parts(arguments, &suites)?;
    let chosen = chosen(&arguments.engines)?;
    if cfg!(debug_assertions) && arguments.scale != Scale::Test {
        eprintln!("esker-bench: this is not a release build, its figures mean nothing");
    }
    let dir = arguments.dir.as_ref().unwrap_or(&arguments.out);
    for directory in [dir, &arguments.out] {
        fs::create_dir_all(directory)
            .map_err(|error| Failure::Engine(format!("{}: {error}", directory.display())))?;
    }
    if let Some(warning) = machine::judge_read_ahead(dir, arguments.scale, arguments.any_read_ahead)? {
        eprintln!("esker-bench: {warning}");
    }
    let results = arguments.out.join("results.jsonl");
    let mut records = if arguments.resume { read_results(&results)? } else { Vec::new() };
    let mut context = context(&chosen, dir, arguments.trim);
    context.workloads = suites.iter().map(|suite| Workload::of(suite, arguments.scale)).collect();
    context = resumed(context, &records, &arguments.out)?;
    let plans = plans(arguments, &suites, &chosen, &parts, &context, &mut records);
    context.is_finished = false;
    write_context(&arguments.out, &context)?;
    limit::remove_stale();
    if arguments.retry_failed && results.exists() {
        // Keeps the records of groups that run again, in case of an interruption.
        fs::copy(&results, results.with_extension("jsonl.before"))?;
    }
    // Only complete groups of the earlier run are left.
    let mut file = start_results(&results, &records)?;
    let mut kept = records;
    let mut keep = |record: &Record| {
        write_line(&mut file, record)?;
        kept.push(record.clone());
        Ok::<(), Failure>(())
    };
    plans.iter().try_for_each(|plan| runner::run(plan, &mut keep))?;
    if !plans.iter().any(runner::Plan::is_over) {
        kept.retain(|record| !record.error.as_deref().is_some_and(is_lacking));
        start_results(&results, &kept)?;
        context.is_finished = true;
        write_context(&arguments.out, &context)?;
    }
    context.note_suites(&kept);
    report(&arguments.out, &kept, &Runs::new(vec![context]))
}

fn write_context(out: &Path, context: &Context) -> Result<()> {
    write(out, "run.json", &(serde_json::to_string_pretty(context)? + "\n"))
}

/// Returns the context of a run that continues the one in `out`, whose records are `records`.
fn resumed(context: Context, records: &[Record], out: &Path) -> Result<Context> {
    if let Some(other) = records.iter().find(|record| record.setting.commit != context.commit) {
        let (theirs, ours) = (&other.setting.commit, &context.commit);
        let text = format!("the results to resume are of commit {theirs}, this is {ours}");
        return Err(Failure::Engine(text));
    }
    let earlier = if records.is_empty() { None } else { read_context(&out.join("run.json"))? };
    earlier.map_or(Ok(context.clone()), |earlier| earlier.resumed_by(context))
}

/// Returns the plan of each suite. Removes the records of unfinished groups.
fn plans(
    arguments: &RunArguments,
    suites: &[&'static Suite],
    chosen: &[&'static dyn Engine],
    parts: &[usize],
    context: &Context,
    records: &mut Vec<Record>,
) -> Vec<runner::Plan> {
    let stop_at = arguments.stop_after.map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let plan = |suite: &&'static Suite| {
        let engines = suite.own_engine.map_or_else(|| chosen.to_vec(), |own| vec![own]);
        let retried = (if arguments.retry_failed { &engines[..] } else { &[] }, arguments.runs);
        let done = runner::take_done(suite, arguments.scale, records, retried, context.is_finished);
        runner::Plan {
            suite,
            engines,
            scale: arguments.scale,
            runs: arguments.runs,
            dir: arguments.dir.as_ref().unwrap_or(&arguments.out).clone(),
            timeout: Duration::from_secs(arguments.timeout.unwrap_or(arguments.scale.seconds_max())),
            commit: context.commit.clone(),
            done,
            trace: !arguments.no_trace,
            trim: arguments.trim,
            stop_at,
            parts: parts.to_vec(),
        }
    };
    suites.iter().map(plan).collect()
}

/// Starts the file of results with `records` and leaves it open for more. It replaces the earlier file
/// atomically, so that an interruption loses nothing.
fn start_results(path: &Path, records: &[Record]) -> Result<File> {
    let beside = path.with_extension("jsonl.new");
    let mut file = File::create(&beside)?;
    records.iter().try_for_each(|record| write_line(&mut file, record))?;
    file.sync_all().and_then(|()| fs::rename(&beside, path))?;
    Ok(file)
}

fn write_line(file: &mut File, record: &Record) -> Result<()> {
    let line = serde_json::to_string(record)? + "\n";
    file.write_all(line.as_bytes()).map_err(Failure::engine)
}

/// Prints the tables and writes the page.
fn report(out: &Path, records: &[Record], runs: &Runs) -> Result<()> {
    let summaries = Summary::all(records);
    let styled = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    for summary in &summaries {
        show(&format!("{}\n", report::terminal::table(summary, runs, styled)))?;
    }
    write(out, "report.html", &report::html::page(&summaries, runs))?;
    show(&format!("a report to open: {}\n", out.join("report.html").display()))
}

/// Reports existing results. run.json beside each file describes the run.
fn report_of(files: &[PathBuf], out: &Path) -> Result<()> {
    let mut records = Vec::new();
    let mut contexts = Vec::new();
    for file in files {
        let of_file = read_results(file)?;
        if of_file.is_empty() {
            continue;
        }
        let path = file.with_file_name("run.json");
        let mut context = read_context(&path)?.ok_or_else(|| {
            Failure::Engine(format!(
                "there is no {}, which says of what machine the results beside it are",
                path.display()
            ))
        })?;
        context.note_suites(&of_file);
        contexts.push(context);
        records.extend(of_file);
    }
    if records.is_empty() {
        return Err(Failure::Engine("there are no results in these files".to_owned()));
    }
    fs::create_dir_all(out)?;
    report(out, &records, &Runs::new(contexts))
}

/// Prints the published tables beside these results.
fn seed_tables(files: &[PathBuf]) -> Result<()> {
    let (mut records, mut machines) = (Vec::new(), Vec::new());
    for file in files {
        records.extend(read_results(file)?);
        machines.extend(read_context(&file.with_file_name("run.json"))?.map(|run| run.machine.line()));
    }
    machines.dedup();
    show(&published::seed_tables(&records, &machines))
}

/// Draws the only suite of these results.
fn picture(results: &Path, out: &Path) -> Result<()> {
    match &Summary::all(&read_results(results)?)[..] {
        [summary] => fs::write(out, report::picture::draw(summary))
            .map_err(|error| Failure::Engine(format!("{}: {error}", out.display()))),
        others => {
            let (file, count) = (results.display(), others.len());
            Err(Failure::Engine(format!("{file} has {count} suites and scales, a picture shows one")))
        }
    }
}

/// Reads a run.json. Returns `None` if there is none.
fn read_context(path: &Path) -> Result<Option<Context>> {
    let failed = |error: String| Failure::Engine(format!("{}: {error}", path.display()));
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|error| failed(error.to_string())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn compare(before: &Path, after: &Path) -> Result<()> {
    let changes = compare::changes(&read_results(before)?, &read_results(after)?);
    if changes.is_empty() {
        return Err(Failure::Engine(
            "the two files have no row of the same engine and run in common".to_owned(),
        ));
    }
    show(&compare::table(&changes))
}

/// Reads the records of a results file, or none if there is no file. A last line without an end was cut off
/// by an interruption and is ignored.
fn read_results(path: &Path) -> Result<Vec<Record>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path)?;
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| Failure::Engine(format!("{} line {}: {error}", path.display(), number + 1)))
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

fn write(dir: &Path, name: &str, text: &str) -> Result<()> {
    fs::write(dir.join(name), text).map_err(Failure::engine)
}

fn context(chosen: &[&'static dyn Engine], dir: &Path, trim: bool) -> Context {
    let engines = chosen.iter().map(|engine| EngineContext {
        name: engine.name().to_owned(),
        version: engine.version(),
        isolation: engine.isolation().name().to_owned(),
        async_commits: Some(AsyncContext::of(*engine)),
        options: engine
            .options()
            .iter()
            .map(|o| [o.option, o.value, o.reason, o.pointer].map(str::to_owned))
            .collect(),
        suites: Vec::new(),
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    Context {
        machine: Machine::describe(dir),
        device: context::device(trim),
        commit: machine::commit(),
        first: Call { started_unix_s: machine::unix_seconds(), command: cli::command_of(&arguments) },
        resumed: Vec::new(),
        engines: engines.collect(),
        workloads: Vec::new(),
        is_finished: false,
        suites: Vec::new(),
    }
}
