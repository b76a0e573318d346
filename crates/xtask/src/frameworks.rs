//! Runs third-party frameworks against `esker serve`; scripts check the results.
//!
//! ```text
//!   crates/xtask/frameworks/LANGUAGE/*: script --port--> framework --> esker serve --> exit status
//! ```
//!
//! Packages with pinned versions are installed below `target/frameworks`, once per change of their list. If a
//! registry or language is unavailable, its scripts are skipped; with `ESKER_REQUIRE=frameworks` this is an
//! error. Every script has its own server. Packages have exact versions, so that a failure is due to the
//! server.
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cargo;

/// Time limit of a script.
const LIMIT: Duration = Duration::from_secs(120);

/// A language: the location of its scripts, and how to run them.
struct Language {
    name: &'static str,
    ending: &'static str,
    /// The files that list the packages.
    packages: &'static [&'static str],
    /// Runs in the directory of the packages, with the scripts' directory as `$0`.
    install: &'static str,
    /// Relative to the directory of the packages.
    program: &'static str,
}

const LANGUAGES: [Language; 2] = [
    Language {
        name: "python",
        ending: "py",
        packages: &["requirements.txt", "alone.txt"],
        install: "python3 -m venv . && bin/pip install -q -r \"$0/requirements.txt\" && \
                  bin/pip install -q --no-deps -r \"$0/alone.txt\"",
        program: "bin/python",
    },
    Language {
        name: "node",
        ending: "js",
        packages: &["package.json"],
        install: "cp \"$0/package.json\" . && npm install --no-audit --no-fund --no-package-lock --ignore-scripts --silent",
        program: "node",
    },
];

