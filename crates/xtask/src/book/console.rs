//! Runs the console blocks of a chapter and compares what they print.
//!
//! ```text
//!   $ command            run by one bash for the whole chapter, in a new directory; a `\` continues the line
//!   what it prints       standard output and standard error
//!   ...                  any lines; inside of a line: any text
//!   (exit code 1)        follows the output of a command that fails
//! ```
//!
//! console.1. Ports of the text (6379, 6380) are replaced by free ones, so a server of the machine is not
//!     used.
//! console.2. Processes that a chapter starts end with it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::blocks::Block;
use super::tool_dir;

const PORTS: [&str; 2] = ["6379", "6380"];
/// Programs of others, without which a chapter is left out.
const PROGRAMS: [&str; 3] = ["redis-cli", "redis-server", "curl"];
/// Separates the outputs of commands.
const MARK: &str = "--esker-book--";
const SECONDS_MAX: &str = "180";

/// A command and the lines that it should print.
#[derive(Debug, PartialEq)]
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

/// Returns whether every command printed what the chapter says.
pub(super) fn run(path: &Path, blocks: &[Block<'_>]) -> Result<bool, String> {
    let steps: Vec<Step> =
        blocks.iter().filter(|block| block.language == "console").flat_map(steps).collect();
    if steps.is_empty() {
        return Ok(true);
    }
    if let Some(missing) = PROGRAMS.iter().find(|name| is_missing(name, &steps)) {
        println!("{}: there is no {missing} here: its commands are not run", path.display());
        return Ok(true);
    }
    let outputs = outputs(&steps).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut is_well = true;
    for (at, step) in steps.iter().enumerate() {
        let got = outputs.get(at).map_or(&[] as &[String], Vec::as_slice);
        if at >= outputs.len() || !fits(&step.expected, got) {
            println!("{}:{}: $ {}", path.display(), step.line, step.command);
            println!("expected:\n{}\nprinted:\n{}\n", step.expected.join("\n"), got.join("\n"));
            is_well = false;
        }
    }
    println!("{}: {} commands, {}", path.display(), steps.len(), if is_well { "ok" } else { "FAILED" });
    Ok(is_well)
}

fn is_missing(program: &str, steps: &[Step]) -> bool {
    steps.iter().any(|step| step.command.contains(program))
        && Command::new(program).arg("--version").output().is_err()
}

/// Splits a block into commands and outputs.
fn steps(block: &Block<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut continues = false;
    for (number, line) in block.lines.iter().enumerate() {
        let command = line.strip_prefix("$ ");
        if let Some(command) = command {
            let step =
                Step { line: block.line + number + 1, command: command.to_owned(), expected: Vec::new() };
            steps.push(step);
        } else if let Some(step) = steps.last_mut() {
            if continues {
                step.command = format!("{}\n{line}", step.command);
            } else {
                step.expected.push((*line).to_owned());
            }
        }
        continues = (command.is_some() || continues) && line.ends_with('\\');
    }
    steps
}

/// Runs all commands in one shell. Returns the lines that each has printed; fewer if the shell has ended.
fn outputs(steps: &[Step]) -> Result<Vec<Vec<String>>, String> {
    let dir = tempdir()?;
    let ports = free_ports()?;
    // Outside of the directory in which the commands run.
    let (script_path, printed_path) = (dir.with_extension("sh"), dir.with_extension("out"));
    let mut script = format!("exec > '{}' 2>&1\n", printed_path.display());
    for step in steps {
        let command = PORTS.iter().zip(&ports).fold(step.command.clone(), |c, (a, b)| c.replace(a, b));
        script += &format!("{command}\ncode=$?; [ $code = 0 ] || echo \"(exit code $code)\"; echo {MARK}\n");
    }
    script += "kill $(jobs -p) 2> /dev/null; wait\n";
    fs::write(&script_path, script).map_err(|e| e.to_string())?;
    let search = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("timeout");
    bash.args(["--kill-after=10", SECONDS_MAX, "bash"]).arg(&script_path).current_dir(&dir).process_group(0);
    bash.env("PATH", format!("{}:{search}", tool_dir().display())).env("LC_ALL", "C").stdin(Stdio::null());
    for variable in ["ESKER_DB", "ESKER_KEY_FILE", "ESKER_CONFIG", "ESKER_PASSWORD"] {
        bash.env_remove(variable);
    }
    bash.status().map_err(|e| format!("timeout bash: {e}"))?;
    let printed = fs::read(&printed_path).map_err(|e| e.to_string())?;
    let place = format!("{}/", dir.display());
    let mut text = String::from_utf8_lossy(&printed).replace(&place, "/tmp/session/");
    for (said, used) in PORTS.iter().zip(&ports) {
        text = text.replace(used.as_str(), said);
    }
    if let Some(parent) = dir.parent() {
        let _ = fs::remove_dir_all(parent);
    }
    Ok(pieces(&text))
}

/// Splits what the shell has printed at the marks.
fn pieces(text: &str) -> Vec<Vec<String>> {
    let mut pieces: Vec<Vec<String>> = Vec::new();
    let mut piece = Vec::new();
    for line in text.lines() {
        // The last line of an output may have no end.
        let Some(before) = line.strip_suffix(MARK) else {
            piece.push(line.to_owned());
            continue;
        };
        if !before.is_empty() {
            piece.push(before.to_owned());
        }
        pieces.push(std::mem::take(&mut piece));
    }
    pieces
}

/// Makes a directory in one of its own.
fn tempdir() -> Result<PathBuf, String> {
    let base = std::env::temp_dir().join(format!("esker-book-{}", std::process::id()));
    let dir = (0..).map(|n| base.with_extension(n.to_string())).find(|dir| !dir.exists());
    let dir = dir.ok_or("no free name")?.join("session");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok(dir)
}

/// Returns ports that are free at this moment, one for each of `PORTS`.
fn free_ports() -> Result<Vec<String>, String> {
    let listeners = PORTS.map(|_| TcpListener::bind("127.0.0.1:0"));
    let mut ports = Vec::new();
    for listener in &listeners {
        let listener = listener.as_ref().map_err(|e| format!("no free port: {e}"))?;
        ports.push(listener.local_addr().map_err(|e| e.to_string())?.port().to_string());
    }
    Ok(ports)
}

/// Returns whether the lines are those expected; `...` stands for any lines, or any text within a line.
fn fits(expected: &[String], got: &[String]) -> bool {
    match expected.split_first() {
        None => got.is_empty(),
        Some((any, rest)) if any == "..." => (0..=got.len()).any(|from| fits(rest, &got[from..])),
        Some((line, rest)) => {
            got.split_first().is_some_and(|(first, others)| line_fits(line, first) && fits(rest, others))
        }
    }
}

fn line_fits(expected: &str, got: &str) -> bool {
    match expected.split_once("...") {
        None => expected.trim_end() == got.trim_end(),
        Some((before, rest)) => got.strip_prefix(before).is_some_and(|got| {
            got.char_indices().map(|(at, _)| at).chain([got.len()]).any(|at| line_fits(rest, &got[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn dots_stand_for_lines_and_for_text() {
        let cases = [
            ("a\n...\nd", "a\nb\nc\nd", true),
            ("a\n...\nd", "a\nd", true),
            ("a\n...\nd", "a\nb", false),
            ("in ... s", "in 0.31 s", true),
            ("in ... s", "in 0.31 ms!", false),
            ("a", "a\nb", false),
            ("a", "", false),
        ];
        for (expected, got, fit) in cases {
            assert_eq!(fits(&lines(expected), &lines(got)), fit, "{expected:?} {got:?}");
        }
    }

    #[test]
    fn commands_run_in_one_shell_and_their_failures_are_shown() {
        let block = Block {
            language: "console",
            line: 1,
            lines: vec!["$ a=6379; echo \\", "$a", "6379", "$ echo x; false", "x", "(exit code 1)"],
        };
        let steps = steps(&block);
        assert_eq!((steps[0].command.as_str(), steps[1].line), ("a=6379; echo \\\n$a", 5));
        let outputs = outputs(&steps).unwrap();
        assert_eq!(outputs, [lines("6379"), lines("x\n(exit code 1)")]);
        assert!(steps.iter().zip(&outputs).all(|(step, output)| fits(&step.expected, output)));
    }
}
