//! Counts the syncs of a traced run for each row, to verify that a sync row syncs.
//!
//! ```text
//! strace -f child --mark calls--> trace --parse--> row -> syncs
//! ```
//!
//! The child marks the start and end of each row by opening a path that does not exist, which appears in the
//! trace. A sync is a call of fsync, fdatasync, msync(MS_SYNC), sync or syncfs. A write through a handle
//! opened with O_SYNC or O_DSYNC (LMDB's meta pages), or with RWF_SYNC or RWF_DSYNC, also counts.
//! sync_file_range does not count: it writes neither the length of a file nor the cache of the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// Mark of the start of a row.
pub(crate) const BEGIN: &str = "begin";
/// Mark of the end of a row.
pub(crate) const END: &str = "end";

const MARK_ROOT: &str = "/esker-bench-mark/";
/// Command that ends the tracer, and thus the traced process, when the lab is interrupted. Used if it exists
/// (util-linux).
const WITH_THE_LAB: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];
const TRACER: &str = "strace";
const CALLS: &str = "trace=fsync,fdatasync,msync,sync,syncfs,?open,openat,close,\
                     write,pwrite64,writev,pwritev,pwritev2";

/// Leaves a mark in the trace.
pub(crate) fn mark(mark: &str, row: &str) {
    // The path does not exist; only the attempt is needed.
    drop(File::open(format!("{MARK_ROOT}{mark}/{row}")));
}

/// Returns whether a run can be traced on this machine.
pub(crate) fn tracer_works() -> bool {
    let mut command = tracer();
    command.args(["-f", "-o", "/dev/null", "true"]);
    succeeds(&mut command)
}

fn tracer() -> Command {
    let [program, arguments @ ..] = WITH_THE_LAB;
    if succeeds(Command::new(program).args(arguments).arg("true")) {
        let mut command = Command::new(program);
        command.args(arguments).arg(TRACER);
        return command;
    }
    Command::new(TRACER)
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Returns a command that runs `program` under the tracer. The caller adds the arguments.
pub(crate) fn traced(program: &OsStr, trace: &Path) -> Command {
    let mut command = tracer();
    command.args(["-f", "-qq", "-e", CALLS, "-o"]).arg(trace).arg(program);
    command
}

/// Counts the syncs between the marks of each row.
pub(crate) fn parse(trace: &str) -> BTreeMap<String, u64> {
    let mut parser = Parser::default();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        parser.line(thread, call.trim_start());
    }
    parser.syncs
}

#[derive(Default)]
struct Parser<'a> {
    row: Option<&'a str>,
    syncs: BTreeMap<String, u64>,
    /// Handles whose writes are synchronous.
    sync_handles: BTreeSet<&'a str>,
    /// Opens that other threads interrupted in the trace: thread -> whether the handle will be synchronous.
    unfinished_opens: BTreeMap<&'a str, bool>,
}

impl<'a> Parser<'a> {
    fn line(&mut self, thread: &'a str, call: &'a str) {
        if let Some(rest) = call.strip_prefix("<... open") {
            if let Some(is_sync) = self.unfinished_opens.remove(thread) {
                self.opened(rest, is_sync);
            }
            return;
        }
        let Some((name, arguments)) = call.split_once('(') else { return };
        let first = arguments.split([',', ')', ' ']).next().unwrap_or_default();
        match name {
            "open" | "openat" => self.open(thread, arguments),
            "close" => {
                self.sync_handles.remove(first);
            }
            "fsync" | "fdatasync" | "sync" | "syncfs" => self.count(),
            "msync" if arguments.contains("MS_SYNC") => self.count(),
            "pwritev2" if arguments.contains("RWF_DSYNC") || arguments.contains("RWF_SYNC") => self.count(),
            "write" | "pwrite64" | "writev" | "pwritev" | "pwritev2" if self.sync_handles.contains(first) => {
                self.count();
            }
            _ => {}
        }
    }

    fn open(&mut self, thread: &'a str, arguments: &'a str) {
        if let Some((_, mark)) = arguments.split_once(MARK_ROOT) {
            let mark = mark.split('"').next().unwrap_or_default();
            self.row = mark.strip_prefix(BEGIN).and_then(|rest| rest.strip_prefix('/'));
            if let Some(row) = self.row {
                self.syncs.entry(row.to_owned()).or_default();
            }
            return;
        }
        let is_sync = arguments.contains("O_DSYNC") || arguments.contains("O_SYNC");
        if arguments.contains("<unfinished") {
            self.unfinished_opens.insert(thread, is_sync);
        } else {
            self.opened(arguments, is_sync);
        }
    }

    fn opened(&mut self, text: &'a str, is_sync: bool) {
        let Some((_, result)) = text.rsplit_once("= ") else { return };
        let handle = result.split(' ').next().unwrap_or_default();
        if is_sync {
            self.sync_handles.insert(handle);
        } else {
            self.sync_handles.remove(handle);
        }
    }

    fn count(&mut self) {
        if let Some(syncs) = self.row.and_then(|row| self.syncs.get_mut(row)) {
            *syncs += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"10 openat(AT_FDCWD, "data", O_RDWR|O_CREAT, 0644) = 3
10 openat(AT_FDCWD, "data", O_RDWR|O_DSYNC <unfinished ...>
11 fdatasync(3) = 0
10 <... openat resumed>) = 4
10 openat(AT_FDCWD, "/esker-bench-mark/begin/batch writes", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file)
10 pwrite64(3, "..."..., 4096, 0) = 4096
10 fdatasync(3 <unfinished ...>
10 syncfs(3) = 0
10 sync_file_range(3, 0, 4096, SYNC_FILE_RANGE_WAIT_BEFORE|SYNC_FILE_RANGE_WRITE|SYNC_FILE_RANGE_WAIT_AFTER) = 0
11 msync(0x7f00, 4096, MS_SYNC) = 0
11 msync(0x7f00, 4096, MS_ASYNC) = 0
10 <... fdatasync resumed>) = 0
10 pwrite64(4, "..."..., 64, 0) = 64
10 pwritev2(3, [...], 1, 0, RWF_DSYNC) = 1
10 close(4) = 0
10 pwrite64(4, "..."..., 64, 0) = -1 EBADF (Bad file descriptor)
10 openat(AT_FDCWD, "/esker-bench-mark/end/batch writes", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file)
10 fsync(3) = 0
10 openat(AT_FDCWD, "/esker-bench-mark/begin/len()", O_RDONLY|O_CLOEXEC) = -1 ENOENT (No such file)
10 +++ exited with 0 +++
"#;

    #[test]
    fn syncs_are_counted_between_marks() {
        let expected = [("batch writes".to_owned(), 5), ("len()".to_owned(), 0)];
        assert_eq!(parse(TRACE), BTreeMap::from(expected));
    }
}
