//! `LCS`: the longest common subsequence of two strings.

use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::types::Main;

/// Maximum number of cells in the table of lengths.
const CELLS_MAX: usize = 64 << 20;

/// A common range: first and last index in the first string, and in the second.
type Match = (usize, usize, usize, usize);

pub(super) fn lcs(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (mut wants_len, mut wants_places, mut with_len, mut least) = (false, false, false, 0);
    let mut at = 3;
    while at < request.len() {
        match request[at].to_ascii_lowercase().as_slice() {
            b"len" => wants_len = true,
            b"idx" => wants_places = true,
            b"withmatchlen" => with_len = true,
            b"minmatchlen" if at + 1 < request.len() => {
                at += 1;
                least = int(&request[at])?.max(0) as usize;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    if wants_len && wants_places {
        return Err("ERR If you want both the length and indexes, please just use IDX.".into());
    }
    let mut text = |at: usize| -> Done<Option<Main>> {
        let main = cx.string(&request[at]).map_err(|fail| match fail {
            Fail::WrongType => "ERR The specified keys must contain string values".into(),
            other => other,
        })?;
        Ok(main)
    };
    let (a, b) = (text(1)?, text(2)?);
    let [a, b] = [&a, &b].map(|main| main.as_ref().map_or(&b""[..], Main::text));
    if (a.len() + 1).saturating_mul(b.len() + 1) > CELLS_MAX {
        return Err("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len".into());
    }
    let (common, matches) = compare(a, b, &mut |cells| cx.step(cells))?;
    if wants_places {
        let matches: Vec<_> = matches.into_iter().filter(|m| m.1 - m.0 + 1 >= least).collect();
        cx.out.map(2);
        cx.out.bulk(b"matches");
        cx.out.array(matches.len());
        for (from_a, to_a, from_b, to_b) in matches {
            cx.out.array(if with_len { 3 } else { 2 });
            for (from, to) in [(from_a, to_a), (from_b, to_b)] {
                cx.out.array(2);
                cx.out.count(from);
                cx.out.count(to);
            }
            if with_len {
                cx.out.count(to_a - from_a + 1);
            }
        }
        cx.out.bulk(b"len");
        cx.out.count(common.len());
    } else if wants_len {
        cx.out.count(common.len());
    } else {
        cx.out.bulk(&common);
    }
    Ok(())
}

/// Returns the longest common subsequence and its ranges, the last one first. Calls `step` with a number of
/// cells before it fills them.
fn compare(a: &[u8], b: &[u8], step: &mut dyn FnMut(usize) -> Done) -> Done<(Vec<u8>, Vec<Match>)> {
    let width = b.len() + 1;
    let mut lens = vec![0u32; (a.len() + 1) * width];
    for i in 1..=a.len() {
        step(b.len())?;
        for j in 1..=b.len() {
            lens[i * width + j] = match a[i - 1] == b[j - 1] {
                true => lens[(i - 1) * width + j - 1] + 1,
                false => lens[(i - 1) * width + j].max(lens[i * width + j - 1]),
            };
        }
    }
    let (mut common, mut matches) = (Vec::new(), Vec::<Match>::new());
    let (mut i, mut j) = (a.len(), b.len());
    while i > 0 && j > 0 {
        if a[i - 1] == b[j - 1] {
            (i, j) = (i - 1, j - 1);
            common.push(a[i]);
            match matches.last_mut() {
                Some(last) if last.0 == i + 1 && last.2 == j + 1 => (last.0, last.2) = (i, j),
                _ => matches.push((i, i, j, j)),
            }
        } else if lens[(i - 1) * width + j] > lens[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    common.reverse();
    Ok((common, matches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_redis() {
        let (common, matches) = compare(b"ohmytext", b"mynewtext", &mut |_| Ok(())).unwrap();
        assert_eq!(common, b"mytext");
        assert_eq!(matches, [(4, 7, 5, 8), (2, 3, 0, 1)]);
    }
}
