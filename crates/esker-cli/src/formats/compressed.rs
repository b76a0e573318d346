//! Recognizes compressed files. Import unpacks only gzip, and says how to unpack the others.

use std::path::Path;

/// A compression format.
pub(super) struct Compression {
    name: &'static str,
    extension: &'static str,
    /// The first bytes of its files.
    magic: &'static [u8],
    /// The program that compresses its input.
    pack: &'static str,
    /// The program that writes the unpacked contents to standard output.
    unpack: &'static str,
}

/// The magic number of bzip2 is text, so it is matched together with that of the first block.
const COMPRESSIONS: [Compression; 5] = [
    Compression { name: "gzip", extension: "gz", magic: b"\x1f\x8b\x08", pack: "gzip", unpack: "zcat" },
    Compression {
        name: "zstd",
        extension: "zst",
        magic: b"\x28\xb5\x2f\xfd",
        pack: "zstd",
        unpack: "zstd -dc",
    },
    Compression { name: "xz", extension: "xz", magic: b"\xfd7zXZ\0", pack: "xz", unpack: "xz -dc" },
    Compression { name: "bzip2", extension: "bz2", magic: b"BZh?1AY&SY", pack: "bzip2", unpack: "bzip2 -dc" },
    Compression { name: "zip", extension: "zip", magic: b"PK\x03\x04", pack: "zip", unpack: "unzip -p" },
];

impl Compression {
    /// Recognizes a compression by the first bytes of a file.
    pub(super) fn of_content(head: &[u8]) -> Option<&'static Compression> {
        COMPRESSIONS.iter().find(|compression| compression.starts(head))
    }

    /// Recognizes a compression by the name of a file.
    pub(super) fn of_name(file: &Path) -> Option<&'static Compression> {
        let extension = super::extension(file)?;
        COMPRESSIONS.iter().find(|compression| compression.extension == extension)
    }

    fn starts(&self, head: &[u8]) -> bool {
        // `?` matches the level digit of bzip2.
        let is_same = |(wanted, byte): (&u8, &u8)| wanted == byte || *wanted == b'?' && byte.is_ascii_digit();
        head.len() >= self.magic.len() && self.magic.iter().zip(head).all(is_same)
    }

    /// Explains why import does not read such a file, and which command unpacks it.
    pub(super) fn refusal(&self) -> String {
        let Compression { name, unpack, .. } = self;
        let rename = if self.is_read() { "give it a name that ends in .gz, or " } else { "" };
        format!(
            "the file is compressed ({name}): {rename}pipe it, `{unpack} FILE | esker import --format FORMAT`"
        )
    }

    /// Returns the program that compresses its input.
    pub(super) fn compressor(&self) -> &'static str {
        self.pack
    }

    /// Returns whether import unpacks files with the extension of this compression.
    pub(super) fn is_read(&self) -> bool {
        self.extension == "gz"
    }
}