/// Runs the scripts whose names contain one of these words, or all. Returns whether they succeed.
pub(crate) fn run(words: &[&str]) -> Result<bool, String> {
    let server = build()?;
    let (mut passed, mut failed) = (0, 0);
    for language in &LANGUAGES {
        let scripts = language.scripts(words)?;
        if scripts.is_empty() {
            continue;
        }
        if let Err(message) = language.install() {
            if std::env::var("ESKER_REQUIRE").is_ok_and(|list| list.contains("frameworks")) {
                return Err(message);
            }
            println!("{message}: its scripts are skipped");
            continue;
        }
        for script in scripts {
            let start = Instant::now();
            match language.run(&script, &server) {
                Ok(()) => {
                    passed += 1;
                    println!("{}: ok, {:.1} s", name(&script), start.elapsed().as_secs_f64());
                }
                Err(message) => {
                    failed += 1;
                    println!("{}: FAILED\n{message}", name(&script));
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

impl Language {
    /// Returns the directory of its scripts.
    fn source(&self) -> PathBuf {
        cargo::root().join("crates/xtask/frameworks").join(self.name)
    }

    /// Returns the directory of its installed packages.
    fn install_dir(&self) -> PathBuf {
        cargo::target_dir().join("frameworks").join(self.name)
    }

    fn scripts(&self, words: &[&str]) -> Result<Vec<PathBuf>, String> {
        let folder = self.source();
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut scripts: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        scripts.retain(|path| path.extension().is_some_and(|ending| ending == self.ending));
        scripts.retain(|path| words.is_empty() || words.iter().any(|word| name(path).contains(word)));
        scripts.sort();
        Ok(scripts)
    }

    /// Installs the packages unless the same list is already installed.
    fn install(&self) -> Result<(), String> {
        let (source, dir) = (self.source(), self.install_dir());
        let wanted: String = self
            .packages
            .iter()
            .map(|file| fs::read_to_string(source.join(file)).map_err(|e| format!("{file}: {e}")))
            .collect::<Result<_, _>>()?;
        let stamp = dir.join("installed");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        let cannot = |e: &dyn std::fmt::Display| {
            format!("the packages of {} cannot be installed here ({e})", self.name)
        };
        fs::create_dir_all(&dir).map_err(|e| cannot(&e))?;
        let mut install = Command::new("sh");
        install.args(["-c", self.install]).arg(&source).current_dir(&dir);
        let status = install.stdin(Stdio::null()).status().map_err(|e| cannot(&e))?;
        if !status.success() {
            return Err(cannot(&status));
        }
        fs::write(&stamp, wanted).map_err(|e| cannot(&e))
    }

    /// Runs a script against its own server. Returns its output if it failed.
    #[expect(clippy::disallowed_types, reason = "a real file, for the script to write to")]
    fn run(&self, script: &Path, server: &Path) -> Result<(), String> {
        let (dir, running) = (self.install_dir(), Server::start(server)?);
        let program = dir.join(self.program);
        let said = dir.join("said");
        let file = fs::File::create(&said).map_err(|e| e.to_string())?;
        let mut child =
            Command::new(if program.exists() { program.as_path() } else { Path::new(self.program) })
                .arg(script)
                .arg(&running.port)
                .current_dir(&dir)
                // For scripts that start servers of their own.
                .env("ESKER", server)
                .env("NODE_PATH", dir.join("node_modules"))
                .env("PYTHONWARNINGS", "ignore")
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .stdin(Stdio::null())
                .stdout(file.try_clone().map_err(|e| e.to_string())?)
                .stderr(file)
                .spawn()
                .map_err(|e| format!("{}: {e}", self.program))?;
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(format!("{}{status}", fs::read_to_string(&said).unwrap_or_default()));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(format!(
            "{}it did not end within {} s",
            fs::read_to_string(&said).unwrap_or_default(),
            LIMIT.as_secs()
        ))
    }
}

/// A server on a free port with an empty database. Dropping it removes both.
struct Server {
    process: Child,
    port: String,
    dir: PathBuf,
}

impl Server {
    fn start(program: &Path) -> Result<Self, String> {
        let dir = cargo::target_dir().join("frameworks").join(format!("data-{}", std::process::id()));
        let mut process = Command::new(program)
            .arg("-d")
            .arg(&dir)
            .args(["serve", "--port", "0"])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", program.display()))?;
        let mut lines = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut line = String::new();
        // Later output of the server is discarded, so that it does not block.
        let read = lines.read_line(&mut line);
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let mut server = Server { process, port: String::new(), dir };
        read.map_err(|e| e.to_string())?;
        let port =
            line.trim().rsplit_once(':').map(|(_, port)| port).ok_or(format!("the server says: {line}"))?;
        port.clone_into(&mut server.port);
        let _ = std::io::stdout().flush();
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Builds the tool and returns its path.
fn build() -> Result<PathBuf, String> {
    let built = cargo::program("cargo")
        .args(["build", "--quiet", "-p", "esker-cli"])
        .status()
        .map_err(|e| format!("cargo cannot be started: {e}"))?;
    if !built.success() {
        return Err("the tool cannot be built".to_owned());
    }
    Ok(cargo::target_dir().join("debug").join(format!("esker{}", std::env::consts::EXE_SUFFIX)))
}

fn name(script: &Path) -> std::borrow::Cow<'_, str> {
    script.file_name().unwrap_or_default().to_string_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_exact_versions() {
        for language in &LANGUAGES {
            assert!(language.scripts(&[]).unwrap().len() > 3);
            for file in language.packages {
                let text = fs::read_to_string(language.source().join(file)).unwrap();
                let is_package = |line: &&str| line.contains("==") || line.contains("\": \"");
                let other =
                    |line: &&str| line.starts_with('#') || !line.contains(|c: char| c.is_ascii_digit());
                for line in text.lines().filter(|line| !is_package(line)) {
                    assert!(other(&line), "{file}: {line}");
                }
                for sign in ['^', '~', '*', '>', '<'] {
                    assert!(!text.contains(sign), "{file}: {sign}");
                }
            }
        }
    }
}
