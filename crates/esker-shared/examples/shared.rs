//! Several processes that write one database. Start it several times, and kill any of them:
//!
//! `cargo run -p esker-shared --example shared -- /tmp/visitors`

use std::time::Duration;

use esker_shared::Shared;

#[expect(clippy::disallowed_methods, reason = "a program around the engine")]
fn main() -> esker_shared::Result<()> {
    let dir = std::env::args_os().nth(1).unwrap_or_else(|| std::env::temp_dir().join("visitors").into());
    let db = Shared::open(dir)?;
    let visits = db.keyspace("visits")?;
    let me = std::process::id();
    for _ in 0..60 {
        // Both counters or none, whichever process is killed meanwhile.
        let (mine, all) = db.transact(|t| -> esker_shared::Result<_> {
            Ok((t.fetch_add(&visits, me.to_string(), 1)?, t.fetch_add(&visits, "all", 1)?))
        })?;
        let role = if db.is_host() { "host" } else { "guest" };
        println!("process {me}, {role}: visit {} of mine, {} of all", mine + 1, all + 1);
        std::thread::sleep(Duration::from_secs(1));
    }
    db.close()
}
