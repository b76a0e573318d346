//! Runs the built `esker` in a temporary directory.
#![expect(clippy::disallowed_methods, reason = "tests of a program look at its files from outside")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A directory with a database `db` and the files that a test writes.
pub struct Esker {
    directory: TempDir,
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Outcome {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("the output is text")
    }
}

impl Esker {
    pub fn new() -> Self {
        Esker { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("write a test file");
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("read a test file")
    }

    /// Runs `esker` on the database `db` with empty standard input.
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Outcome {
        self.run_with(b"", args)
    }

    /// Runs `esker` in a subdirectory.
    pub fn run_in<A: AsRef<OsStr>>(&self, directory: &str, args: impl IntoIterator<Item = A>) -> Outcome {
        self.start(&self.path(directory), b"", args, Stdio::piped(), Stdio::piped())
    }

    /// Runs `esker` with this standard input.
    pub fn run_with<A: AsRef<OsStr>>(&self, input: &[u8], args: impl IntoIterator<Item = A>) -> Outcome {
        self.start(self.directory.path(), input, args, Stdio::piped(), Stdio::piped())
    }

    /// Runs `esker` with this standard error.
    pub fn run_saying<A: AsRef<OsStr>>(
        &self,
        messages: impl Into<Stdio>,
        args: impl IntoIterator<Item = A>,
    ) -> Outcome {
        self.start(self.directory.path(), b"", args, Stdio::piped(), messages.into())
    }

    /// Returns the program with these arguments, for the caller to start.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
        command.args(line.split(' ')).env("ESKER_DB", "db").current_dir(self.directory.path());
        command
    }

    /// Runs `esker` where no file may have more than this many blocks of 512 bytes. It must fail. Returns
    /// what it has said.
    #[cfg(unix)]
    pub fn fails_within(&self, blocks: u32, line: &str) -> String {
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$ESKER\" {line}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("ESKER", env!("CARGO_BIN_EXE_esker")).env("ESKER_DB", "db");
        let output = command.current_dir(self.directory.path()).output().expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    }

    /// Runs `esker` with this standard output.
    pub fn run_into<A: AsRef<OsStr>>(
        &self,
        output: impl Into<Stdio>,
        args: impl IntoIterator<Item = A>,
    ) -> Outcome {
        self.start(self.directory.path(), b"", args, output.into(), Stdio::piped())
    }

    fn start<A: AsRef<OsStr>>(
        &self,
        directory: &Path,
        input: &[u8],
        args: impl IntoIterator<Item = A>,
        output: Stdio,
        messages: Stdio,
    ) -> Outcome {
        let mut child = Command::new(env!("CARGO_BIN_EXE_esker"))
            .args(args)
            .env("ESKER_DB", "db")
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(messages)
            .spawn()
            .expect("start esker");
        // A command that does not read its input may have ended already.
        let _ignored = child.stdin.take().expect("it is piped").write_all(input);
        let output = child.wait_with_output().expect("wait for esker");
        Outcome {
            code: output.status.code().expect("it was not killed"),
            out: output.stdout,
            err: String::from_utf8(output.stderr).expect("messages are text"),
        }
    }

    /// Runs a command line, split at spaces, that must succeed. Returns its output.
    pub fn ok(&self, line: &str) -> String {
        let outcome = self.run(line.split(' '));
        assert_eq!(outcome.code, 0, "esker {line}: {}", outcome.err);
        outcome.text().to_owned()
    }

    /// Runs a command line that must fail. Returns its messages.
    pub fn fails(&self, line: &str) -> String {
        let outcome = self.run(line.split(' '));
        assert_eq!(outcome.code, 2, "esker {line}: {}{}", outcome.text(), outcome.err);
        assert!(outcome.out.is_empty(), "{}", outcome.text());
        outcome.err
    }
}
