//! Golden bytes, order and damage.

use std::cmp::Ordering;
use std::fmt::Debug;

use super::*;

#[test]
fn golden_bytes_of_the_specification() {
    fn check<K: TypedKey + Debug>(key: K, bytes: &[u8]) {
        assert_eq!(encode(&key).unwrap(), bytes, "{key:?}");
        assert_eq!(encode(&decode::<K>(bytes).unwrap()).unwrap(), bytes, "{key:?}");
        let elements: Elements = decode(bytes).unwrap();
        assert_eq!(encode(&elements).unwrap(), bytes, "{elements}");
    }
    // The test cases of FoundationDB's design/tuple.md.
    check(b"foo\0bar".to_vec(), b"\x01foo\x00\xffbar\x00");
    check("F\u{d4}O\0bar".to_owned(), b"\x02F\xc3\x94O\x00\xffbar\x00");
    let nested = (b"foo\0bar".to_vec(), None::<u8>, ());
    check((nested,), b"\x05\x01foo\x00\xffbar\x00\x00\xff\x05\x00\x00");
    check(-5_551_212, b"\x11\xabK\x93");
    check(-42_f32, b"\x20\x3d\xd7\xff\xff");
    check(-1, b"\x13\xfe");
    // What its text says.
    check((), b"");
    check((None::<u8>, 0, false, true), b"\x00\x14\x26\x27");
    check((255_u8, 256, -255, -256_i64), b"\x15\xff\x16\x01\x00\x13\x00\x12\xfe\xff");
    check((u64::MAX, i64::MIN), b"\x1c\xff\xff\xff\xff\xff\xff\xff\xff\x0c\x7f\xff\xff\xff\xff\xff\xff\xff");
    check(1_u128 << 64, b"\x1d\x09\x01\0\0\0\0\0\0\0\0");
    check(-(1_i128 << 64), b"\x0b\xf6\xfe\xff\xff\xff\xff\xff\xff\xff\xff");
    check((1.0_f64, -1.0_f64), b"\x21\xbf\xf0\0\0\0\0\0\0\x21\x40\x0f\xff\xff\xff\xff\xff\xff");
    check(Uuid(*b"0123456789abcdef"), b"\x300123456789abcdef");
    check((vec![1_u16, 2], [3_u8; 2]), b"\x05\x15\x01\x15\x02\x00\x01\x03\x03\x00");
    // Ours: see docs/formats/tuple.md.
    check(Descending(5_u8), b"\x01\xea\xfa\xff\x00");
    check(Descending(255_u8), b"\x01\xea\x00\xff\xff\x00");
    check((Some(None::<u8>), Some(Some(7))), b"\x05\x00\xff\x00\x05\x15\x07\x00");
    check('a', b"\x02a\x00");
    let all: Elements =
        decode(b"\x01a\x00\x02b\x00\x05\x00\xff\x00\x13\xfe\x21\xbf\xf0\0\0\0\0\0\0\x27").unwrap();
    assert_eq!(all.to_string(), r#"(b"a", "b", (null), -1, 1.0, true)"#);
}

/// The bytes of keys have the order of the keys, in both directions, and decode to the same keys.
fn check_order<K: TypedKey + PartialEq + Debug>(keys: &[K], compare: impl Fn(&K, &K) -> Ordering) {
    let encoded: Vec<_> = keys.iter().map(|key| encode(key).unwrap()).collect();
    for (a, a_bytes) in keys.iter().zip(&encoded) {
        assert!(compare(&decode::<K>(a_bytes).unwrap(), a).is_eq(), "{a:?}");
        for (b, b_bytes) in keys.iter().zip(&encoded) {
            assert_eq!(a_bytes.cmp(b_bytes), compare(a, b), "{a:?} {b:?}");
            // Also as the first field, whatever follows, and as one field of a tuple.
            let as_field = |key: &K, next: Option<u8>| encode(&((key, 1), next)).unwrap();
            let expected = |ab: Ordering, other: Ordering| ab.then(other);
            assert_eq!(as_field(a, None).cmp(&as_field(b, Some(1))), expected(compare(a, b), Ordering::Less));
            assert_eq!(
                as_field(a, Some(1)).cmp(&as_field(b, None)),
                expected(compare(a, b), Ordering::Greater)
            );
        }
    }
    let backward = |key: &K| encode(&(Descending(key), None::<u8>)).unwrap();
    for (a, b) in keys.iter().flat_map(|a| keys.iter().map(move |b| (a, b))) {
        assert_eq!(backward(a).cmp(&backward(b)), compare(b, a), "{a:?} {b:?}");
        assert_eq!(encode(&Descending(a)).unwrap().cmp(&encode(&Descending(b)).unwrap()), compare(b, a));
    }
}

#[test]
fn bytes_have_the_order_of_the_keys() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut number = || match rng.u8(..8) {
        0 => [0, 1, -1, 255, 256, -255, -256, i128::MAX, i128::MIN, i64::MIN.into(), u64::MAX.into()]
            [rng.usize(..11)],
        _ => rng.i128(..) >> rng.u32(..128),
    };
    let numbers: Vec<i128> = (0..200).map(|_| number()).collect();
    let mut rng = fastrand::Rng::with_seed(2);
    let texts: Vec<String> = (0..200)
        .map(|_| {
            (0..rng.usize(..4))
                .map(|_| ['\0', '\u{1}', 'a', '\u{ff}', '\u{10ffff}'][rng.usize(..5)])
                .collect()
        })
        .collect();
    check_order(&numbers, Ord::cmp);
    check_order(&numbers.iter().map(|n| *n as u128).collect::<Vec<_>>(), Ord::cmp);
    check_order(&numbers.iter().map(|n| *n as u64).collect::<Vec<_>>(), Ord::cmp);
    check_order(&numbers.iter().map(|n| *n as i32).collect::<Vec<_>>(), Ord::cmp);
    check_order(&numbers.iter().map(|n| *n as u8).collect::<Vec<_>>(), Ord::cmp);
    check_order(&numbers.iter().map(|n| f64::from_bits(*n as u64)).collect::<Vec<_>>(), f64::total_cmp);
    check_order(&numbers.iter().map(|n| f32::from_bits(*n as u32)).collect::<Vec<_>>(), f32::total_cmp);
    check_order(&numbers.iter().map(|n| Uuid(n.to_be_bytes())).collect::<Vec<_>>(), Ord::cmp);
    check_order(&texts, Ord::cmp);
    check_order(&texts.iter().map(|t| t.clone().into_bytes()).collect::<Vec<_>>(), Ord::cmp);
    check_order(&texts.iter().map(|t| t.chars().next().unwrap_or('x')).collect::<Vec<_>>(), Ord::cmp);
    check_order(&texts.iter().map(|t| t.chars().collect()).collect::<Vec<Vec<char>>>(), Ord::cmp);
    check_order(&texts.iter().map(|t| Descending(t.clone())).collect::<Vec<_>>(), Ord::cmp);
    let pairs = || texts.iter().zip(&numbers);
    check_order(&pairs().map(|(t, n)| (t.clone(), *n)).collect::<Vec<_>>(), Ord::cmp);
    check_order(&pairs().map(|(t, n)| (n % 2 == 0).then(|| t.clone())).collect::<Vec<_>>(), Ord::cmp);
    let nested = |(t, n): (&String, &i128)| {
        (n % 4 != 0).then(|| (n % 3 != 0).then(|| vec![t.clone(); *n as usize % 3]))
    };
    check_order(&pairs().map(nested).collect::<Vec<_>>(), Ord::cmp);
    let deep = |(t, n): (&String, &i128)| {
        ((*n % 4, Descending((t.clone(), Some(*n as u8)))), n % 3 == 0, [*n as i8; 2])
    };
    check_order(&pairs().map(deep).collect::<Vec<_>>(), Ord::cmp);
}

