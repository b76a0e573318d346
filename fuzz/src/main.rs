//! Writes the valid inputs of every target to `corpus/`, where the fuzzer starts from them.
//!
//! ```text
//!   crates/esker/tests/decoders/targets.rs --> corpus/TARGET/seed-N
//! ```

#[path = "../../crates/esker/tests/decoders/targets.rs"]
mod targets;

use std::fs;
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in targets::targets() {
        let dir = corpus.join(target.name);
        fs::create_dir_all(&dir)?;
        for (i, seed) in target.seeds.iter().enumerate() {
            (target.run)(seed);
            fs::write(dir.join(format!("seed-{i}")), seed)?;
        }
        println!("{}: {} seeds", target.name, target.seeds.len());
    }
    Ok(())
}
