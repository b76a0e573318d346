//! Tests of frames and messages.

use super::*;
use crate::error::WireCause;

fn requests() -> Vec<Request<'static>> {
    let key = Bytes(b"key");
    let page = Page {
        lower: Bound::Included(key),
        upper: Bound::Unbounded,
        is_reverse: true,
        count_max: 3,
        keys_only: false,
    };
    let put = |lifetime| Op::Put { key, value: Bytes(b"value"), lifetime };
    let (short, end) = (Some(Duration::from_millis(1)), Some(Duration::from_secs(1 << 31)));
    vec![
        Request::Keyspaces,
        Request::Keyspace("name", Opening::Create(Bytes(b"\x04\x03max"))),
        Request::Get(At::Now, 7, key),
        Request::MultiGet(At::Held, 7, vec![key, Bytes(b"")]),
        Request::Page(At::Now, 7, page),
        Request::Write(7, Op::DeleteRange(Bound::Excluded(key), Bound::Unbounded)),
        Request::Write(7, put(WireLifetime::For(Duration::from_millis(1)))),
        Request::Write(7, put(WireLifetime::Until(end))),
        Request::Expire(7, key, short),
        Request::LockName("name", true),
        Request::Savepoint(300),
        Request::RollbackTo(300),
        Request::ReleaseSavepoint(300),
        Request::Commit(
            9,
            WireDurability::Sync,
            vec![(7, put(WireLifetime::Default)), (8, Op::Merge(key, key))],
        ),
        Request::Resolve(LaneId([3; 16]), 9, WireDurability::Buffered),
    ]
}

fn replies() -> Vec<Reply> {
    let value = || Owned(Value::copy_of(b"value"));
    vec![
        Reply::Done,
        Reply::Value(Some(value())),
        Reply::Values(vec![None, Some(value())]),
        Reply::Page { entries: vec![(value(), value())], is_last: false },
        Reply::Ttl(Some(Some(Duration::from_millis(5)))),
        Reply::Outcome(Outcome::Applied(SeqNo::new(5))),
        Reply::Refused(WireError { is_poisoned: true, cause: WireCause::NoSpace }),
        Reply::Refused(WireError { is_poisoned: false, cause: WireCause::SavepointGone }),
    ]
}

/// Reads one message from a stream that ends after these bytes.
fn read<'a, T: Deserialize<'a>>(bytes: &[u8], buffer: &'a mut Vec<u8>) -> io::Result<T> {
    match read_frame(&mut &bytes[..], buffer)? {
        true => decode(buffer),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[test]
fn messages_arrive_as_they_were_sent() {
    for request in requests() {
        let mut buffer = Vec::new();
        assert_eq!(read::<Request<'_>>(&frame(&request).unwrap(), &mut buffer).unwrap(), request);
    }
    for reply in replies() {
        let mut buffer = Vec::new();
        assert_eq!(read::<Reply>(&frame(&reply).unwrap(), &mut buffer).unwrap(), reply);
    }
}

/// Pins version 3, whose bytes version 4 has kept: a change of these bytes needs a new version.
#[test]
fn golden_bytes_of_version_3() {
    let bytes: Vec<u8> = requests().iter().flat_map(|request| frame(request).unwrap()).collect();
    let replies: Vec<u8> = replies().iter().flat_map(|reply| frame(reply).unwrap()).collect();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!((hex(&bytes), hex(&replies)), (GOLDEN_REQUESTS.to_owned(), GOLDEN_REPLIES.to_owned()));
}

const GOLDEN_REQUESTS: &str = "0100000000000000000d0000000000000001046e616d65020504036d6178070000000\
    0000000040007036b6579090000000000000007010702036b6579000c0000000000000008000701036b6579000103000900\
    0000000000000d070202036b65790012000000000000000d0700036b65790576616c75650100c0843d15000000000000000\
    d0700036b65790576616c756502018080808008000b000000000000001007036b65790100c0843d07000000000000001204\
    6e616d6501030000000000000013ac02030000000000000014ac02030000000000000015ac021b000000000000001709020\
    20700036b65790576616c7565000803036b6579036b65791300000000000000190303030303030303030303030303030309\
    01";
const GOLDEN_REPLIES: &str = "010000000000000000080000000000000003010576616c75650a000000000000000602\
    00010576616c75650f0000000000000007010576616c75650576616c756500080000000000000005010100c096b10203000\
    000000000000b000503000000000000000e010103000000000000000e0011";

#[test]
fn protocol_1_damaged_messages_are_errors_or_other_messages() {
    let mut rng = fastrand::Rng::with_seed(1);
    let frames = requests().into_iter().map(|request| frame(&request).unwrap());
    let frames: Vec<Vec<u8>> = frames.chain(replies().iter().map(|reply| frame(reply).unwrap())).collect();
    for _ in 0..20_000 {
        let mut bytes = frames[rng.usize(..frames.len())].clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes.truncate(rng.usize(..=bytes.len()));
        // Whether they are errors, too: neither panics nor takes memory.
        let _ = read::<Request<'_>>(&bytes, &mut Vec::new());
        let _ = read::<Reply>(&bytes, &mut Vec::new());
    }
    for length in [u64::MAX, FRAME_BYTES_MAX + 1] {
        let refused = read_frame(&mut &length.to_le_bytes()[..], &mut Vec::new());
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
    let mut buffer = Vec::new();
    let cut = read_frame(&mut &FRAME_BYTES_MAX.to_le_bytes()[..], &mut buffer);
    assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert!(buffer.capacity() < 1 << 20, "protocol.1: memory for what has arrived");
    let sum = [frame(&Request::Keyspaces).unwrap(), vec![0]].concat();
    assert!(read::<Request<'_>>(&[&2_u64.to_le_bytes()[..], &sum[8..]].concat(), &mut Vec::new()).is_err());
}
