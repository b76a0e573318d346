//! The Redis protocol, both versions: requests in, replies out.
//!
//! ```text
//!   socket --> Input --Parser--> Request        Out --> socket
//! ```
//!
//! Bytes: <https://redis.io/docs/latest/develop/reference/protocol-spec/>

pub mod fail;
mod input;
pub mod numbers;
mod out;
mod parser;
mod request;
mod unconfirmed;

pub use self::input::Input;
#[cfg(feature = "lua")]
pub use self::out::ERROR_BYTES_MAX;
pub use self::out::{Mark, Out, REPLY_BYTES_MAX, format_double, format_int};
pub use self::parser::{Limits, Parser};
pub use self::request::Request;
