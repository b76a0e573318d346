//! Compressed files, by their first bytes: import unpacks gzip alone, and says how to unpack the others.

use std::path::Path;

/// A compression.
pub(super) struct Compression {
    name: &'static str,
    extension: &'static str,
    /// How its files start.
    magic: &'static [u8],
    /// The program that compresses its input.
    pack: &'static str,
    /// What writes the content of a file to standard output.
    unpack: &'static str,
}

/// The magic number of bzip2 is text, so it counts with that of the first block.
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
    /// That of a file that starts like this.
    pub(super) fn of_content(head: &[u8]) -> Option<&'static Compression> {
        COMPRESSIONS.iter().find(|compression| compression.starts(head))
    }

    /// That of a file of this name.
    pub(super) fn of_name(file: &Path) -> Option<&'static Compression> {
        let extension = super::extension(file)?;
        COMPRESSIONS.iter().find(|compression| compression.extension == extension)
    }

    fn starts(&self, head: &[u8]) -> bool {
        // `?` stands for the level of bzip2.
        let is_same = |(wanted, byte): (&u8, &u8)| wanted == byte || *wanted == b'?' && byte.is_ascii_digit();
        head.len() >= self.magic.len() && self.magic.iter().zip(head).all(is_same)
    }

    /// Why import does not read such a file, and what does.
    pub(super) fn refusal(&self) -> String {
        let Compression { name, unpack, .. } = self;
        let rename = if self.is_read() { "give it a name that ends in .gz, or " } else { "" };
        format!(
            "the file is compressed ({name}): {rename}pipe it, `{unpack} FILE | esker import --format FORMAT`"
        )
    }

    /// The program that compresses its input.
    pub(super) fn compressor(&self) -> &'static str {
        self.pack
    }

    /// Whether import unpacks it, where the name of the file tells.
    pub(super) fn is_read(&self) -> bool {
        self.extension == "gz"
    }
}
