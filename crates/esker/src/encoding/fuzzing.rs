//! Fuzzing entry points for numbers, codecs and filters.
//!
//! ```text
//!   bytes --decoder--> an error, or a value that encodes to what was read
//! ```

use super::bloom::BlockedBloom;
use super::bytes::{ByteReader, put_string, put_varint, unzigzag, zigzag};
use super::compression::Compression;

/// Largest output requested from the codecs.
const RAW_BYTES_MAX: usize = 1 << 20;

/// Reads varints and strings and checks that each encodes to the bytes it was read from.
pub fn numbers(bytes: &[u8]) {
    let mut reader = ByteReader::new(bytes);
    let mut again = Vec::new();
    for take_string in [false, true].into_iter().cycle() {
        let start = reader.position();
        again.clear();
        if take_string {
            let Ok(string) = reader.string() else { break };
            put_string(&mut again, string);
        } else {
            let Ok(n) = reader.varint() else { break };
            put_varint(&mut again, n);
            assert_eq!(zigzag(unzigzag(n)), n);
        }
        assert_eq!(again, bytes[start..reader.position()], "bytes.2");
    }
    let mut reader = ByteReader::new(bytes);
    while reader.u8().is_ok() && reader.u16().is_ok() && reader.u32().is_ok() && reader.u64().is_ok() {}
    assert!(reader.take(bytes.len() as u64 + 1).is_err());
    assert!(reader.remaining() < 8);
}

/// Decompresses: one byte selects the codec, three give the expected length, and compressed data follows.
/// Then compresses all of the input.
pub fn compression(bytes: &[u8]) {
    let mut reader = ByteReader::new(bytes);
    let Ok(head) = reader.u32() else { return };
    let [codec, len @ ..] = head.to_le_bytes();
    let codec = Compression::ALL[usize::from(codec) % Compression::ALL.len()];
    let raw_len = (len[0] as usize | (len[1] as usize) << 8 | (len[2] as usize) << 16) % RAW_BYTES_MAX;
    if let Ok(raw) = codec.decompress(reader.rest(), raw_len) {
        assert_eq!(raw.len(), raw_len);
    }
    let mut packed = Vec::new();
    codec.compress(bytes, &mut packed).expect("every codec of this build compresses anything");
    assert_eq!(codec.decompress(&packed, bytes.len()).as_deref(), Ok(bytes));
}

/// Decodes a stored filter.
pub fn filter(bytes: &[u8]) {
    let Ok(filter) = BlockedBloom::decode(bytes) else { return };
    let mut again = Vec::new();
    filter.encode(&mut again);
    assert_eq!(again, bytes);
    for hash in [0, 1, u64::MAX, 0x0123_4567_89AB_CDEF] {
        let _ = filter.may_contain(hash);
    }
}
