//! Tests in processes of their own: of the simulations of one process one runs at a time, and machines have more cores.
//!
//! ```text
//!   test --its name--> this program once more, that test alone --its output, how it ended--> test
//! ```

use std::process::Command;

/// Set in the process that runs a test's body.
const BODY: &str = "ESKER_SIM_TEST_BODY";

/// Runs the body of the test that calls it.
pub fn run(body: impl FnOnce()) {
    let thread = std::thread::current();
    let name = thread.name().expect("the harness names its threads");
    // Tests that run one behind the other all do so in the main thread.
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
