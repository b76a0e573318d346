//! The checksum of snapshots: CRC-64 with the polynomial of Jones, reflected, starting at 0.

/// The polynomial, with its bits reversed.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut sum, mut bit) = (at as u64, 0);
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[at] = sum;
        at += 1;
    }
    table
};

/// Returns the checksum of what `sum` covers, followed by `bytes`.
pub(crate) fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| TABLE[usize::from(sum as u8 ^ byte)] ^ sum >> 8)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_sum_is_that_of_redis() {
        assert_eq!(super::add(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
