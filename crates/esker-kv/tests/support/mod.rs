//! Jobs that run in processes of their own, which tests kill, and a bank that shows what was lost.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use esker_kv::async_kv::AsyncKv;
use esker_kv::{Blocking, Error, Kv, Query, Retry, Space, Span, Transaction, collect};

const ACCOUNTS: u64 = 12;
const OPENING: u64 = 100;
const JOB: &str = "ESKER_KV_JOB";

/// Returns the job of this process, if a test has started it.
pub fn job() -> Option<String> {
    std::env::var(JOB).ok()
}

/// A process with a job. Killed with `kill -9` when dropped.
pub struct Job {
    child: Child,
    lines: Receiver<String>,
    pub seen: Vec<String>,
}

impl Job {
    /// Starts this program again, to run the test `child` with a job.
    pub fn start(job: &str, variables: &[(&str, &str)]) -> Job {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture", "--test-threads", "1"]).env(JOB, job);
        command.envs(variables.iter().copied());
        Job::spawn(command)
    }

    /// Starts a program.
    pub fn spawn(mut command: Command) -> Job {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || out.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Job { child, lines, seen: Vec::new() }
    }

    /// Reads lines up to the first with this beginning; fails after a minute.
    pub fn until(&mut self, start: &str) -> String {
        self.within(Duration::from_secs(60), start).unwrap_or_else(|| {
            panic!("no line {start:?}: {:?}", &self.seen[self.seen.len().saturating_sub(20)..])
        })
    }

    /// Reads lines up to the first with this beginning, for at most as long.
    pub fn within(&mut self, time: Duration, start: &str) -> Option<String> {
        let end = Instant::now() + time;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.starts_with(start) {
                        return Some(line);
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Reads lines for a while.
    pub fn read_for(&mut self, time: Duration) {
        assert_eq!(self.within(time, "an end that no job prints"), None);
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Kills the process with SIGKILL, and reads what it had printed.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.seen.extend(self.lines.iter());
        std::mem::take(&mut self.seen)
    }

    /// Waits for the end of the process, which must be a success.
    pub fn finish(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        self.seen.extend(self.lines.iter());
        assert!(self.child.wait().unwrap().success(), "{:#?}", self.seen);
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Transfers acknowledged in the output of [`load`].
pub fn acknowledged(lines: &[String]) -> Vec<String> {
    let names = lines.iter().filter_map(|line| line.strip_prefix("done "));
    names.map(str::to_owned).collect()
}

/// Lines of [`load`] about errors.
pub fn errors(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|line| line.starts_with("error ")).collect()
}

/// Keys of accounts are spread over the alphabet, so that a store with several regions has some in each.
fn account(n: u64) -> Vec<u8> {
    vec![b'a' + (n * 2 % 26) as u8, b'-', n as u8]
}

fn number(value: Option<&[u8]>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap()))
}

/// Opens the accounts, if they are not open.
pub fn open_bank(kv: &dyn Kv) -> Space {
    let space = kv.space("bank").unwrap();
    let opened = Retry { attempts: 200, ..Retry::default() }.run(kv, |transaction| {
        if transaction.get_for_update(&space, &account(0))?.is_none() {
            (0..ACCOUNTS).try_for_each(|n| transaction.put(&space, &account(n), &OPENING.to_be_bytes()))?;
        }
        Ok(())
    });
    opened.unwrap();
    space
}

fn transfer(
    transaction: &mut dyn Transaction,
    space: &Space,
    random: &mut fastrand::Rng,
    name: &str,
) -> esker_kv::Result<()> {
    let (from, to, amount) = (random.u64(..ACCOUNTS), random.u64(..ACCOUNTS), random.u64(..30));
    let left = number(transaction.get(space, &account(from))?.as_deref());
    let right = number(transaction.get_for_update(space, &account(to))?.as_deref());
    transaction.put(space, format!("z/{name}").as_bytes(), b"")?;
    if from != to && left >= amount {
        transaction.put(space, &account(from), &(left - amount).to_be_bytes())?;
        transaction.put(space, &account(to), &(right + amount).to_be_bytes())?;
    }
    Ok(())
}

/// Transfers money on several threads until the process is killed, or its input says `stop`. Prints
/// `done NAME` for each acknowledged transfer, `error NAME ERROR` for others.
pub fn load<A: AsyncKv + 'static>(kv: &Blocking<A>, threads: u64, name: &str) {
    let space = open_bank(kv);
    println!("ready");
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let over = is_over.clone();
    thread::spawn(move || {
        while std::io::stdin().read_line(&mut String::new()).is_ok_and(|len| len == 0) {
            thread::sleep(Duration::from_millis(100));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    thread::scope(|scope| {
        for thread in 0..threads {
            let (space, is_over) = (&space, &is_over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::new();
                let retry = Retry { attempts: 100, ..Retry::default() };
                for n in 0_u64.. {
                    if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        return;
                    }
                    let name = format!("{name}-{thread}-{n}");
                    match retry.run(kv, |transaction| transfer(transaction, space, &mut random, &name)) {
                        Ok(()) => println!("done {name}"),
                        Err(error) => {
                            println!("error {name} {}", kind(&error));
                            thread::sleep(Duration::from_millis(50));
                        }
                    }
                }
            });
        }
    });
}

/// The name of an error's variant, and its text.
pub fn kind(error: &Error) -> String {
    let name = format!("{error:?}");
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    format!("{name}: {error}").replace('\n', " ")
}

/// Checks the sum, and that all of these transfers are there. Each line of the input is a name.
pub fn check(kv: &dyn Kv) {
    let names: Vec<String> = std::io::stdin().lines().map_while(Result::ok).collect();
    let space = kv.space("bank").unwrap();
    let snapshot = kv.snapshot().unwrap();
    let entries = collect(&*snapshot, &space, Query::new(Span::ALL)).unwrap();
    let mut down = collect(&*snapshot, &space, Query::new(Span::ALL).order(esker_kv::Order::Down)).unwrap();
    down.reverse();
    assert_eq!(entries, down);
    let sum: u64 = entries.iter().filter(|(key, _)| key[1] == b'-').map(|(_, v)| number(Some(v))).sum();
    assert_eq!(sum, ACCOUNTS * OPENING);
    for name in &names {
        let key = format!("z/{name}");
        assert!(entries.iter().any(|(k, _)| k == key.as_bytes()), "transfer {name} is lost");
    }
    println!("checked {} transfers of {}", names.len(), entries.len() as u64 - ACCOUNTS);
}

/// Runs [`check`] in a process.
pub fn check_after(names: &[String], variables: &[(&str, &str)]) {
    let mut job = Job::start("check", variables);
    names.iter().for_each(|name| job.say(name));
    let lines = job.finish();
    println!("{}", lines.iter().find(|line| line.starts_with("checked")).unwrap());
}

/// Finds a program by a variable, or in the path. `None`: the test is left out, which it says.
pub fn program(variable: &str, name: &str) -> Option<String> {
    let found = std::env::var(variable).unwrap_or_else(|_| name.to_owned());
    let is_there = std::path::Path::new(&found).exists()
        || std::env::split_paths(&std::env::var_os("PATH")?).any(|dir| dir.join(&found).exists());
    let is_required = std::env::var("ESKER_REQUIRE").is_ok_and(|list| list.contains("stores"));
    assert!(is_there || !is_required, "{name} is not installed, and ${variable} does not name it");
    if !is_there {
        println!("left out: {name} is not installed, and ${variable} does not name it");
    }
    is_there.then_some(found)
}

/// Returns a free port of this machine.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
