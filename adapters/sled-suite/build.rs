//! Takes sled's tests from its package and leaves out what is about sled's files.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Text of `tests/test_tree.rs` and what stands for it. Each has to be there.
const TEST_TREE: &[(&str, &str)] = &[
    // The modules are in tests/suite.rs.
    ("mod common;\nmod tree;\n", ""),
    // Directories belong to this build.
    ("\"compression_db_test\"", "concat!(env!(\"CARGO_TARGET_TMPDIR\"), \"/compression_db_test\")"),
    // The test was not changed when `next_timeout` came to need this.
    ("let sub = db.watch_prefix(b\"k1\");", "let mut sub = db.watch_prefix(b\"k1\");"),
    ("\"create_exclusive_db\"", "concat!(env!(\"CARGO_TARGET_TMPDIR\"), \"/create_exclusive_db\")"),
];

/// The same for `tests/tree/mod.rs`. The replaced calls are hidden in sled's documentation.
const TREE: &[(&str, &str)] = &[
    ("if let Err(e) = config.global_error() {", "if let Err(e) = Ok::<(), Error>(()) {"),
    ("    drop(tree);\n    config.global_error()\n", "    drop(tree);\n    Ok(())\n"),
];

/// A test whose keys have a mebibyte each. The engine's have up to 65,535 bytes.
const LEFT_OUT: &str = "very_large_reverse_tree_iterator";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let tests = sled().join("tests");
    let text = replaced(&tests.join("test_tree.rs"), TEST_TREE);
    std::fs::write(out.join("test_tree.rs"), without_test(&text, LEFT_OUT)).expect("it can be written");
    let text = replaced(&tests.join("tree/mod.rs"), TREE);
    let text = cut(&text, "    let space_amplification = tree", "    drop(tree);\n    Ok(())\n");
    std::fs::write(out.join("tree.rs"), text).expect("it can be written");
}

/// Returns the folder of sled's package.
fn sled() -> PathBuf {
    let variable = |name: &str| std::env::var(name).expect("cargo sets it");
    let output = Command::new(variable("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform"])
        .arg(variable("TARGET"))
        .current_dir(variable("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("there are packages");
    let sled = packages.iter().find(|package| package["name"] == "sled").expect("sled is a dependency");
    let manifest = sled["manifest_path"].as_str().expect("a package has a manifest");
    Path::new(manifest).parent().expect("a manifest is in a folder").to_owned()
}

fn replaced(path: &Path, replacements: &[(&str, &str)]) -> String {
    let mut text = std::fs::read_to_string(path).expect("sled's package has its tests");
    for (from, to) in replacements {
        assert!(text.contains(from), "{} has no {from:?}", path.display());
        text = text.replace(from, to);
    }
    text
}

/// Removes what is between two texts, with the first one.
fn cut(text: &str, from: &str, to: &str) -> String {
    let start = text.find(from).expect("the first text is there");
    let end = start + text[start..].find(to).expect("the second text is there");
    [&text[..start], &text[end..]].concat()
}

/// Removes a test with its attributes.
fn without_test(text: &str, name: &str) -> String {
    let function = text.find(&format!("fn {name}()")).expect("the test is there");
    let start = text[..function].rfind("#[test]").expect("a test has its attribute");
    let end = function + text[function..].find("\n}\n").expect("a function ends") + 3;
    [&text[..start], &text[end..]].concat()
}