#[test]
fn damaged_bytes_are_refused() {
    for (bytes, error) in [
        (&b""[..], KeyError::Ended),
        (b"\x15", KeyError::Ended),
        (b"\x15\x07\x15\x07", KeyError::MoreFields),
        (b"\x16\x00\x07", KeyError::NotShortest),
        (b"\x1d\x08\x01\x00\x00\x00\x00\x00\x00\x00", KeyError::NotShortest),
        (
            b"\x1d\x11\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            KeyError::OutOfRange,
        ),
        (b"\x1d\xff", KeyError::OutOfRange),
        (b"\x13\xfe", KeyError::OutOfRange),
        (b"\x02a\x00", KeyError::Mismatch { expected: "an integer", code: 2 }),
    ] {
        assert_eq!(decode::<u64>(bytes).unwrap_err(), error, "{bytes:?}");
    }
    assert_eq!(decode::<u8>(b"\x16\x01\x00"), Err(KeyError::OutOfRange));
    assert_eq!(decode::<String>(b"\x02\xff\x00"), Err(KeyError::NotUtf8));
    assert_eq!(decode::<String>(b"\x02a\x00\xff"), Err(KeyError::Ended));
    assert_eq!(decode::<(u8, u8)>(b"\x15\x07"), Err(KeyError::Ended));
    assert_eq!(decode::<((u8,), u8)>(b"\x05\x15\x07\x15\x07\x00\x15\x07"), Err(KeyError::MoreFields));
    assert_eq!(decode::<((u8, u8),)>(b"\x05\x15\x07\x00"), Err(KeyError::Ended));
    assert_eq!(decode::<[u8; 2]>(b"\x01a\x00"), Err(KeyError::OutOfRange));
    assert_eq!(decode::<Descending<u8>>(b"\x01\xea\xfa\x00"), Err(KeyError::Ended));
    assert_eq!(decode::<char>(b"\x02ab\x00"), Err(KeyError::OutOfRange));
    assert!(decode::<Elements>(b"\x33").is_err() && decode::<Elements>(b"\x00\xff").is_err());
}

