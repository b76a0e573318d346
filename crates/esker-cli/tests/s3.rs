//! `esker backup` and `ES.BACKUP` with a bucket of moto, an S3 server, by `ESKER_MOTO_SERVER` or
//! `moto_server` in the path. Without it, nothing is tested.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests of a program")]

#[path = "../../esker-backup-s3/tests/server/mod.rs"]
mod server;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use self::server::{Running, moto};

const URL: &str = "s3://bucket/of/tool";

/// Prepares a run of the tool, with a master key and the settings of S3.
fn command(dir: &Path, endpoint: &str, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command.current_dir(dir).args(line.split(' ')).stdin(Stdio::null());
    for (name, value) in [
        ("ESKER_DB", "db"),
        ("ESKER_KEY_FILE", "keys"),
        ("AWS_ENDPOINT", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
    ] {
        command.env(name, value);
    }
    command
}

#[test]
fn the_tool_and_the_server_back_up_to_a_bucket() {
    let Some((_moto, endpoint)) = moto() else { return };
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    std::fs::write(dir.join("keys"), format!("{}\n", "07".repeat(32))).unwrap();
    assert!(Command::new("chmod").args(["600", "keys"]).current_dir(dir).status().unwrap().success());
    let run = |line: &str| {
        let done = command(dir, &endpoint, &line.replace("URL", URL)).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code().unwrap(), text(&done.stdout), text(&done.stderr))
    };
    let succeed = |line: &str| {
        let (code, out, err) = run(line);
        assert_eq!(code, 0, "{line}: {out} {err}");
        out
    };
    let (code, _, err) = run("backup list URL");
    assert!(code == 2 && err.contains("there are no backups in s3://bucket/of/tool"), "{err}");
    succeed("put a 1");
    succeed("feed --keep 1000000");
    assert!(succeed("backup create URL").starts_with("backup 1: "));
    succeed("put a 2");
    assert!(succeed("backup feed URL").starts_with("commits "));

    let arguments = format!("serve --port 0 --backup-dir {URL}");
    let serve = command(dir, &endpoint, &arguments).stderr(Stdio::piped()).spawn().unwrap();
    let mut serve = Running(serve);
    let mut lines = BufReader::new(serve.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| Some(line.split_once("listens on ")?.1.to_owned())).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let mut say = |line: &str| {
        write!(stream, "{line}\r\n").unwrap();
        let mut reply = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut reply).unwrap();
        reply
    };
    assert_eq!(say("SET of-server 3"), "+OK\r\n");
    assert!(say("ES.CHECKPOINT copy").contains("object storage"));
    assert_eq!(say("ES.BACKUP"), "*12\r\n");
    drop(serve);

    assert_eq!(succeed("backup list URL").lines().count(), 3);
    assert!(succeed("backup verify URL").starts_with("2 backups, sound; "));
    succeed("keys rotate --backups URL");
    succeed("backup restore URL newest");
    assert!(succeed("-d newest keyspaces list").lines().count() > 1);
    succeed("backup restore URL first --id 1");
    assert_eq!(succeed("-d first get a"), "1\n");
    succeed(&format!("backup restore URL then --id 1 --to-time {}", u32::MAX));
    assert_eq!(succeed("-d then get a"), "2\n");
    succeed("backup prune URL --keep 1");
    assert!(succeed("backup verify URL").starts_with("1 backup, sound; "));
    let file_url = format!("file://{}", dir.join("local").display());
    assert!(succeed(&format!("backup create {file_url}")).starts_with("backup 1: "));
    assert!(dir.join("local/ESKER-BACKUPS").exists());
    let (code, _, err) = run("backup list s3://nowhere/at/all");
    assert!(code == 2 && err.contains("s3://nowhere/at/all"), "{err}");
}
