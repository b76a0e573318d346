//! Codecs for blocks and records. Their numbers are stored in files.
//!
//! Decompression never allocates more than the size that the caller allows.

use std::io::{Read, Write};

use super::bytes::{DecodeError, Decoded};

/// A compression codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// gzip (RFC 1952), level 6.
    Gzip,
    /// Snappy, raw format.
    Snappy,
    /// LZ4 block format.
    Lz4,
    /// Zstandard, level 3. Needs the `zstd` feature.
    Zstd,
}

impl Compression {
    /// All codecs that this build supports.
    pub const ALL: &'static [Compression] = &[
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        #[cfg(feature = "zstd")]
        Compression::Zstd,
    ];

    /// The number stored in files.
    pub const fn id(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Snappy => 2,
            Compression::Lz4 => 3,
            Compression::Zstd => 4,
        }
    }

    /// Returns the codec with a number from a file, if this build supports it.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|c| c.id() == id)
    }

    /// The name in configuration: `none`, `gzip`, `snappy`, `lz4`, `zstd`.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Snappy => "snappy",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Appends the compressed form of `input`. Fails only if this build lacks the codec.
    pub(crate) fn compress(self, input: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            Compression::None => out.extend_from_slice(input),
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::new(6));
                encoder.write_all(input)?;
                encoder.finish()?;
            }
            Compression::Snappy => {
                let start = out.len();
                out.resize(start + snap::raw::max_compress_len(input.len()), 0);
                let len = snap::raw::Encoder::new()
                    .compress(input, &mut out[start..])
                    .map_err(std::io::Error::other)?;
                out.truncate(start + len);
            }
            Compression::Lz4 => {
                let start = out.len();
                out.resize(start + lz4_flex::block::get_maximum_output_size(input.len()), 0);
                let len = lz4_flex::block::compress_into(input, &mut out[start..])
                    .map_err(std::io::Error::other)?;
                out.truncate(start + len);
            }
            Compression::Zstd => zstd_codec::compress(input, out)?,
        }
        Ok(())
    }

    /// Decompresses to exactly `raw_len` bytes. The caller must have checked that it may allocate `raw_len`.
    pub(crate) fn decompress(self, input: &[u8], raw_len: usize) -> Decoded<Vec<u8>> {
        let mut out = vec![0; raw_len];
        self.decompress_into(input, &mut out)?;
        Ok(out)
    }

    /// Decompresses into `out`, which must have exactly the original length.
    pub(crate) fn decompress_into(self, input: &[u8], out: &mut [u8]) -> Decoded<()> {
        let raw_len = out.len();
        let wrong = |detail: String| DecodeError::new(0, format!("{} data: {detail}", self.name()));
        match self {
            Compression::None if input.len() == raw_len => out.copy_from_slice(input),
            Compression::None => return Err(wrong(format!("{} bytes, expected {raw_len}", input.len()))),
            Compression::Gzip => {
                let mut decoder = flate2::read::GzDecoder::new(input);
                decoder.read_exact(out).map_err(|e| wrong(e.to_string()))?;
                if decoder.read(&mut [0]).map_err(|e| wrong(e.to_string()))? != 0 {
                    return Err(wrong(format!("more than the expected {raw_len} bytes")));
                }
            }
            Compression::Snappy => {
                let len = snap::raw::decompress_len(input).map_err(|e| wrong(e.to_string()))?;
                if len != raw_len {
                    return Err(wrong(format!("{len} bytes, expected {raw_len}")));
                }
                snap::raw::Decoder::new().decompress(input, out).map_err(|e| wrong(e.to_string()))?;
            }
            Compression::Lz4 => {
                let len = lz4_flex::block::decompress_into(input, out).map_err(|e| wrong(e.to_string()))?;
                if len != raw_len {
                    return Err(wrong(format!("{len} bytes, expected {raw_len}")));
                }
            }
            Compression::Zstd => {
                let len = zstd_codec::decompress(input, out).map_err(|e| wrong(e.to_string()))?;
                if len != raw_len {
                    return Err(wrong(format!("{len} bytes, expected {raw_len}")));
                }
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Compression {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|c| c.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|c| c.name()).collect();
            format!("unknown compression {name:?}: use one of {}", names.join(", "))
        })
    }
}

#[cfg(feature = "zstd")]
mod zstd_codec {
    use std::io;

    pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(input.len()), 0);
        let len = zstd::bulk::compress_to_buffer(input, &mut out[start..], 3)?;
        out.truncate(start + len);
        Ok(())
    }

    pub(super) fn decompress(input: &[u8], out: &mut [u8]) -> io::Result<usize> {
        zstd::bulk::decompress_to_buffer(input, out)
    }
}

#[cfg(not(feature = "zstd"))]
mod zstd_codec {
    use std::io;

    const MISSING: &str = "this build has no zstd: enable the `zstd` feature";

    pub(super) fn compress(_: &[u8], _: &mut Vec<u8>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, MISSING))
    }

    pub(super) fn decompress(_: &[u8], _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::Unsupported, MISSING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codec_gives_back_what_it_took() {
        let inputs = [Vec::new(), b"a".to_vec(), b"hello hello hello ".repeat(500), (0..=255).collect()];
        for &codec in Compression::ALL {
            for input in &inputs {
                let mut out = b"head".to_vec();
                codec.compress(input, &mut out).unwrap();
                assert_eq!(&out[..4], b"head");
                assert_eq!(codec.decompress(&out[4..], input.len()).as_ref(), Ok(input), "{}", codec.name());
                assert!(codec.decompress(&out[4..], input.len() + 1).is_err(), "{}", codec.name());
                if !input.is_empty() {
                    assert!(codec.decompress(&out[4..], input.len() - 1).is_err(), "{}", codec.name());
                }
            }
            assert_eq!(Compression::from_id(codec.id()), Some(codec));
            assert_eq!(codec.name().parse(), Ok(codec));
        }
        assert_eq!(Compression::from_id(200), None);
    }

    #[test]
    fn damaged_input_is_an_error_not_a_panic() {
        let mut rng = fastrand::Rng::with_seed(5);
        let input = b"hello hello hello ".repeat(50);
        for &codec in Compression::ALL {
            let mut packed = Vec::new();
            codec.compress(&input, &mut packed).unwrap();
            for _ in 0..500 {
                let mut bad = packed.clone();
                let at = rng.usize(..bad.len());
                bad[at] ^= rng.u8(1..);
                bad.truncate(rng.usize(..=bad.len()));
                let _ = codec.decompress(&bad, input.len());
            }
        }
    }
}
