//! Messages from the child to its parent through a pipe, before and after each operation.
//!
//! ```text
//!   child: Intent, operation, Ack, Intent ... --8 bytes each, one write--> pipe --> parent, after the kill
//! ```
//!
//! Each message is written by one system call, so messages of different threads do not mix, and messages in
//! the pipe survive the child. The order in the pipe is chronological: an acknowledgement precedes the start
//! of any later operation.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// The length of a message.
const BYTES: usize = 8;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The database is open.
    Opened,
    /// This writer starts its next operation.
    Intent(u8),
    /// This writer's operation is acknowledged.
    Ack(u8),
}

impl Message {
    fn encode(self) -> [u8; BYTES] {
        let (kind, writer) = match self {
            Message::Opened => (b'O', 0),
            Message::Intent(writer) => (b'I', writer),
            Message::Ack(writer) => (b'A', writer),
        };
        [kind, writer, b'e', b's', b'k', b'e', b'r', b'\n']
    }

    fn decode(bytes: &[u8]) -> Option<Message> {
        let message = match bytes[0] {
            b'O' => Message::Opened,
            b'I' => Message::Intent(bytes[1]),
            b'A' => Message::Ack(bytes[1]),
            _ => return None,
        };
        (message.encode() == *bytes).then_some(message)
    }
}

/// The child's end of the pipe: its standard output.
pub(crate) struct Sender(File);

impl Sender {
    pub(crate) fn stdout() -> io::Result<Self> {
        Ok(Sender(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// Sends a message. Fails if the parent is gone.
    pub(crate) fn send(&self, message: Message) -> io::Result<()> {
        (&self.0).write_all(&message.encode())
    }
}

/// Decodes all messages that the parent read, ignoring a truncated one. `None` if they are invalid.
pub(crate) fn decode_all(bytes: &[u8]) -> Option<Vec<Message>> {
    bytes.chunks_exact(BYTES).map(Message::decode).collect()
}

/// Returns the number of acknowledged operations per writer in the output so far.
pub(crate) fn acks(bytes: &[u8], writers: usize) -> Vec<usize> {
    let mut acks = vec![0; writers];
    for message in bytes.chunks_exact(BYTES).filter_map(Message::decode) {
        if let Message::Ack(writer) = message
            && let Some(count) = acks.get_mut(usize::from(writer))
        {
            *count += 1;
        }
    }
    acks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_and_noise_does_not() {
        let all = [Message::Opened, Message::Intent(3), Message::Ack(3), Message::Intent(10)];
        let mut bytes: Vec<u8> = all.iter().flat_map(|m| m.encode()).collect();
        assert_eq!(decode_all(&bytes).unwrap(), all);
        assert_eq!(acks(&bytes, 4), [0, 0, 0, 1]);
        bytes.extend([b'I', 1]);
        assert_eq!(decode_all(&bytes).unwrap(), all, "the last one was cut off");
        bytes[9] = 9;
        bytes[10] = b'x';
        assert!(decode_all(&bytes).is_none());
    }
}
