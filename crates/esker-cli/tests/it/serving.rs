//! Tests where `esker serve` takes its options from, and `CONFIG REWRITE`.
#![expect(clippy::disallowed_methods, reason = "a thread reads what the server says")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::common::Esker;

/// A running server, and a connection to it.
pub struct Server {
    pub process: Child,
    pub address: String,
    stream: BufReader<TcpStream>,
}

impl Server {
    pub fn start(esker: &Esker, line: &str) -> Self {
        Self::start_with(&mut esker.command(line))
    }

    fn start_with(command: &mut Command) -> Self {
        let mut process = command.stderr(Stdio::piped()).spawn().expect("start esker");
        let mut said = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut lines = String::new();
        let address = loop {
            let start = lines.len();
            assert!(said.read_line(&mut lines).expect("its messages") > 0, "it ended: {lines}");
            if let Some((_, address)) = lines[start..].trim().split_once("listens on ") {
                break address.to_owned();
            }
        };
        // It must not wait for a reader of its messages.
        drop(std::thread::spawn(move || said.lines().for_each(drop)));
        let stream = BufReader::new(TcpStream::connect(&address).expect("connect"));
        Server { process, address, stream }
    }

    /// Sends a command and returns the lines of its reply; empty: the connection has ended.
    pub fn say(&mut self, command: &str) -> String {
        if write!(self.stream.get_mut(), "{command}\r\n").is_err() {
            return String::new();
        }
        let mut reply = self.line();
        let count = reply.strip_prefix('*').and_then(|count| count.parse().ok()).unwrap_or(0);
        if reply.starts_with('$') && reply != "$-1" {
            reply = reply + " " + &self.line();
        }
        for _ in 0..count {
            reply = reply + " " + &self.line();
            if reply.rsplit(' ').next().is_some_and(|last| last.starts_with('$')) {
                reply = reply + " " + &self.line();
            }
        }
        reply
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        // A killed process has no replies.
        let _ended = self.stream.read_line(&mut line);
        line.trim_end().to_owned()
    }

    /// Opens a new connection. A replica ends the former one when it gets a copy.
    #[cfg(unix)]
    pub fn reconnect(&mut self) {
        self.stream = BufReader::new(TcpStream::connect(&self.address).expect("connect"));
    }

