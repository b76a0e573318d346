//! Writes golden directories: databases as this version writes them, for the compatibility test of later
//! ones.
//!
//! `cargo run -p esker --example make_goldens -- DIR` makes a directory in DIR for each kind; those that are
//! there already stay as they are. Rules: docs/compatibility.md
#![expect(clippy::disallowed_methods, reason = "a tool of the project: it writes files for the repository")]
#![allow(unused_imports, dead_code, reason = "it shares the tests' helpers")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;

use common::goldens::{NAMES, make};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("which directory? Name it")?;
    for name in NAMES {
        let dir = Path::new(&target).join(name);
        if dir.exists() {
            println!("{}: there already, left as it is", dir.display());
            continue;
        }
        std::fs::create_dir_all(&dir)?;
        let mut bytes = 0;
        for (file, content) in make(name)? {
            bytes += content.len();
            std::fs::write(dir.join(file), content)?;
        }
        println!("{}: {bytes} bytes", dir.display());
    }
    Ok(())
}
