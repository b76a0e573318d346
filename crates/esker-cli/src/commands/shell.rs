//! `esker shell`: runs commands interactively on an open database or a server.
//!
//! ```text
//!   terminal --console--> line --> Subject: local  | the tool's commands on an open database
//!   a pipe or a file ---->'                 remote | the same by requests to a server
//!                                      `--> Standard --pager--> terminal, or a pipe or a file
//! ```
//!
//! On a terminal, the shell reports a failed command and reads the next one. A script ends at the first
//! failure, because later commands may depend on it.
//!
//! A transaction that is still open at the end is rolled back, and the shell says so.

mod console;
mod line;
mod local;
#[cfg(feature = "server")]
pub(crate) mod remote;
mod words;

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use self::console::{Console, Names, Typed};
use self::line::{Asked, Line, ShellCommand};
use self::local::Local;
use crate::Answer;
use crate::database::Session;
use crate::failure::{Failure, Result};
use crate::{output, pager};

/// The options of `esker shell`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShellArgs {
    /// Connect to this server instead of opening a directory
    #[cfg(feature = "server")]
    #[arg(long, value_name = "ADDRESS:PORT")]
    server: Option<String>,
    /// The user to log in as
    #[cfg(feature = "server")]
    #[arg(long, value_name = "NAME", default_value = "default", requires = "server")]
    user: String,
    /// Password of the user
    #[cfg(feature = "server")]
    #[arg(long, value_name = "PASSWORD", env = "ESKER_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

/// What the shell works on: a local database or a server.
trait Subject {
    /// Returns the prompt.
    fn prompt(&self) -> Result<String>;

    /// Returns a function that lists the current keyspaces.
    fn names(&self) -> Names;

    /// Runs one line.
    fn run(&mut self, line: Line) -> Result<Answer>;

    /// Ends the session. Returns whether a transaction was rolled back.
    fn end(self: Box<Self>) -> Result<bool>;
}

pub(super) fn run(session: &Session<'_>, args: &ShellArgs) -> Result<Answer> {
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut subject = open(session, args, is_terminal)?;
    let read = if is_terminal { talk(&mut *subject) } else { read_script(&mut *subject) };
    let ended = subject.end();
    let answer = read?;
    Ok(if ended? { Answer::No } else { answer })
}

fn open<'a>(session: &Session<'a>, args: &ShellArgs, is_terminal: bool) -> Result<Box<dyn Subject + 'a>> {
    #[cfg(feature = "server")]
    if let Some(server) = &args.server {
        let login = args.password.as_deref().map(|password| (args.user.as_str(), password));
        return Ok(Box::new(remote::Remote::connect(server, login, &session.common, is_terminal)?));
    }
    let _no_options = args;
    Ok(Box::new(Local::open(session, is_terminal)?))
}

/// The result of a line.
enum Next {
    Line(Answer),
    End,
}

/// Reads lines from a terminal.
fn talk(subject: &mut dyn Subject) -> Result<Answer> {
    let mut console = Console::new(subject.names())?;
    output::print_message("`help` lists the commands, `exit` or Ctrl-D leaves");
    loop {
        let line = match console.read(&subject.prompt()?)? {
            Typed::Line(line) => line,
            Typed::Nothing => continue,
            Typed::End => return Ok(Answer::Yes),
        };
        if let Some((columns, rows)) = console.size() {
            pager::begin(columns, rows);
        }
        let start = Instant::now();
        let done = execute(subject, &line);
        let paged = pager::end();
        match done {
            Ok(Next::End) => return Ok(Answer::Yes),
            Ok(Next::Line(_)) if line.trim().is_empty() => continue,
            Ok(Next::Line(_)) => {}
            Err(Failure::OutputClosed) if paged.stopped => {}
            Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
            // A terminal session continues after a failure.
            Err(failure) => output::print_message(&failure),
        }
        let seconds = start.elapsed().saturating_sub(paged.waited).as_secs_f64();
        output::print_message(format_args!("({seconds:.3} s)"));
    }
}

/// Reads lines from a pipe or a file.
fn read_script(subject: &mut dyn Subject) -> Result<Answer> {
    let mut answer = Answer::Yes;
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        // Standard input is not kept locked, because a command may ask for confirmation.
        let read = io::stdin().read_line(&mut line);
        if read.map_err(|e| Failure::message(format!("read the commands, line {number}: {e}")))? == 0 {
            break;
        }
        match execute(subject, &line) {
            Ok(Next::End) => break,
            Ok(Next::Line(Answer::Yes)) => {}
            Ok(Next::Line(Answer::No)) => answer = Answer::No,
            Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
            // A script ends at a failure.
            Err(failure) => return Err(Failure::message(format!("line {number}: {failure}"))),
        }
    }
    Ok(answer)
}

fn execute(subject: &mut dyn Subject, line: &str) -> Result<Next> {
    match line::parse(line)? {
        Asked::Nothing => Ok(Next::Line(Answer::Yes)),
        Asked::Help(text) => {
            let mut out = output::stdout();
            out.write_all(text.as_bytes())?;
            out.flush()?;
            Ok(Next::Line(Answer::Yes))
        }
        Asked::Command(line) if matches!(line.command, ShellCommand::Exit) => Ok(Next::End),
        Asked::Command(line) => subject.run(*line).map(Next::Line),
    }
}

/// Reports that an open transaction was rolled back.
fn tell_rolled_back() {
    output::print_message("the transaction was not committed: rolled back");
}

/// Reports on a terminal what a script learns from the exit code.
fn tell(is_terminal: bool, answer: Answer) -> Answer {
    if is_terminal && answer == Answer::No {
        output::print_message("not found");
    }
    answer
}