    /// Returns the names and values of all parameters.
    fn parameters(&mut self) -> BTreeMap<String, String> {
        write!(self.stream.get_mut(), "CONFIG GET *\r\n").expect("send");
        let count: usize = self.line()[1..].parse().expect("a list");
        let mut words = Vec::new();
        for _ in 0..count {
            assert!(self.line().starts_with('$'));
            words.push(self.line());
        }
        words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// Returns the value of a parameter.
    fn parameter(&mut self, name: &str) -> String {
        let reply = self.say(&format!("CONFIG GET {name}"));
        reply.rsplit(' ').next().unwrap_or_default().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _gone = self.process.wait();
    }
}

#[test]
fn the_command_line_outranks_the_environment_and_that_the_file() {
    let esker = Esker::new();
    esker.write(
        "esker.toml",
        "db = \"from-file\"\nport = 0\nmaxclients = 11\ntimeout = 12\ndatabases = 13\nmemory = \"64mb\"\n\
         slowlog-max-len = 14\nprotected-mode = false\nfsync = \"never\"\n",
    );
    let mut command = esker.command("serve --config esker.toml --maxclients 21");
    command.env_remove("ESKER_DB").env("ESKER_MAXCLIENTS", "31").env("ESKER_TIMEOUT", "32");
    command.env("ESKER_PORT", "tcp://10.0.0.1:6379").env("ESKER_SLOWLOG_LOG_SLOWER_THAN", "33");
    let mut server = Server::start_with(&mut command);
    for (name, value) in [
        ("maxclients", "21"),
        ("timeout", "32"),
        ("databases", "13"),
        ("slowlog-max-len", "14"),
        ("slowlog-log-slower-than", "33"),
        ("protected-mode", "no"),
        ("appendfsync", "no"),
        ("memory", "64mb"),
        ("dir", "from-file"),
        ("hz", "10"),
    ] {
        assert_eq!(server.parameter(name), value, "{name}");
    }
    assert!(server.say("CONFIG SET memory 1gb").contains("can't set immutable config"));
    assert!(esker.path("from-file").exists() && !esker.path("db").exists());
}

#[test]
fn wrong_options_are_named_with_their_file_and_line() {
    let esker = Esker::new();
    for (text, wanted) in [
        ("\nmax-clients = 5", "esker.toml:2: unknown option max-client"),
        ("maxclient = 5", "esker.toml:1: unknown option maxclient: did you mean maxclients?"),
        ("prot = 1", "unknown option prot: did you mean port?"),
        ("zzzzzzzz = 1", "esker.toml:1: unknown option zzzzzzzz\n"),
        ("config = 'x'", "esker.toml:1: config cannot be set in the file"),
        ("json = true", "esker.toml:1: json cannot be set in the file"),
        ("[server]\nport = 1", "esker.toml:1: unknown option server"),
        ("# a\n# b\nport = \"6379\"", "esker.toml:3: port: the value must be a whole number, without quotes"),
        ("port = 70000", "esker.toml:1: port: '70000': "),
        ("port = 1.5", "esker.toml:1: port: the value must be a whole number, without quotes, not a float"),
        ("maxclients = -1", "esker.toml:1: maxclients: "),
        ("timeout = 2147483648", "esker.toml:1: timeout: '2147483648': "),
        ("memory = \"much\"", "esker.toml:1: memory: 'much': a number of bytes"),
        ("fsync = \"sometimes\"", "esker.toml:1: fsync: 'sometimes': use one of always, everysec, never"),
        ("no-port = \"yes\"", "esker.toml:1: no-port: the value must be true or false"),
        ("protected-mode = 1", "esker.toml:1: protected-mode: the value must be true"),
        ("bind = []", "esker.toml:1: bind: the value must be a string, or an array of strings"),
        ("requirepass = 7", "esker.toml:1: requirepass: the value must be a string in quotes"),
        ("hz = 'x'", "esker.toml:1: hz: the value must be a whole number"),
        ("latency-monitor-threshold = -1", "esker.toml:1: latency-monitor-threshold: '-1': argument must be"),
        ("maxmemory = '1gb'", "esker.toml:1: maxmemory: '1gb': not supported"),
        ("fsync = 'no'\nappendfsync = 'no'", "esker.toml:2: appendfsync: the option is there twice"),
        ("port = 1\nport = 2", "esker.toml:2: duplicate key"),
        ("port = ", "esker.toml:1: "),
        ("no-port = true", "--no-port requires --unix-socket"),
        ("tls-port = 1", "--tls-port requires --tls-cert-file"),
    ] {
        esker.write("esker.toml", text);
        for line in ["serve --config esker.toml --check-config", "serve --config esker.toml --port 0"] {
            let outcome = esker.run(line.split(' '));
            assert_eq!(outcome.code, 2, "{text}: {outcome:?}");
            assert!(outcome.err.contains(wanted), "{text}: {outcome:?}");
        }
    }
    let outcome = esker.run(["serve", "--config", "missing.toml", "--check-config"]);
    assert!(outcome.code == 2 && outcome.err.contains("missing.toml"), "{outcome:?}");
    for (name, value, wanted) in [
        ("ESKER_MAXCLIENTS", "x", "ESKER_MAXCLIENTS: 'x': "),
        ("ESKER_NO_PORT", "1", "ESKER_NO_PORT: '1': use true or false"),
        ("ESKER_HZ", "x", "ESKER_HZ: 'x': argument couldn't be parsed"),
    ] {
        let outcome = esker.command("serve --check-config").env(name, value).output().expect("run");
        let err = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status.code() == Some(2) && err.contains(wanted), "{err}");
    }
    assert!(!esker.path("db").exists(), "nothing was started");
}

#[test]
fn a_check_prints_all_options_and_where_they_come_from() {
    let esker = Esker::new();
    let text = "timeout = 7\nbind = ['127.0.0.1', '::1']\nmasterauth = 'sesame'\nhz = 20\n";
    esker.write("esker.toml", text);
    let mut command =
        esker.command("serve --check-config --maxclients 5 --protected-mode no --config esker.toml");
    let outcome = command.env("ESKER_PASSWORD", "s3cret").env("ESKER_DATABASES", "4").output().expect("run");
    let out = String::from_utf8(outcome.stdout).expect("text");
    assert_eq!(outcome.status.code(), Some(0), "{out}");
    let lines: Vec<String> =
        out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for wanted in [
        "db = \"db\" # environment, ESKER_DB",
        "timeout = 7 # file, line 1",
        "bind = [\"127.0.0.1\", \"::1\"] # file, line 2",
        "masterauth = \"(hidden)\" # file, line 3",
        "requirepass = \"(hidden)\" # environment, ESKER_PASSWORD",
        "databases = 4 # environment, ESKER_DATABASES",
        "maxclients = 5 # command line",
        "protected-mode = \"no\" # command line",
        "memory = \"1gb\" # default",
        "no-port = false # default",
        "hz = 20 # file, line 4",
        "# aclfile is not set",
    ] {
        assert!(lines.iter().any(|line| line == wanted), "{wanted}: {out}");
    }
    assert!(!out.contains("s3cret") && !out.contains("sesame"), "{out}");
    assert!(!esker.path("db").exists());
    // What it prints is a file that means the same.
    esker.write("again.toml", out.replace("(hidden)", "x"));
    let again = esker.run(["serve", "--check-config", "--config", "again.toml"]);
    assert_eq!(again.code, 0, "{again:?}");
}

