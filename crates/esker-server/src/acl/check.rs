//! Checks whether a user may run a request.

use super::selector::Selector;
use super::user::User;
use crate::command::flag;
use crate::command::reach::Reach;
use crate::command::spec::Spec;
use crate::command::uses::READ;
use crate::resp::Request;

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The user may not run the command.
    Command,
    /// The user may not use a key in this way.
    Key,
    /// The user may not use a channel.
    Channel,
    /// The name or the password is wrong.
    Auth,
}

impl Reason {
    /// The name in `ACL LOG`.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The reason.
    pub reason: Reason,
    /// The command, key or channel.
    pub object: Vec<u8>,
}

impl Denied {
    /// The text of the error reply.
    pub fn message(&self) -> String {
        let object = String::from_utf8_lossy(&self.object);
        match self.reason {
            Reason::Command => format!("NOPERM this user has no permissions to run the '{object}' command"),
            Reason::Key => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".to_owned()
            }
            Reason::Channel => {
                "NOPERM this user has no permissions to access one of the channels used as arguments"
                    .to_owned()
            }
            Reason::Auth => "WRONGPASS invalid username-password pair or user is disabled.".to_owned(),
        }
    }

    /// The reply of `ACL DRYRUN`.
    pub fn dry_message(&self) -> String {
        let object = String::from_utf8_lossy(&self.object);
        match self.reason {
            Reason::Command => format!("This user has no permissions to run the '{object}' command"),
            Reason::Key => format!("This user has no permissions to access the '{object}' key"),
            _ => format!("This user has no permissions to access the '{object}' channel"),
        }
    }
}

impl User {
    /// Checks whether the user may run a request. `at` is the index of the command in the table.
    ///
    /// # Errors
    /// The refusal by the selector that comes closest to allowing the request.
    pub fn check(&self, at: usize, command: &Spec, request: &Request) -> Result<(), Denied> {
        if self.is_unlimited || command.is(flag::NO_AUTH) {
            return Ok(());
        }
        let mut closest: Option<Denied> = None;
        for selector in &self.selectors {
            let Err(denied) = check_one(selector, at, command, request) else { return Ok(()) };
            if closest.as_ref().is_none_or(|known| known.reason < denied.reason) {
                closest = Some(denied);
            }
        }
        closest.map_or(Ok(()), Err)
    }
}

fn check_one(selector: &Selector, at: usize, command: &Spec, request: &Request) -> Result<(), Denied> {
    let denied = |reason, object: &[u8]| Err(Denied { reason, object: object.to_vec() });
    if !selector.allows_command(at, command, request) {
        return denied(Reason::Command, command.full_name(request).as_bytes());
    }
    for (key, used) in command.key_uses(request) {
        if !selector.allows_key(key, used.rights()) {
            return denied(Reason::Key, key);
        }
    }
    for reach in command.reaches_of(request) {
        let (is_allowed, reason, object) = match reach {
            Reach::AllKeys(rights) => (selector.allows_all_keys(rights), Reason::Key, b"*".as_slice()),
            Reach::Key(key) => (selector.allows_key(key, READ), Reason::Key, key),
            Reach::KeysWith(prefix) => (selector.allows_keys_with(prefix, READ), Reason::Key, prefix),
            Reach::Channel(name) => (selector.allows_channel(name, false), Reason::Channel, name),
            Reach::Pattern(name) => (selector.allows_channel(name, true), Reason::Channel, name),
            Reach::ChannelsWith(prefix) => (selector.allows_channels_with(prefix), Reason::Channel, prefix),
        };
        if !is_allowed {
            return denied(reason, object);
        }
    }
    Ok(())
}
