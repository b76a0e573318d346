//! Line editing, history and completion of the shell, by rustyline.
//!
//! The history is a file of the user. It contains the typed lines, including values; a line that begins with
//! a space is not stored.

use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};

use super::{line, words};
use crate::failure::{Failure, Result};

/// Number of lines kept in the history.
const HISTORY_LINES_MAX: usize = 10_000;

/// Lists the names of keyspaces.
pub(super) type Names = Box<dyn Fn() -> Vec<String>>;

/// A terminal from which lines are read.
pub(super) struct Console {
    editor: Editor<Completion, DefaultHistory>,
    history: Option<PathBuf>,
}

/// What the user typed.
pub(super) enum Typed {
    Line(String),
    /// Ctrl-C: the line is discarded.
    Nothing,
    /// Ctrl-D.
    End,
}

impl Console {
    pub(super) fn new(names: Names) -> Result<Self> {
        let config = Config::builder()
            .max_history_size(HISTORY_LINES_MAX)
            .and_then(|config| config.history_ignore_dups(true))
            .map_err(|error| failure(&error))?
            .history_ignore_space(true)
            .auto_add_history(true)
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Editor::with_config(config).map_err(|error| failure(&error))?;
        editor.set_helper(Some(Completion { names }));
        let history = history_file();
        if let Some(file) = &history {
            // The file does not exist before the first session.
            let _missing = editor.load_history(file);
        }
        Ok(Console { editor, history })
    }

    /// Reads a line.
    pub(super) fn read(&mut self, prompt: &str) -> Result<Typed> {
        match self.editor.readline(prompt) {
            Ok(line) => Ok(Typed::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Nothing),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(failure(&error)),
        }
    }

    /// Returns columns and rows of the terminal, if known.
    pub(super) fn size(&mut self) -> Option<(usize, usize)> {
        let (columns, rows) = self.editor.dimensions()?;
        Some((usize::from(columns), usize::from(rows)))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let Some(file) = &self.history else { return };
        // Failing to store the history is not an error of the session.
        let _ignored = file.parent().map(std::fs::create_dir_all);
        let _ignored = self.editor.append_history(file);
    }
}

fn failure(error: &ReadlineError) -> Failure {
    Failure::message(format!("read from the terminal: {error}"))
}

/// Returns the history file: `ESKER_HISTORY` (none if empty), else a file in the user's state directory.
fn history_file() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os("ESKER_HISTORY") {
        return (!file.is_empty()).then(|| file.into());
    }
    let home = |name: &str, below: &str| {
        std::env::var_os(name).filter(|dir| !dir.is_empty()).map(|dir| PathBuf::from(dir).join(below))
    };
    let state = home("XDG_STATE_HOME", "").or_else(|| home("HOME", ".local/state"));
    Some(state.or_else(|| home("LOCALAPPDATA", ""))?.join("esker").join("history"))
}

/// Completes commands, options, and names of keyspaces.
struct Completion {
    names: Names,
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..position];
        let start = typed.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        // There is no completion inside quotes.
        let before = words::split(&typed[..start]).unwrap_or_else(|_| vec![String::new()]);
        let word = &typed[start..];
        let mut found = line::candidates(&before, &(self.names)());
        found.retain(|candidate| candidate.starts_with(word));
        Ok((start, found.iter().map(|candidate| words::quoted(candidate) + " ").collect()))
    }
}

impl Helper for Completion {}
impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
