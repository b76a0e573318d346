//! Compiles C and C++ programs against `include/esker.h` and the library, and runs them.
//!
//! Needs a C and a C++ compiler: `cc` and `c++`, or what `ESKER_CC` and `ESKER_CXX` name.

#![cfg(unix)]
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests: what is missing ends them")]

mod conformance;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The static library, which cargo has built beside this program.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("the program of the tests");
    program.parent().expect("a directory").join("libesker_c.a")
}

fn compiler(variable: &str, otherwise: &str) -> Command {
    let name = std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned());
    let mut words = name.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or(otherwise));
    command.args(words).current_dir(env!("CARGO_MANIFEST_DIR")).arg("-Iinclude");
    command.args(["-Wall", "-Wextra", "-Werror"]);
    command
}

/// The command that runs a program: under the program that `ESKER_C_UNDER` names, if any.
fn under(program: &Path) -> Command {
    let under = std::env::var("ESKER_C_UNDER").unwrap_or_default();
    let mut words = under.split_whitespace().map(Path::new).chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command.args(words);
    command
}

fn run_program(program: &Path, argument: &Path) -> String {
    run(under(program).arg(argument))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn each_function_does_what_the_header_says() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("api");
    let mut build = compiler("ESKER_CC", "cc");
    build.args(["-std=c99", "-pedantic", "-g", "-o"]).arg(&program).arg("tests/c/api.c").arg(library());
    run(build.args(["-lpthread", "-lm", "-ldl"]));
    assert_eq!(run_program(&program, &dir.path().join("db")), "ok\n");
}

/// The way that README.md shows for packages of a system.
#[test]
#[cfg(target_os = "linux")]
fn the_functions_of_a_shared_library_have_a_version() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, program) = (dir.path().join("libesker.so.0.1"), dir.path().join("api"));
    let mut link = compiler("ESKER_CC", "cc");
    link.args(["-shared", "-Wl,-soname,libesker.so.0.1", "-Wl,--version-script=esker.map", "-o"])
        .arg(&shared);
    link.args(["-Wl,--gc-sections", "-Wl,--whole-archive"]).arg(library());
    run(link.args(["-Wl,--no-whole-archive", "-lpthread", "-lm", "-ldl"]));
    let mut build = compiler("ESKER_CC", "cc");
    build.args(["-std=c99", "-pedantic", "-o"]).arg(&program).args(["tests/c/api.c", "-Wl,-rpath"]);
    run(build.arg(format!("-Wl,{}", dir.path().display())).arg(&shared));
    let needs = |text: &[u8]| std::fs::read(&program).unwrap().windows(text.len()).any(|part| part == text);
    assert!(needs(b"ESKER_0.1\0") && needs(b"libesker.so.0.1\0"));
    assert_eq!(run_program(&program, &dir.path().join("db")), "ok\n");
}

#[test]
fn the_wrapper_for_cpp_frees_throws_and_runs_again() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("wrapper");
    let mut build = compiler("ESKER_CXX", "c++");
    build
        .args(["-std=c++17", "-pedantic", "-g", "-o"])
        .arg(&program)
        .arg("tests/c/wrapper.cpp")
        .arg(library());
    run(build.args(["-lpthread", "-lm", "-ldl"]));
    assert_eq!(run_program(&program, &dir.path().join("db")), "ok\n");
}

#[test]
fn the_examples_of_the_readme_run() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let compilers =
        [("c", compiler("ESKER_CC", "cc"), "-std=c99"), ("cpp", compiler("ESKER_CXX", "c++"), "-std=c++17")];
    let printed = compilers.map(|(language, mut build, standard)| {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join(format!("example.{language}")), dir.path().join("example"));
        let (_, example) = readme.split_once(&format!("```{language}\n")).unwrap();
        std::fs::write(&source, example.split_once("```").unwrap().0).unwrap();
        build.args([standard, "-pedantic", "-g", "-o"]).arg(&program).arg(&source).arg(library());
        run(build.args(["-lpthread", "-lm", "-ldl"]));
        run(under(&program).current_dir(dir.path()))
    });
    assert_eq!(printed, ["1\n", "ann = 1\nbob = 12\n"]);
}

#[test]
fn programs_for_leveldb_run() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("leveldb");
    let mut build = compiler("ESKER_CC", "cc");
    build.args(["-std=c99", "-pedantic", "-g", "-Ileveldb", "-o"]).arg(&program);
    build.args(["tests/c/leveldb.c", "leveldb/leveldb.c"]).arg(library());
    run(build.args(["-lpthread", "-lm", "-ldl"]));
    assert_eq!(run_program(&program, &dir.path().join("db")), "ok\n");
}

#[test]
fn the_header_is_c99_and_cpp17() {
    run(compiler("ESKER_CC", "cc").args([
        "-std=c99",
        "-pedantic",
        "-fsyntax-only",
        "-x",
        "c",
        "include/esker.h",
        "leveldb/leveldb/c.h",
    ]));
    let cpp = ["-std=c++17", "-pedantic", "-fsyntax-only", "-x", "c++"];
    run(compiler("ESKER_CXX", "c++").args(cpp).args(["include/esker.h", "leveldb/leveldb/c.h"]));
}
