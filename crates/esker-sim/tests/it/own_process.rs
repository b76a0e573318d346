//! Runs tests in processes of their own: a process runs one simulation at a time, and machines have several
//! cores.
//!
//! ```text
//!   test --its name--> this program again, with that test only --output, exit status--> test
//! ```

use std::process::Command;

/// Set in the process that runs a test's body.
const BODY: &str = "ESKER_SIM_TEST_BODY";

/// Runs the body of the calling test.
pub fn run(body: impl FnOnce()) {
    let thread = std::thread::current();
    let name = thread.name().expect("the harness names its threads");
    // With a single test thread, all tests run in the main thread.
    if std::env::var_os(BODY).is_some() || name == "main" {
        return body();
    }
    let program = std::env::current_exe().expect("the program of the tests");
    let child = Command::new(program).args(["--exact", name, "--nocapture"]).env(BODY, "").output();
    let child = child.expect("the program of the tests starts");
    let [out, err] = [&child.stdout, &child.stderr].map(|text| String::from_utf8_lossy(text));
    print!("{out}");
    assert!(child.status.success() && out.contains("1 passed"), "{name}: {}\n{err}", child.status);
}
