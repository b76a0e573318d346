//! Defines the arguments by which `esker import` and `esker export` move data from and to Redis.

use std::path::PathBuf;
use std::time::Duration;

use super::seconds;
use crate::failure::{Failure, Result};
use crate::migration::{Server, password_of};

/// Heading in the help.
const HEADING: &str = "Redis and servers";

/// The server of Esker, and the Redis on the other side.
#[derive(Debug, clap::Args)]
pub(crate) struct RedisArgs {
    /// The server of Esker (`esker serve`) that gets the data, or whose data is exported
    #[arg(long, help_heading = HEADING, value_name = "ADDRESS:PORT")]
    pub(crate) server: Option<String>,
    /// The user to log in as at the server
    #[arg(long, help_heading = HEADING, value_name = "NAME", default_value = "default", requires = "server")]
    pub(crate) user: String,
    /// Password of the user
    #[arg(long, help_heading = HEADING, value_name = "PASSWORD", env = "ESKER_PASSWORD", hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// The running Redis or Valkey that is imported from, or exported to
    #[arg(long, help_heading = HEADING, value_name = "ADDRESS:PORT", requires = "server")]
    pub(crate) redis: Option<String>,
    /// The user to log in as at Redis
    #[arg(long, help_heading = HEADING, value_name = "NAME", default_value = "default", requires = "redis")]
    pub(crate) redis_user: String,
    /// File whose first line is that user's password
    #[arg(long, help_heading = HEADING, value_name = "FILE", requires = "redis")]
    pub(crate) redis_password_file: Option<PathBuf>,
    /// The password itself; better in the environment, where others do not see it
    #[arg(long, help_heading = HEADING, value_name = "PASSWORD", env = "ESKER_REDIS_PASSWORD", hide_env_values = true)]
    pub(crate) redis_password: Option<String>,
    /// Remove all databases and functions of the target first. Without it a target with keys is refused
    #[arg(long, help_heading = HEADING, requires = "server")]
    pub(crate) replace: bool,
}

/// When an import from a running Redis ends.
#[derive(Debug, clap::Args)]
pub(crate) struct FollowArgs {
    /// End once all is applied that the source has when its snapshot is loaded [default: end at SIGINT or
    /// SIGTERM]
    #[arg(long, help_heading = HEADING, requires = "redis")]
    pub(crate) until_caught_up: bool,
    /// End once the source has written nothing for this long and all is applied
    #[arg(long, help_heading = HEADING, value_name = "SECONDS", value_parser = seconds, requires = "redis", conflicts_with = "until_caught_up")]
    pub(crate) until_idle: Option<Duration>,
    /// Directory for temporary files: the snapshot, and what the source writes meanwhile [default: the
    /// system's]
    #[arg(long, help_heading = HEADING, value_name = "DIR", requires = "redis")]
    pub(crate) spool: Option<PathBuf>,
}

impl RedisArgs {
    /// Returns the server of Esker if one is given.
    pub(crate) fn esker(&self) -> Option<Server> {
        let address = self.server.clone()?;
        Some(Server { address, user: self.user.clone(), password: self.password.clone() })
    }

    /// Returns the Redis if one is given.
    pub(crate) fn other(&self) -> Result<Option<Server>> {
        let Some(address) = self.redis.clone() else { return Ok(None) };
        let password = match (&self.redis_password_file, &self.redis_password) {
            (Some(file), _) => Some(password_of(file)?),
            (None, password) => password.clone(),
        };
        if password.is_none() && self.redis_user != "default" {
            return Err(Failure::message(
                "--redis-user needs a password: --redis-password-file or ESKER_REDIS_PASSWORD",
            ));
        }
        Ok(Some(Server { address, user: self.redis_user.clone(), password }))
    }
}
