//! Collections that Redis keeps as one string: listpacks, ziplists, zipmaps and sets of integers.
//!
//! Numbers come out in decimal, as Redis shows them.

use crate::budget::Budget;

/// Elements, in order; `None` if the bytes are damaged or the elements exceed the budget.
type Elements = Option<Vec<Vec<u8>>>;

/// Takes bytes from the front.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    /// A signed number of `N` bytes, little-endian, in decimal.
    fn number<const N: usize>(&mut self) -> Option<Vec<u8>> {
        let mut wide = [0; 8];
        wide[8 - N..].copy_from_slice(&self.array::<N>()?);
        Some(decimal(i64::from_le_bytes(wide) >> (64 - 8 * N)))
    }

    fn u32(&mut self) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?)).ok()
    }

    fn text(&mut self, len: usize) -> Option<Vec<u8>> {
        self.take(len).map(<[u8]>::to_vec)
    }
}

fn decimal(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

pub(crate) fn listpack(bytes: &[u8], budget: &mut Budget) -> Elements {
    let mut rest = Bytes(bytes);
    (rest.u32()? == bytes.len()).then_some(())?;
    let stated = u16::from_le_bytes(rest.array()?);
    let mut elements = Vec::new();
    loop {
        let before = rest.0.len();
        let first = rest.byte()?;
        let low = usize::from(first);
        let element = match first {
            0xff => break,
            0..=0x7f => decimal(i64::from(first)),
            0x80..=0xbf => rest.text(low & 63)?,
            0xc0..=0xdf => {
                let bits = i64::from(first & 31) << 8 | i64::from(rest.byte()?);
                decimal(if bits < 1 << 12 { bits } else { bits - (1 << 13) })
            }
            0xe0..=0xef => {
                let len = (low & 15) << 8 | usize::from(rest.byte()?);
                rest.text(len)?
            }
            0xf0 => {
                let len = rest.u32()?;
                rest.text(len)?
            }
            0xf1 => rest.number::<2>()?,
            0xf2 => rest.number::<3>()?,
            0xf3 => rest.number::<4>()?,
            0xf4 => rest.number::<8>()?,
            _ => return None,
        };
        // The length once more, in 7 bits a byte, for walks from the end.
        let len = before - rest.0.len();
        let back = rest.take(match len {
            0..=127 => 1,
            128..=16_382 => 2,
            16_383..=2_097_150 => 3,
            2_097_151..=268_435_454 => 4,
            _ => 5,
        })?;
        (back.iter().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f)) == len).then_some(())?;
        budget.spend(element.len() as u64)?;
        elements.push(element);
    }
    let is_complete = rest.0.is_empty() && (stated == u16::MAX || usize::from(stated) == elements.len());
    is_complete.then_some(elements)
}

pub(crate) fn ziplist(bytes: &[u8], budget: &mut Budget) -> Elements {
    let mut rest = Bytes(bytes);
    (rest.u32()? == bytes.len()).then_some(())?;
    let _offset_of_last = rest.u32()?;
    let stated = u16::from_le_bytes(rest.array()?);
    let mut elements = Vec::new();
    loop {
        match rest.byte()? {
            0xff => break,
            0xfe => drop(rest.u32()?),
            _ => {}
        }
        let first = rest.byte()?;
        let low = usize::from(first & 63);
        let element = match first {
            0..=0x3f => rest.text(low)?,
            0x40..=0x7f => {
                let len = low << 8 | usize::from(rest.byte()?);
                rest.text(len)?
            }
            0x80 => {
                let len = u32::from_be_bytes(rest.array()?);
                rest.text(usize::try_from(len).ok()?)?
            }
            0xc0 => rest.number::<2>()?,
            0xd0 => rest.number::<4>()?,
            0xe0 => rest.number::<8>()?,
            0xf0 => rest.number::<3>()?,
            0xfe => rest.number::<1>()?,
            0xf1..=0xfd => decimal(i64::from(first & 15) - 1),
            _ => return None,
        };
        budget.spend(element.len() as u64)?;
        elements.push(element);
    }
    let is_complete = rest.0.is_empty() && (stated == u16::MAX || usize::from(stated) == elements.len());
    is_complete.then_some(elements)
}

