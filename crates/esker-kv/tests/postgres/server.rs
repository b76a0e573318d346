//! A PostgreSQL server of a test, in a directory of its own.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The server refuses to run as root. This user has no files and is on every system.
const USER: &str = "65534";

pub struct Server {
    programs: PathBuf,
    dir: TempDir,
    port: u16,
    settings: &'static [&'static str],
    process: Child,
}

/// The directory of the server's programs: `ESKER_POSTGRES`, or where Debian's package has them.
fn programs() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("ESKER_POSTGRES") {
        return Some(dir.into());
    }
    let releases = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut dirs: Vec<_> = releases.flatten().map(|release| release.path().join("bin")).collect();
    dirs.retain(|dir| dir.join("initdb").exists());
    dirs.sort();
    dirs.pop()
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

/// A command that runs as a user other than root.
fn as_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program);
    command
}

fn signal(name: &str, process: u32) {
    let _ = Command::new("kill").args([name, &process.to_string()]).stderr(Stdio::null()).status();
}

/// The state and the parent of a process, if it is there.
fn process(id: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut words = stat.rsplit(')').next()?.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| process(*id).is_some_and(|(_, its_parent)| its_parent == parent)).collect()
}

impl Server {
    /// Starts a server. Without the programs returns `None`, or panics if `ESKER_REQUIRE` has `stores`.
    pub fn start(settings: &'static [&'static str]) -> Option<Self> {
        let Some(programs) = programs() else {
            let is_required = std::env::var("ESKER_REQUIRE").is_ok_and(|list| list.contains("stores"));
            assert!(!is_required, "there is no PostgreSQL here");
            println!("there is no PostgreSQL here: nothing is tested");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("password"), "secret\n").unwrap();
        if is_root() {
            assert!(Command::new("chown").args(["-R", USER]).arg(dir.path()).status().unwrap().success());
        }
        let made = as_user(&programs.join("initdb"))
            .arg("-D")
            .arg(dir.path().join("data"))
            .arg(format!("--pwfile={}", dir.path().join("password").display()))
            .args(["-U", "esker", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Self::run(&programs, dir.path(), port, settings);
        let server = Server { programs, dir, port, settings, process };
        server.wait();
        Some(server)
    }

    fn run(programs: &Path, dir: &Path, port: u16, settings: &[&str]) -> Child {
        let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("log")).unwrap();
        let mut command = as_user(&programs.join("postgres"));
        command.arg("-D").arg(dir.join("data")).args(["-p", &port.to_string()]);
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories="].iter().chain(settings) {
            command.args(["-c", setting]);
        }
        command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    pub fn url(&self) -> String {
        format!("postgres://esker:secret@127.0.0.1:{}/postgres", self.port)
    }

    /// Waits until the server answers.
    fn wait(&self) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let url = self.url();
        while let Err(error) = runtime.block_on(tokio_postgres::connect(&url, tokio_postgres::NoTls)) {
            let log = || fs::read_to_string(self.dir.path().join("log")).unwrap();
            assert!(Instant::now() < end, "the server does not answer: {error}\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends all processes of the server as a crash does.
    pub fn kill(&mut self) {
        let main = self.process.id();
        // A process that is stopped starts no further ones.
        signal("-STOP", main);
        let children = children(main);
        for process in children.iter().chain([&main]) {
            signal("-KILL", *process);
        }
        self.process.wait().unwrap();
        // The next server waits for none of them: it refuses to start while one has the shared memory.
        while children.iter().any(|id| process(*id).is_some_and(|(state, _)| state != "Z")) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops all processes of the server (`-STOP`), or lets them go on (`-CONT`).
    pub fn signal_all(&self, name: &str) {
        let main = self.process.id();
        for process in children(main).into_iter().chain([main]) {
            signal(name, process);
        }
    }

    pub fn restart(&mut self) {
        self.process = Self::run(&self.programs, self.dir.path(), self.port, self.settings);
        self.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        signal("-QUIT", self.process.id());
        let _ = self.process.wait();
    }
}