#[test]
fn what_is_set_and_rewritten_is_kept_over_restarts() {
    let esker = Esker::new();
    let text = "# mine\nport = 0 # any\ntimeout = 7 # seconds\nfsync = 'always'\n";
    esker.write("esker.toml", text);
    let file = |esker: &Esker| String::from_utf8(esker.read("esker.toml")).expect("text");
    let mut server = Server::start(&esker, "serve --config esker.toml");
    assert_eq!(server.say("CONFIG REWRITE"), "+OK");
    assert_eq!(file(&esker), text, "nothing has changed");
    for line in [
        "timeout 99",
        "appendfsync everysec",
        "maxclients 50",
        "slowlog-log-slower-than -1",
        "client-output-buffer-limit \"pubsub 1mb 0 0\"",
        "latency-tracking no",
        "requirepass word",
    ] {
        assert_eq!(server.say(&format!("CONFIG SET {line}")), "+OK", "{line}");
    }
    assert_eq!(file(&esker), text, "only REWRITE writes");
    assert_eq!(server.say("CONFIG REWRITE"), "+OK");
    let limits = server.say("CONFIG GET client-output-buffer-limit");
    drop(server);
    let after = file(&esker);
    assert!(
        after.starts_with("# mine\nport = 0 # any\ntimeout = 99 # seconds\nfsync = \"everysec\"\n"),
        "{after}"
    );
    let mut server = Server::start(&esker, "serve --config esker.toml");
    assert!(server.say("PING").starts_with("-NOAUTH"));
    assert_eq!(server.say("AUTH word"), "+OK");
    for (name, value) in [
        ("timeout", "99"),
        ("appendfsync", "everysec"),
        ("maxclients", "50"),
        ("slowlog-log-slower-than", "-1"),
        ("latency-tracking", "no"),
    ] {
        assert_eq!(server.parameter(name), value, "{name}");
    }
    assert_eq!(server.say("CONFIG GET client-output-buffer-limit"), limits);
    // The file is read again, so that what an editor has changed stays.
    esker.write("esker.toml", after.clone() + "databases = 3\n");
    assert_eq!(server.say("CONFIG SET timeout 98"), "+OK");
    assert_eq!(server.say("CONFIG REWRITE"), "+OK");
    assert!(file(&esker).contains("databases = 3\n") && file(&esker).contains("timeout = 98 # seconds\n"));
    esker.write("esker.toml", "port = ");
    assert!(server.say("CONFIG REWRITE").starts_with("-ERR Rewriting config file: "));
    assert_eq!(file(&esker), "port = ");
}

#[test]
fn secrets_from_elsewhere_are_not_written() {
    let esker = Esker::new();
    esker.write("esker.toml", "port = 0\n");
    let mut command = esker.command("serve --config esker.toml --masterauth line");
    let mut server = Server::start_with(command.env("ESKER_PASSWORD", "variable"));
    assert_eq!(server.say("AUTH variable"), "+OK");
    for line in ["requirepass other", "masterauth another", "timeout 5"] {
        assert_eq!(server.say(&format!("CONFIG SET {line}")), "+OK");
    }
    assert_eq!(server.say("CONFIG REWRITE"), "+OK");
    assert_eq!(String::from_utf8_lossy(&esker.read("esker.toml")), "port = 0\ntimeout = 5\n");
}

#[test]
fn without_a_file_nothing_is_rewritten() {
    let esker = Esker::new();
    let mut server = Server::start(&esker, "serve --port 0");
    let error = server.say("CONFIG REWRITE");
    assert!(error.starts_with("-ERR The server is running without a config file"), "{error}");
}

/// Sets each parameter to the value that it has.
fn set_to_own_values(server: &mut Server) -> BTreeMap<String, String> {
    let all = server.parameters();
    for (name, value) in &all {
        let reply = server.say(&format!("CONFIG SET {name} \"{value}\""));
        let is_fixed = matches!(name.as_str(), "replicaof" | "slaveof");
        assert_eq!(reply == "+OK", !is_fixed, "{name} \"{value}\": {reply}");
        assert!(!is_fixed || reply.contains("can't set immutable config"), "{reply}");
    }
    all
}