/// Fields and values in turn, of hashes before version 2.6.
pub(crate) fn zipmap(bytes: &[u8], budget: &mut Budget) -> Elements {
    let mut rest = Bytes(bytes);
    let _number_of_pairs = rest.byte()?;
    let mut elements = Vec::new();
    loop {
        let len = match rest.byte()? {
            0xff => break,
            0xfe => rest.u32()?,
            len => usize::from(len),
        };
        let is_value = elements.len() % 2 == 1;
        let unused = if is_value { usize::from(rest.byte()?) } else { 0 };
        let element = rest.text(len)?;
        budget.spend(len as u64)?;
        elements.push(element);
        rest.take(unused)?;
    }
    (rest.0.is_empty() && elements.len() % 2 == 0).then_some(elements)
}

pub(crate) fn intset(bytes: &[u8], budget: &mut Budget) -> Elements {
    let mut rest = Bytes(bytes);
    let (width, len) = (rest.u32()?, rest.u32()?);
    (len.checked_mul(width)? == rest.0.len()).then_some(())?;
    let (mut members, mut last) = (Vec::new(), None);
    for _ in 0..len {
        budget.spend(width as u64)?;
        let member = match width {
            2 => rest.number::<2>(),
            4 => rest.number::<4>(),
            8 => rest.number::<8>(),
            _ => None,
        }?;
        // Each is larger than the one before.
        let number: i64 = std::str::from_utf8(&member).ok()?.parse().ok()?;
        last.is_none_or(|last| last < number).then_some(())?;
        last = Some(number);
        members.push(member);
    }
    Some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Budget {
        Budget::new(u64::MAX)
    }

    fn shown(elements: Elements) -> Option<Vec<String>> {
        Some(elements?.iter().map(|e| String::from_utf8_lossy(e).into_owned()).collect())
    }

    #[test]
    fn every_form_of_an_element_is_read() {
        let body: &[u8] = &[
            5, 1, 0x82, b'h', b'i', 3, 0xdf, 0xff, 2, 0xf1, 0, 0x80, 3, 0xf2, 0, 0, 1, 4, 0xf3, 0, 0, 0,
            0x80, 5, 0xf4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 9, 0xff,
        ];
        let mut pack = (body.len() as u32 + 6).to_le_bytes().to_vec();
        pack.extend_from_slice(&[7, 0]);
        pack.extend_from_slice(body);
        let wanted = ["5", "hi", "-1", "-32768", "65536", "-2147483648", "9223372036854775807"];
        assert_eq!(shown(listpack(&pack, &mut all())).unwrap(), wanted);
        for cut in 0..pack.len() {
            assert_eq!(listpack(&pack[..cut], &mut all()), None, "{cut}");
        }
        let list: &[u8] = &[
            27, 0, 0, 0, 24, 0, 0, 0, 5, 0, 0, 1, b'a', 3, 0xf3, 2, 0xfe, 0x80, 3, 0xc0, 0, 1, 4, 0xf0, 0, 0,
            1, 0xff,
        ];
        let mut list = list.to_vec();
        list[0] = list.len() as u8;
        assert_eq!(shown(ziplist(&list, &mut all())).unwrap(), ["a", "2", "-128", "256", "65536"]);
        let map = [1, 1, b'k', 1, 2, b'v', 0, 0, 0xff];
        assert_eq!(shown(zipmap(&map, &mut all())).unwrap(), ["k", "v"]);
        let set = [2, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff, 1, 0];
        assert_eq!(shown(intset(&set, &mut all())).unwrap(), ["-1", "1"]);
        assert_eq!(intset(&set[..11], &mut all()), None);
        let unordered = [2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0xff, 0xff];
        assert_eq!(intset(&unordered, &mut all()), None);
    }
}
