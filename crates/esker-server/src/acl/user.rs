//! A user, and the rules that define it.

use super::secret::{Proofs, Secret};
use super::selector::Selector;
use crate::command::spec::Specs;

/// A user of the server.
#[derive(Clone, Debug)]
pub struct User {
    /// The name.
    pub name: String,
    /// Whether it may log in.
    pub is_on: bool,
    /// Whether any password is accepted.
    pub needs_no_password: bool,
    /// Hashes of its passwords.
    pub(super) secrets: Vec<Secret>,
    /// Its selectors. One of them has to allow a request. Rules outside of parentheses change the first.
    pub(super) selectors: Vec<Selector>,
    /// Whether it may do everything.
    pub is_unlimited: bool,
}

impl User {
    /// Creates a user without any rights.
    pub fn new(name: &str, specs: Specs) -> Self {
        User {
            name: name.to_owned(),
            is_on: false,
            needs_no_password: false,
            secrets: Vec::new(),
            selectors: vec![Selector::new(specs)],
            is_unlimited: false,
        }
    }

    /// Creates a user with all rights and without a password.
    pub fn unlimited(name: &str, specs: Specs) -> Self {
        let mut user = User::new(name, specs);
        let rules: [&[u8]; 5] = [b"on", b"nopass", b"~*", b"&*", b"+@all"];
        user.apply(&rules).expect("these rules are right");
        user
    }

    /// Sets its password. An empty one removes the need for a password.
    pub fn require(&mut self, password: &str) -> Result<(), String> {
        match password {
            "" => self.apply(&[b"nopass"]),
            password => self.apply(&[b"resetpass", format!(">{password}").as_bytes()]),
        }
    }

    /// Applies rules of `ACL SETUSER`.
    ///
    /// # Errors
    /// If a rule is invalid. Earlier rules stay applied.
    pub fn apply(&mut self, rules: &[&[u8]]) -> Result<(), String> {
        let mut rest = rules.iter();
        let mut plain = Vec::new();
        while let Some(rule) = rest.next() {
            if let Some(inner) = rule.strip_prefix(b"(") {
                let mut words = inner.to_vec();
                while words.last() != Some(&b')') {
                    let Some(next) = rest.next() else {
                        let text = String::from_utf8_lossy(rule);
                        return Err(format!(
                            "ERR Unmatched parenthesis in acl selector starting at '{text}'."
                        ));
                    };
                    words.push(b' ');
                    words.extend_from_slice(next);
                }
                words.pop();
                let mut selector = Selector::new(self.selectors[0].specs);
                for word in words.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
                    selector.apply(word).map_err(|why| refused(word, why))?;
                }
                self.selectors.push(selector);
                continue;
            }
            self.apply_one(rule, &mut plain).map_err(|why| refused(rule, &why))?;
        }
        self.is_unlimited = self.selectors.iter().any(Selector::is_unlimited);
        Ok(())
    }

    /// Applies a rule. `plain`: the passwords that earlier rules have added. Comparing them takes no hash.
    fn apply_one<'r>(&mut self, rule: &'r [u8], plain: &mut Vec<(Secret, &'r [u8])>) -> Result<(), String> {
        match rule.to_ascii_lowercase().as_slice() {
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"nopass" => {
                self.needs_no_password = true;
                self.secrets.clear();
            }
            b"resetpass" => {
                self.needs_no_password = false;
                self.secrets.clear();
            }
            b"reset" => *self = User::new(&self.name, self.selectors[0].specs),
            b"clearselectors" => self.selectors.truncate(1),
            // RESTORE always checks payloads.
            b"sanitize-payload" | b"skip-sanitize-payload" => {}
            _ => match rule.split_first() {
                Some((b'>', password)) => {
                    let is_it = |secret: &Secret| match plain.iter().find(|(own, _)| own == secret) {
                        Some((_, own)) => *own == password,
                        None => secret.is_hash_of(password),
                    };
                    if !self.secrets.iter().any(is_it) {
                        // A login with a wrong password computes one hash for each password.
                        if self.secrets.iter().filter(|secret| secret.is_slow()).count() >= PASSWORDS_MAX {
                            return Err(TOO_MANY_PASSWORDS.to_owned());
                        }
                        let secret = Secret::of(password)?;
                        plain.push((secret.clone(), password));
                        self.add(secret);
                    }
                }
                Some((b'<', password)) => self.remove(|secret| secret.is_hash_of(password))?,
                Some((b'#', text)) => {
                    let secret = Secret::parse(text).ok_or(WRONG_HASH)?;
                    if !self.secrets.contains(&secret) {
                        self.add(secret);
                    }
                }
                Some((b'!', text)) => {
                    let meant = Secret::parse(text).ok_or(WRONG_HASH)?;
                    self.remove(|secret| *secret == meant)?;
                }
                _ => self.selectors[0].apply(rule).map_err(str::to_owned)?,
            },
        }
        Ok(())
    }

    fn add(&mut self, secret: Secret) {
        self.secrets.push(secret);
        self.needs_no_password = false;
    }

    fn remove(&mut self, is_meant: impl Fn(&Secret) -> bool) -> Result<(), String> {
        let before = self.secrets.len();
        self.secrets.retain(|secret| !is_meant(secret));
        match self.secrets.len() == before {
            true => Err("The password you are trying to remove from the user does not exist".to_owned()),
            false => Ok(()),
        }
    }

    /// Returns whether a password is right, as far as this is known without a slow hash.
    pub(super) fn has_password(&self, password: &[u8], proofs: &Proofs) -> bool {
        self.needs_no_password
            || self.secrets.iter().any(|secret| match secret.is_slow() {
                true => proofs.has(secret, password),
                false => secret.is_hash_of(password),
            })
    }

    /// The names of its flags.
    pub fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            flags.push("nopass");
        }
        flags
    }

    /// Hashes of its passwords.
    pub fn hashes(&self) -> Vec<String> {
        self.secrets.iter().map(Secret::text).collect()
    }

    /// Rules for commands, keys and channels of each selector.
    pub fn rights(&self) -> Vec<[String; 3]> {
        self.selectors.iter().map(Selector::describe).collect()
    }

    /// A line of `ACL LIST`. `apply` on its rules rebuilds the user.
    pub fn line(&self) -> String {
        let mut words = vec!["user".to_owned(), self.name.clone()];
        words.extend(self.flags().iter().map(|flag| (*flag).to_owned()));
        words.extend(self.hashes().iter().map(|hash| format!("#{hash}")));
        words.push(self.selectors[0].rules());
        words.extend(self.selectors[1..].iter().map(|selector| format!("({})", selector.rules())));
        words.join(" ")
    }
}

/// Maximum number of passwords of a user, not counting hashes of Redis.
const PASSWORDS_MAX: usize = 32;
const TOO_MANY_PASSWORDS: &str = "The user has 32 passwords: remove some";
const WRONG_HASH: &str = "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters, or be an argon2id hash in its text form";

fn refused(rule: &[u8], why: &str) -> String {
    // Passwords must not appear in the error.
    let shown = match rule.first() {
        Some(first @ (b'>' | b'<')) => char::from(*first).to_string(),
        _ => String::from_utf8_lossy(rule).into_owned(),
    };
    format!("ERR Error in ACL SETUSER modifier '{shown}': {why}")
}
