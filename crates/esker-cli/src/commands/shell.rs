//! `esker shell`: commands one after the other on an open database, or on a server.
//!
//! ```text
//!   terminal --console--> line --> Subject: local  | the tool's commands on an open database
//!   a pipe or a file ---->'                 remote | the same by requests to a server
//!                                      `--> Standard --pager--> terminal, or a pipe or a file
//! ```
//!
//! shell.1. On a terminal the shell reports a command that fails and reads the next one. A script ends with it: what follows may build on it.
//! shell.2. A transaction that is open at the end is rolled back; the shell says so.

mod console;
mod line;
mod local;
#[cfg(feature = "server")]
mod remote;
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
    /// Speak to the server there, in place of a directory
    #[cfg(feature = "server")]
    #[arg(long, value_name = "ADDRESS:PORT")]
    server: Option<String>,
    /// The user to log in as
    #[cfg(feature = "server")]
    #[arg(long, value_name = "NAME", default_value = "default", requires = "server")]
    user: String,
    /// The user's password at the server
    #[cfg(feature = "server")]
    #[arg(long, value_name = "PASSWORD", env = "ESKER_PASSWORD", hide_env_values = true)]
    password: Option<String>,
}

/// What the lines are about.
trait Subject {
    /// What stands in front of a line that is typed.
    fn prompt(&self) -> Result<String>;

    /// Tells the names of keyspaces, as they are then.
    fn names(&self) -> Names;

    /// Does what a line says.
    fn run(&mut self, line: Line) -> Result<Answer>;

    /// Ends. Whether a transaction was rolled back.
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

/// What comes after a line.
enum Next {
    Line(Answer),
    End,
}

/// On a terminal.
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
            // shell.1
            Err(failure) => output::print_message(&failure),
        }
        let seconds = start.elapsed().saturating_sub(paged.waited).as_secs_f64();
        output::print_message(format_args!("({seconds:.3} s)"));
    }
}

/// From a pipe or a file.
fn read_script(subject: &mut dyn Subject) -> Result<Answer> {
    let mut answer = Answer::Yes;
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        // No lock of it is kept: a command may ask something.
        let read = io::stdin().read_line(&mut line);
        if read.map_err(|e| Failure::message(format!("read the commands, line {number}: {e}")))? == 0 {
            break;
        }
        match execute(subject, &line) {
            Ok(Next::End) => break,
            Ok(Next::Line(Answer::Yes)) => {}
            Ok(Next::Line(Answer::No)) => answer = Answer::No,
            Err(Failure::OutputClosed) => return Err(Failure::OutputClosed),
            // shell.1
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

/// Says that a transaction was open at the end (shell.2).
fn tell_rolled_back() {
    output::print_message("the transaction was not committed: rolled back");
}

/// Says what a script learns from the exit code.
fn tell(is_terminal: bool, answer: Answer) -> Answer {
    if is_terminal && answer == Answer::No {
        output::print_message("not found");
    }
    answer
}
