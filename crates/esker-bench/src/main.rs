//! The lab: measures Esker beside other embedded key-value engines.
//!
//! ```text
//! cli -> runner --spawns--> child -> suites/NAME --drives--> engines/NAME   (esker_bench_api: the traits between them)
//!          |                  '-- recorder, measure: a row's time, memory, bytes
//!          '-- results.jsonl -> report/: terminal table, report.html
//! ```
//!
//! Read in this order: esker_bench_api::engine, suites/redb, engines/lmdb, recorder, measure, runner, report/summary. docs/benchmarking.md
//! has the rules of fairness and says how to add an engine or a suite.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the lab is a program around the engine and measures the real machine: it needs no replaceable Env"
)]

mod child;
mod cli;
mod engines;
mod machine;
mod measure;
mod progress;
mod recorder;
mod report;
mod runner;
mod scale;
mod suites;
mod syncs;

use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::cli::{ChildArguments, Cli, Command, RunArguments};
use crate::machine::{Context, EngineContext, Machine};
use crate::report::summary::Summary;
use crate::scale::Scale;
use crate::suites::{SUITES, Suite};
use esker_bench_api::{Engine, Failure};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        None => {
            Cli::try_parse_from(["esker-bench", "run"]).map_err(Failure::engine).and_then(|cli| {
                match cli.command {
                    Some(Command::Run(arguments)) => run(&arguments),
                    _ => Err(Failure::engine("`run` did not parse as itself")),
                }
            })
        }
        Some(Command::List) => list(),
        Some(Command::Run(arguments)) => run(&arguments),
        Some(Command::Child(arguments)) => run_child(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("esker-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn find_suite(name: &str) -> Result<&'static dyn Suite, Failure> {
    let names = || SUITES.iter().map(|suite| suite.name()).collect::<Vec<_>>().join(", ");
    suites::find(name).ok_or_else(|| Failure::Engine(format!("no suite {name}; there are: {}", names())))
}

fn find_engine(name: &str) -> Result<&'static dyn Engine, Failure> {
    let names = || engines::shown().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
    engines::find(name).ok_or_else(|| Failure::Engine(format!("no engine {name}; there are: {}", names())))
}

fn list() -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let mut text = String::from("Suites and their rows (counts of scale quick)\n");
    for suite in SUITES {
        text += &format!("\n  {}: {}\n", suite.name(), suite.summary());
        for row in suite.rows(Scale::Quick) {
            text += &format!("    {:<26} {}\n", row.name, row.work);
        }
    }
    text += "\nEngines and their options\n";
    for engine in engines::shown() {
        text += &format!("\n  {} {}\n", engine.name(), engine.version());
        for option in engine.options() {
            text += &format!("    {}: {}\n", option.option, option.value);
        }
    }
    let scales: Vec<&str> = Scale::SHOWN.iter().map(|scale| scale.name()).collect();
    text += &format!("\nScales: {}\n", scales.join(", "));
    out.write_all(text.as_bytes()).map_err(Failure::engine)
}

fn run_child(arguments: &ChildArguments) -> Result<(), Failure> {
    let job = child::Job {
        suite: find_suite(&arguments.suite)?,
        engine: find_engine(&arguments.engine)?,
        scale: arguments.scale,
        run: arguments.run,
        commit: &arguments.commit,
    };
    child::run(&job, &arguments.dir, arguments.traced)
}

fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let suite = find_suite(&arguments.suite)?;
    let mut chosen = arguments.engines.iter().map(|name| find_engine(name)).collect::<Result<Vec<_>, _>>()?;
    if chosen.is_empty() {
        chosen = engines::shown().collect();
    }
    if cfg!(debug_assertions) && arguments.scale != Scale::Test {
        eprintln!("esker-bench: this is not a release build, its figures mean nothing");
    }
    let dir = arguments.dir.as_ref().unwrap_or(&arguments.out);
    for directory in [dir, &arguments.out] {
        fs::create_dir_all(directory)
            .map_err(|error| Failure::Engine(format!("{}: {error}", directory.display())))?;
    }
    let context = context(&chosen, dir);
    let plan = runner::Plan {
        suite,
        engines: chosen,
        scale: arguments.scale,
        runs: arguments.runs,
        dir: dir.clone(),
        timeout: Duration::from_secs(arguments.timeout.unwrap_or(arguments.scale.seconds_max())),
        commit: context.commit.clone(),
    };
    write(
        &arguments.out,
        "run.json",
        &(serde_json::to_string_pretty(&context).map_err(Failure::engine)? + "\n"),
    )?;
    let results = arguments.out.join("results.jsonl");
    let mut file = File::create(&results).map_err(Failure::engine)?;
    let mut records = Vec::new();
    runner::run(&plan, &mut |record| {
        let line = serde_json::to_string(record).map_err(Failure::engine)?;
        writeln!(file, "{line}").map_err(Failure::engine)?;
        records.push(record.clone());
        Ok(())
    })?;
    let summary = Summary::new(&records);
    let styled = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    println!("{}", report::terminal::table(&summary, &context, styled));
    write(&arguments.out, "report.html", &report::html::page(&summary, &context))?;
    println!("results: {}", results.display());
    println!("a report to open: {}", arguments.out.join("report.html").display());
    Ok(())
}

fn write(dir: &Path, name: &str, text: &str) -> Result<(), Failure> {
    fs::write(dir.join(name), text).map_err(Failure::engine)
}

fn context(chosen: &[&'static dyn Engine], dir: &Path) -> Context {
    let engines = chosen.iter().map(|engine| EngineContext {
        name: engine.name().to_owned(),
        version: engine.version(),
        options: engine
            .options()
            .iter()
            .map(|o| (format!("{}: {}", o.option, o.value), o.reason.to_owned()))
            .collect(),
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    Context {
        machine: Machine::describe(dir),
        commit: machine::commit(),
        started_unix_s: machine::unix_seconds(),
        command: format!("cargo run --release -p esker-bench -- {}", arguments.join(" "))
            .trim_end_matches(" -- ")
            .to_owned(),
        engines: engines.collect(),
    }
}
