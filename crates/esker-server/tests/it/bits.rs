//! `BITOP` on random strings, compared with the definition of each operation by single bits.

use fastrand::Rng;

use crate::harness::TestServer;
use crate::wire::Reply;

#[test]
fn bits_are_combined_as_each_operation_is_defined() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let mut random = Rng::with_seed(1);
    for _ in 0..200 {
        let count = random.usize(2..6);
        let inputs: Vec<Vec<u8>> =
            (0..count).map(|_| (0..random.usize(..6)).map(|_| random.u8(..)).collect()).collect();
        for (n, input) in inputs.iter().enumerate() {
            wire.call(&[b"SET".as_slice(), format!("k{n}").as_bytes(), input]);
        }
        let len = inputs.iter().map(Vec::len).max().unwrap();
        for op in ["AND", "OR", "XOR", "DIFF", "DIFF1", "ANDOR", "ONE"] {
            let bit = |at: usize| {
                let has = |input: &Vec<u8>| input.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1);
                let (first, others) =
                    (has(&inputs[0]), inputs[1..].iter().filter(|input| has(input)).count());
                let all = others + usize::from(first);
                match op {
                    "AND" => all == count,
                    "OR" => all > 0,
                    "XOR" => all % 2 == 1,
                    "DIFF" => first && others == 0,
                    "DIFF1" => !first && others > 0,
                    "ANDOR" => first && others > 0,
                    _ => all == 1,
                }
            };
            let known: Vec<u8> =
                (0..len).map(|byte| (0..8).map(|n| u8::from(bit(byte * 8 + n)) << n).sum()).collect();
            let keys: Vec<_> = (0..count).map(|n| format!("k{n}")).collect();
            let reply = wire.say(&format!("BITOP {op} to {}", keys.join(" ")));
            assert_eq!(reply, format!(":{len}"), "{op} {inputs:?}");
            let found = wire.call(&["GET", "to"]);
            let known = if len == 0 { Reply::Null } else { Reply::Bulk(known) };
            assert!(found == known, "{op} {inputs:?}: {found:?} {known:?}");
        }
    }
    assert_eq!(
        wire.say("BITOP DIFF1 to k0"),
        "-ERR BITOP DIFF1 must be called with at least two source keys."
    );
    assert_eq!(wire.say("BITOP NOT to k0 k1"), "-ERR BITOP NOT must be called with a single source key.");
}
