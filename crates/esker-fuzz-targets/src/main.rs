//! Runs the fuzz targets without a fuzzer, with any compiler.
//!
//! ```text
//!   seeds DIR           writes valid inputs of each target to DIR/TARGET/seed-N, as a start for a fuzzer
//!   replay TARGET FILE  runs one input; for failing operations, lists the shortest failing part
//! ```
#![expect(clippy::disallowed_methods, reason = "a developer's tool, outside the engine and its Env")]

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use esker_fuzz_targets::{TARGETS, find, seeds::seeds};
use esker_sim::report::describe_bytes;
use esker_sim::runner::{Sabotage, run_bytes};

const USAGE: &str = "\
Calls the fuzz targets without a fuzzer.

Usage:
  esker-fuzz-targets seeds DIR             Write valid inputs of each target to DIR/TARGET
  esker-fuzz-targets replay TARGET FILE..  Run these inputs; explain operations that fail
  esker-fuzz-targets list                  The targets";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["seeds", dir] => write_seeds(Path::new(dir)),
        ["replay", target, ref files @ ..] if !files.is_empty() => {
            files.iter().try_for_each(|file| replay(target, file))
        }
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            Ok(())
        }
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn write_seeds(dir: &Path) -> Result<(), String> {
    for target in TARGETS {
        let dir = dir.join(target.name);
        let seeds = seeds(target.name).unwrap_or_default();
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for (i, seed) in seeds.iter().enumerate() {
            (target.run)(seed);
            let path = dir.join(format!("seed-{i}"));
            fs::write(&path, seed).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        println!("{}: {} seeds", target.name, seeds.len());
    }
    Ok(())
}

fn replay(target: &str, file: &str) -> Result<(), String> {
    let bytes = fs::read(file).map_err(|e| format!("{file}: {e}"))?;
    let found = find(target).ok_or_else(|| format!("no target {target}\n\n{USAGE}"))?;
    if target == "operations" {
        let tally = run_bytes(&bytes, Sabotage::default())
            .map_err(|failure| format!("{file} {}", describe_bytes(&bytes, &failure)))?;
        println!("{file}: all well: {tally:?}");
    } else {
        (found.run)(&bytes);
        println!("{file}: all well");
    }
    Ok(())
}
