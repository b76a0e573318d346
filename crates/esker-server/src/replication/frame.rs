//! Frames: the messages between a primary and a replica.
//!
//! ```text
//!   primary --Ops, Commit, Alive, End; copies: File, Data, FileEnd, Keep, CopyEnd--> replica
//!           <--Ack; copies: Have, HaveEnd-----------------------------------------
//! ```
//!
//! A frame with a wrong checksum or an unknown type ends the connection. Nothing of it is used.
//!
//! Bytes: docs/formats/replication.md

use super::bytes::{Broken, Reader, put_string};
use super::position::Position;

/// The version of the protocol.
pub const VERSION: u32 = 3;
/// Size of a frame's header: length, type, checksum.
const HEADER_BYTES: usize = 9;
/// Maximum size of a frame.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A part of the changes of a commit (docs/formats/changes.md). It may end anywhere.
    Ops(Vec<u8>),
    /// The changes received so far make this commit.
    Commit(Position),
    /// The changes received so far are not for the replica.
    Abandon,
    /// Nothing new. Names the sender's newest commit.
    Alive(u64),
    /// The sender ends, with the reason.
    End(String),
    /// Progress of a replica: the newest received, visible and durable commit.
    Ack([u64; 3]),
    /// A file that the replica has from an earlier attempt: name, size, digest.
    Have(String, u64, u128),
    /// The end of these files.
    HaveEnd,
    /// The start of a file of the copy: name and size.
    File(String, u64),
    /// The next bytes of the file.
    Data(Vec<u8>),
    /// The end of the file, with its digest.
    FileEnd(u128),
    /// The replica has this file already.
    Keep(String),
    /// The end of the copy.
    CopyEnd,
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Frame::Ops(_) => 1,
            Frame::Commit(_) => 2,
            Frame::Abandon => 3,
            Frame::Alive(_) => 4,
            Frame::End(_) => 5,
            Frame::Ack(_) => 6,
            Frame::Have(..) => 16,
            Frame::HaveEnd => 17,
            Frame::File(..) => 18,
            Frame::Data(_) => 19,
            Frame::FileEnd(_) => 20,
            Frame::Keep(_) => 21,
            Frame::CopyEnd => 22,
        }
    }

    /// Encodes the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, self.kind(), 0, 0, 0, 0]);
        match self {
            Frame::Ops(bytes) | Frame::Data(bytes) => out.extend_from_slice(bytes),
            Frame::Commit(position) => position.encode(out),
            Frame::Alive(newest) => out.extend_from_slice(&newest.to_le_bytes()),
            Frame::End(text) | Frame::Keep(text) => put_string(out, text.as_bytes()),
            Frame::Ack(numbers) => numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes())),
            Frame::Have(name, len, digest) => {
                put_string(out, name.as_bytes());
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&digest.to_le_bytes());
            }
            Frame::File(name, len) => {
                put_string(out, name.as_bytes());
                out.extend_from_slice(&len.to_le_bytes());
            }
            Frame::FileEnd(digest) => out.extend_from_slice(&digest.to_le_bytes()),
            Frame::Abandon | Frame::HaveEnd | Frame::CopyEnd => {}
        }
        let len = out.len() - start - HEADER_BYTES;
        debug_assert!(len <= FRAME_BYTES_MAX);
        out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
        let sum = checksum(&out[start..]);
        out[start + 5..start + HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// Decodes the first frame, and returns its size. `None` if it is incomplete.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Broken> {
        let mut reader = Reader::new(bytes);
        let (Ok(len), Ok(kind), Ok(sum)) = (reader.u32(), reader.u8(), reader.u32()) else {
            return Ok(None);
        };
        let len = len as usize;
        if len > FRAME_BYTES_MAX {
            return Err(Broken("a frame is too long"));
        }
        let Ok(body) = reader.take(len) else { return Ok(None) };
        if checksum(&bytes[..HEADER_BYTES + len]) != sum {
            return Err(Broken("a frame has a wrong checksum"));
        }
        let mut reader = Reader::new(body);
        let frame = Self::decode_body(kind, &mut reader)?;
        match reader.left() {
            0 => Ok(Some((frame, HEADER_BYTES + len))),
            _ => Err(Broken("a frame has bytes after its content")),
        }
    }

    fn decode_body(kind: u8, reader: &mut Reader<'_>) -> Result<Frame, Broken> {
        let digest = |reader: &mut Reader<'_>| {
            let low = u128::from(reader.u64()?);
            Ok(low | u128::from(reader.u64()?) << 64)
        };
        Ok(match kind {
            1 => Frame::Ops(reader.take(reader.left())?.to_vec()),
            2 => Frame::Commit(Position::decode(reader)?),
            3 => Frame::Abandon,
            4 => Frame::Alive(reader.u64()?),
            5 => Frame::End(reader.text()?.to_owned()),
            6 => Frame::Ack([reader.u64()?, reader.u64()?, reader.u64()?]),
            16 => Frame::Have(reader.text()?.to_owned(), reader.u64()?, digest(reader)?),
            17 => Frame::HaveEnd,
            18 => Frame::File(reader.text()?.to_owned(), reader.u64()?),
            19 => Frame::Data(reader.take(reader.left())?.to_vec()),
            20 => Frame::FileEnd(digest(reader)?),
            21 => Frame::Keep(reader.text()?.to_owned()),
            22 => Frame::CopyEnd,
            _ => return Err(Broken("a frame is of a type that is not known: one side is newer")),
        })
    }
}

/// Returns the checksum of length, type and content.
fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..5]), &frame[HEADER_BYTES..])
}

#[cfg(test)]
mod tests {
    use super::super::position::Epoch;
    use super::*;

    fn all() -> Vec<Frame> {
        let position = Position { epoch: Epoch { number: 3, mark: 9 }, seq: 1 << 40 };
        vec![
            Frame::Ops(b"changes".to_vec()),
            Frame::Commit(position),
            Frame::Abandon,
            Frame::Alive(7),
            Frame::End("why".to_owned()),
            Frame::Ack([3, 2, 1]),
            Frame::Have("000012.sst".to_owned(), 5, 1 << 100),
            Frame::HaveEnd,
            Frame::File("000013.sst".to_owned(), 6),
            Frame::Data(vec![0; FRAME_BYTES_MAX]),
            Frame::FileEnd(77),
            Frame::Keep("000012.sst".to_owned()),
            Frame::CopyEnd,
        ]
    }

    #[test]
    fn frames_are_written_and_read() {
        let mut bytes = Vec::new();
        all().iter().for_each(|frame| frame.encode(&mut bytes));
        let mut at = 0;
        for expected in all() {
            let (frame, len) = Frame::decode(&bytes[at..]).unwrap().unwrap();
            assert_eq!(frame, expected);
            assert_eq!(Frame::decode(&bytes[at..at + len - 1]), Ok(None), "a part of it");
            at += len;
        }
        assert_eq!(at, bytes.len());
        let mut golden = Vec::new();
        Frame::Alive(7).encode(&mut golden);
        assert_eq!(golden, [8, 0, 0, 0, 4, 10, 215, 176, 27, 7, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn damage_is_found_and_nothing_panics() {
        let mut rng = fastrand::Rng::with_seed(1);
        for frame in all().into_iter().filter(|frame| !matches!(frame, Frame::Data(_))) {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << rng.u32(0..8);
                assert!(!matches!(Frame::decode(&damaged), Ok(Some(_))), "{frame:?}, byte {at}");
            }
        }
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..8)).collect();
            let _ = Frame::decode(&bytes);
        }
    }
}
