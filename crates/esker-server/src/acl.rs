//! Users: how clients authenticate, and which commands, keys and channels they may use.
//!
//! ```text
//!   AUTH user password --> secret: is it the password? --> session: User
//!   request --> check: command, keys, channels <-- User <-- rules of ACL SETUSER
//! ```
//!
//! acl.1. A request of a restricted user is checked when `MULTI` queues it, when it runs, and when a script
//!     calls it.
//!
//! - A change of a user applies to its connections from their next command on.
//! - Passwords are hashed outside the threads that serve connections, a few at a time.
//!
//! The file of users: docs/formats/server.md

mod check;
mod file;
mod log;
mod secret;
mod selector;
mod user;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tokio::sync::Semaphore;

pub use self::check::Reason;
pub use self::log::{AclLog, Refusal};
use self::secret::{HASHED_AT_ONCE, Proofs};
pub use self::user::User;
use crate::command::spec::Specs;
use crate::config::options::Options;

/// User of clients that have not authenticated.
pub const DEFAULT: &str = "default";

/// All users.
pub struct Acl {
    /// Specifications of all commands.
    specs: Specs,
    users: RwLock<BTreeMap<String, Arc<User>>>,
    /// Number of changes of users. Release and acquire: a reader of the new number also sees the change.
    generation: AtomicU64,
    proofs: Proofs,
    hashing: Semaphore,
    file: Option<PathBuf>,
    /// Refused requests.
    pub log: AclLog,
}

impl Acl {
    /// Loads the users of the file, if the options name one, and adds `default`.
    ///
    /// # Errors
    /// If the file is invalid.
    pub fn new(specs: Specs, options: &Options) -> Result<Self, String> {
        let acl = Acl {
            specs,
            users: RwLock::default(),
            generation: AtomicU64::new(1),
            proofs: Proofs::new()?,
            hashing: Semaphore::new(HASHED_AT_ONCE),
            file: options.acl_file.clone(),
            log: AclLog::default(),
        };
        let mut default = User::unlimited(DEFAULT, specs);
        default.require(&options.password)?;
        let mut users = match &acl.file {
            Some(path) => file::read(path, specs)?,
            None => BTreeMap::new(),
        };
        users.entry(DEFAULT.to_owned()).or_insert_with(|| Arc::new(default));
        *acl.users.write() = users;
        Ok(acl)
    }

    /// Replaces all users.
    pub fn replace(&self, users: Vec<Arc<User>>) {
        let users = users.into_iter().map(|user| (user.name.clone(), user)).collect();
        self.change(|known| *known = users);
    }

    /// Number of changes of users so far.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns a user by name.
    pub fn user(&self, name: &str) -> Option<Arc<User>> {
        self.users.read().get(name).cloned()
    }

    /// The user of a client that has not authenticated, or none if it has to.
    pub fn stranger(&self) -> Option<Arc<User>> {
        self.user(DEFAULT).filter(|user| user.is_on && user.needs_no_password)
    }

    /// All users, sorted by name.
    pub fn users(&self) -> Vec<Arc<User>> {
        self.users.read().values().cloned().collect()
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<User>>) -> T) -> T {
        let changed = change(&mut self.users.write());
        self.generation.fetch_add(1, Ordering::Release);
        changed
    }

    /// Creates or changes a user. Applies all rules or none.
    ///
    /// # Errors
    /// If a rule is invalid.
    pub fn set(&self, name: &str, rules: &[&[u8]]) -> Result<(), String> {
        if name.is_empty() {
            return Err("ERR Usernames can't be empty".to_owned());
        }
        if name.bytes().any(|byte| byte.is_ascii_whitespace() || byte == 0) {
            return Err("ERR Usernames can't contain spaces or null characters".to_owned());
        }
        let mut user = self.user(name).map_or_else(|| User::new(name, self.specs), |user| User::clone(&user));
        user.apply(rules)?;
        self.change(|users| users.insert(name.to_owned(), Arc::new(user)));
        Ok(())
    }

    /// Sets the password of `default`. An empty one removes the need for a password.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn require(&self, password: &str) -> Result<(), String> {
        let mut user = self
            .user(DEFAULT)
            .map_or_else(|| User::unlimited(DEFAULT, self.specs), |user| User::clone(&user));
        user.require(password)?;
        self.change(|users| users.insert(DEFAULT.to_owned(), Arc::new(user)));
        Ok(())
    }

    /// Removes a user. Returns whether it existed.
    pub fn remove(&self, name: &str) -> bool {
        self.change(|users| users.remove(name)).is_some()
    }

    /// Hashes a password that a client has sent, unless it is known to be right. `log_in` uses the
    /// result.
    pub async fn prove(&self, name: &[u8], password: &[u8]) {
        let user = std::str::from_utf8(name).ok().and_then(|name| self.user(name));
        let Some(user) = user.filter(|user| user.is_on && !user.has_password(password, &self.proofs)) else {
            return;
        };
        for secret in user.secrets.iter().filter(|secret| secret.is_slow()) {
            let Ok(_permit) = self.hashing.acquire().await else { return };
            if tokio::task::block_in_place(|| secret.is_hash_of(password)) {
                self.proofs.add(secret, password);
                return;
            }
        }
    }

    /// Returns the user of this name and password if it may log in. `prove` must have run before.
    pub fn log_in(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.user(std::str::from_utf8(name).ok()?)?;
        (user.is_on && user.has_password(password, &self.proofs)).then_some(user)
    }

    /// Writes all users to the file.
    ///
    /// # Errors
    /// If no file is configured, or it cannot be written.
    pub fn save(&self) -> Result<(), String> {
        let path = self.file.as_ref().ok_or(file::NONE)?;
        file::write(path, &self.users())
    }

    /// Replaces all users by those of the file. Returns the names of the users that are gone.
    ///
    /// # Errors
    /// If no file is configured, or it is invalid. Nothing changes then.
    pub fn load(&self) -> Result<Vec<String>, String> {
        let path = self.file.as_ref().ok_or(file::NONE)?;
        let mut users = file::read(path, self.specs)?;
        users.entry(DEFAULT.to_owned()).or_insert_with(|| Arc::new(User::unlimited(DEFAULT, self.specs)));
        let old = self.change(|known| std::mem::replace(known, users));
        Ok(old.into_keys().filter(|name| self.user(name).is_none()).collect())
    }
}

/// Fills a buffer with unpredictable random bytes.
///
/// # Errors
/// If the system has none.
pub fn random(bytes: &mut [u8]) -> Result<(), String> {
    getrandom::fill(bytes).map_err(|error| format!("ERR the system provides no random numbers: {error}"))
}

#[cfg(test)]
mod tests;