#[test]
fn each_parameter_can_be_set_to_its_own_value_and_rewritten() {
    let esker = Esker::new();
    let text =
        "port = 0\nbind = ['127.0.0.1', '::1']\nmemory = \"64mb\"\nmin-slaves-to-write = 3 # old name\n";
    esker.write("esker.toml", text);
    let mut server = Server::start(&esker, "serve --config esker.toml");
    set_to_own_values(&mut server);
    for line in [
        "min-replicas-to-write 2",
        "lua-time-limit 700",
        "notify-keyspace-events KEA",
        "save \"3600 1 300 100\"",
        "masterauth \"a 'b' \\x01\\x7f=#\"",
        "masteruser \"\"",
        "loglevel warning",
        "repl-backlog-size 3mb",
    ] {
        assert_eq!(server.say(&format!("CONFIG SET {line}")), "+OK", "{line}");
    }
    let all = server.parameters();
    assert_eq!(server.say("CONFIG REWRITE"), "+OK");
    drop(server);
    let after = String::from_utf8(esker.read("esker.toml")).expect("text");
    assert!(after.starts_with(&text.replace("= 3 #", "= 2 #")), "{after}");
    assert!(!after.contains("min-replicas-to-write") && !after.contains("lua-time-limit"), "{after}");
    let check = esker.run(["serve", "--check-config", "--config", "esker.toml"]);
    assert_eq!(check.code, 0, "{check:?}\n{after}");
    let mut server = Server::start(&esker, "serve --config esker.toml");
    assert_eq!(set_to_own_values(&mut server), all);
    assert_eq!(server.say("CONFIG REWRITE"), "+OK");
    assert_eq!(String::from_utf8_lossy(&esker.read("esker.toml")), after);
}

#[test]
fn synonyms_of_a_parameter_are_one_option() {
    let esker = Esker::new();
    esker.write("esker.toml", "port = 0\nmin-replicas-to-write = 1\n");
    let mut server = Server::start(&esker, "serve --config esker.toml --min-slaves-to-write 5");
    for name in ["min-replicas-to-write", "min-slaves-to-write"] {
        assert_eq!(server.parameter(name), "5", "{name}");
    }
    esker.write("esker.toml", "busy-reply-threshold = 1\nlua-time-limit = 2\n");
    let outcome = esker.run(["serve", "--check-config", "--config", "esker.toml"]);
    assert!(outcome.code == 2 && outcome.err.contains("the option is there twice"), "{outcome:?}");
}

#[test]
fn an_empty_variable_does_not_outrank_the_file() {
    let esker = Esker::new();
    esker.write("esker.toml", "port = 0\nrequirepass = \"word\"\ntls-ca-cert-file = \"\"\n");
    let mut command = esker.command("serve --config esker.toml");
    let mut server = Server::start_with(command.env("ESKER_PASSWORD", "").env("ESKER_TIMEOUT", ""));
    assert!(server.say("PING").starts_with("-NOAUTH"));
    assert_eq!(server.say("AUTH word"), "+OK");
    assert_eq!(server.parameter("timeout"), "0");
    let outcome = esker.command("serve --check-config").env("ESKER_CONFIG", "").output().expect("run");
    assert!(outcome.status.success(), "{outcome:?}");
}

/// The server is killed after each change of a library. Every copy has the libraries of its moment.
#[cfg(feature = "lua")]
#[test]
fn functions_survive_kills_and_are_in_checkpoints_backups_and_exports() {
    let esker = Esker::new();
    let start = |db: &str| {
        let line = format!("--db {db} serve --port 0 --memory 64mb --fsync always --backup-dir {db}.copies");
        Server::start(&esker, &line)
    };
    let load = |server: &mut Server, n: u32| {
        let function = format!("redis.register_function('f', function() return {n} end)");
        let line = format!("FUNCTION LOAD REPLACE \"#!lua name=lib\\n{function}\"");
        assert_eq!(server.say(&line), "$3 lib");
    };
    let mut server = start("db");
    load(&mut server, 0);
    assert!(server.say("ES.CHECKPOINT monday").starts_with(':'));
    assert!(server.say("ES.BACKUP").starts_with('*'));
    for n in 1..5 {
        load(&mut server, n);
        server.process.kill().expect("kill the server");
        drop(server);
        server = start("db");
        assert_eq!(server.say("FCALL f 0"), format!(":{n}"));
    }
    drop(server);
    esker.ok("backup restore db.copies/backups restored");
    esker.ok("unload all.unload");
    esker.ok("--db loaded load all.unload");
    esker.ok("-k es.functions export functions.jsonl");
    esker.ok("--db imported -k es.functions import functions.jsonl");
    for (db, n) in [("db.copies/monday", 0), ("restored", 0), ("loaded", 4), ("imported", 4)] {
        let mut server = start(db);
        assert_eq!(server.say("FCALL f 0"), format!(":{n}"), "{db}");
        load(&mut server, 9);
        assert_eq!(server.say("FCALL f 0"), ":9", "{db}");
    }
}
