//! Redis, only for suite `server`: the program `redis-server` of the machine.

use std::path::Path;
use std::process::Command;

use esker_bench_api::{
    AsyncCommits, Engine, EngineOption, Failure, Isolation, OpenOptions, Result, Serving, Store,
    engine_options,
};

pub(crate) struct Redis;

impl Engine for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn version(&self) -> String {
        let said = Command::new("redis-server").arg("--version").output();
        let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
        let version = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
        version.unwrap_or("not installed").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        engine_options! {
            "appendonly", "yes, with appendfsync of the row", "without its log it loses all writes", "redis.conf";
            "save", "none", "dumps beside the log would only cost it time", "redis.conf";
        }
    }

    fn isolation(&self) -> Isolation {
        Isolation::Operation
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        None
    }

    fn hidden(&self) -> bool {
        true
    }

    fn cannot_run(&self, suite: &str) -> Option<String> {
        (suite != "server").then(|| "a server, in suite server alone".to_owned())
    }

    fn open(&self, _dir: &Path, _options: &OpenOptions) -> Result<Box<dyn Store>> {
        Err(Failure::Unsupported("a server".to_owned()))
    }

    fn serve(&self, serving: Serving<'_>) -> Result<Option<Command>> {
        let mut command = Command::new("redis-server");
        let syncing = match serving.syncing.name() {
            "never" => "no",
            name => name,
        };
        command.args(["--port", &serving.port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "yes", "--appendfsync", syncing, "--dir"]).arg(serving.dir);
        Ok(Some(command))
    }
}
