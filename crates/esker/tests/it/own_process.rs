//! Tests of things that a process has once: memory, open files, working directory, limits.
//!
//! ```text
//!   test --its name--> this program again, running only that test --output, exit status--> test
//! ```

use std::any::type_name;
use std::process::Command;

/// Set in the process that runs the test's body.
const BODY: &str = "ESKER_TEST_BODY";

/// Runs the calling test, passed as `test`, in a process of its own. Returns false in that process: the
/// caller continues.
pub fn ran<T: Fn()>(test: T) -> bool {
    let program = std::env::current_exe().expect("the program of the tests");
    in_child(test, Command::new(program))
}

/// Same as `ran`, after a shell command.
#[cfg(unix)]
pub fn ran_under<T: Fn()>(setting: &str, test: T) -> bool {
    let program = std::env::current_exe().expect("the program of the tests");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{setting} && exec \"$0\" \"$@\"")]).arg(program);
    in_child(test, shell)
}

/// Same as `ran`, by a program that starts it: a prefix of the command line.
#[cfg(target_os = "linux")]
pub fn ran_by<T: Fn()>(prefix: &[&str], test: T) -> bool {
    let mut command = Command::new(prefix[0]);
    command.args(&prefix[1..]).arg(std::env::current_exe().expect("the program of the tests"));
    in_child(test, command)
}

fn in_child<T: Fn()>(_test: T, mut program: Command) -> bool {
    if std::env::var_os(BODY).is_some() {
        return false;
    }
    let (_crate, name) = type_name::<T>().split_once("::").expect("a path");
    let child = program.args(["--exact", name, "--nocapture"]).env(BODY, "").output();
    let child = child.expect("the program of the tests starts");
    let [out, err] = [&child.stdout, &child.stderr].map(|text| String::from_utf8_lossy(text));
    print!("{out}");
    assert!(child.status.success() && out.contains("1 passed"), "{name}: {}\n{err}", child.status);
    true
}