#[test]
fn depth_is_limited() {
    let nested = |depth: u32| (0..depth).fold(Element::Null, |inner, _| Element::Tuple(vec![inner]));
    let deepest = encode(&nested(DEPTH_MAX)).unwrap();
    assert_eq!(decode(&deepest), Ok(nested(DEPTH_MAX)));
    assert_eq!(encode(&nested(DEPTH_MAX + 1)), Err(KeyError::TooDeep));
    assert_eq!(decode::<Element>(&[5; 1_000_000]), Err(KeyError::TooDeep));
}

#[test]
fn borrowed_forms_have_the_bytes_of_keys() {
    fn same<K: TypedKey, Q: KeyOf<K> + PrefixOf<K>>(key: &K, form: Q) {
        assert_eq!(encode(key).unwrap(), encode(&form).unwrap());
    }
    same(&7_u64, 7);
    same(&"a".to_owned(), "a");
    same(&b"ab".to_vec(), b"ab");
    same(&b"ab".to_vec(), &b"ab"[..]);
    same(&(7_u64, "a".to_owned()), (7, "a"));
    same(&(7_u64, ("a".to_owned(), Some(vec![1_u8]))), (7, ("a", Some(&[1][..]))));
    same(&Descending("a".to_owned()), Descending("a"));
    fn begins<K: TypedKey, Q: PrefixOf<K>>(key: &K, form: Q) {
        assert!(encode(key).unwrap().starts_with(&encode(&form).unwrap()));
    }
    begins(&(7_u64, "a".to_owned(), 1_u8), (7, "a"));
    begins(&(7_u64, "a".to_owned(), 1_u8), ());
}
