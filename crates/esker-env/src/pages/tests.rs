//! Tests of page buffers. Tests share the process's pool, so they check no exact amounts.

use super::*;

const LENGTHS: [usize; 12] =
    [0, 1, 2048, 2049, 4096, 4097, 8192, 8197, 70_000, POOLED_BYTES_MAX, POOLED_BYTES_MAX + 1, 3 << 20];

#[test]
fn env_pages_1_buffers_are_apart_and_keep_their_bytes() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut held: Vec<(PageBuf, u8)> = Vec::new();
    let rounds = if cfg!(miri) { 20 } else { 3000 };
    for round in 0..rounds {
        if held.len() > 60 {
            held.swap_remove(rng.usize(..held.len()));
        }
        let len = if round % 50 == 0 { LENGTHS[rng.usize(..LENGTHS.len())] } else { rng.usize(..40_000) };
        let mut buffer = PageBuf::new(len);
        assert_eq!((buffer.len(), buffer.as_ptr().addr() % PageBuf::ALIGN), (len, 0));
        buffer.fill(round as u8);
        held.push((buffer, round as u8));
    }
    assert!(held.iter().all(|(buffer, byte)| buffer.iter().all(|b| b == byte)), "env_pages.1");
}

#[test]
fn env_pages_1_slots_change_hands_between_threads() {
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::sync_channel::<(PageBuf, u8)>(16);
        for thread in 0..3_u8 {
            let send = send.clone();
            scope.spawn(move || {
                let rounds = if cfg!(miri) { 3 } else { 500_usize };
                for round in 0..rounds {
                    let mut buffer = PageBuf::new(5000 + round * 7 % 9000);
                    buffer.fill(thread);
                    send.send((buffer, thread)).unwrap();
                }
            });
        }
        drop(send);
        for (buffer, byte) in receive {
            assert!(buffer.iter().all(|b| *b == byte), "env_pages.1");
        }
    });
}

#[test]
fn classes_rise_and_hold_what_is_asked_for() {
    assert!(CLASSES.windows(2).all(|pair| pair[0] < pair[1]), "{CLASSES:?}");
    assert_eq!((CLASSES[15], CLASSES[16], CLASSES[20], CLASSES[31]), (16, 20, 40, 256));
    assert_eq!(CLASSES[EXACT_CLASSES - 1], EXACT_CLASSES);
    for len in (HEAP_BYTES_MAX + 1..=POOLED_BYTES_MAX).step_by(1001) {
        if let Origin::Pool(class) = Origin::of(len) {
            assert!(CLASSES[class] * PAGE_BYTES >= len, "{len}");
            assert!(class == 0 || CLASSES[class - 1] * PAGE_BYTES < len, "{len}");
        }
    }
}

#[test]
fn a_cut_keeps_bytes_and_origin() {
    for (from, to, fits) in [(8190, 8185, true), (8197, 8192, false), (100, 90, false), (8192, 8193, false)] {
        let mut buffer = PageBuf::new(from);
        buffer.fill(7);
        assert_eq!(buffer.cut(to), fits && sys::has_pages(), "{from} to {to}");
        assert!(buffer.iter().all(|b| *b == 7));
    }
    assert_eq!(*PageBuf::copy_of(b"hello"), *b"hello");
    assert_eq!(PageBuf::default().len(), 0);
}

#[test]
fn what_is_warm_follows_what_is_used() {
    fn put(pool: &mut Pool, class: usize, slots: usize) {
        (0..slots).for_each(|_| pool.put_warm(class, Slot(NonNull::dangling())));
    }
    fn surplus(pool: &mut Pool) -> Vec<usize> {
        std::iter::from_fn(|| pool.take_surplus()).map(|(class, _)| class).collect()
    }
    let mut pool = Pool::new();
    put(&mut pool, 1, WARM_BYTES_MIN / slot_bytes(1));
    assert!(surplus(&mut pool).is_empty());
    // A class without demand yields memory to one with demand.
    put(&mut pool, 3, 2);
    assert_eq!(surplus(&mut pool), [1; 4]);
    pool.used_bytes = 2 * WARM_PART * WARM_BYTES_MAX;
    let left = WARM_BYTES_MAX - pool.warm_bytes;
    put(&mut pool, 3, left / slot_bytes(3) + 1);
    assert_eq!(surplus(&mut pool), [3]);
    pool.used_bytes = 2 * WARM_PART * WARM_BYTES_MIN;
    assert!(!surplus(&mut pool).is_empty() && pool.warm_bytes == 2 * WARM_BYTES_MIN);
    assert!(pool.take_warm(3).is_some() && pool.take_warm(7).is_none());
}

#[test]
fn an_observer_hears_of_each_byte_that_is_not_from_the_allocator() {
    use std::cell::Cell;
    thread_local! {
        static SEEN: Cell<isize> = const { Cell::new(0) };
    }
    observe_page_bufs(|bytes| SEEN.set(SEEN.get() + bytes));
    let part = |len: usize| if sys::has_pages() { len as isize } else { 0 };
    let mut buffer = PageBuf::new(8190);
    assert_eq!(SEEN.get(), part(8190));
    buffer.cut(8180);
    assert_eq!(SEEN.get(), part(buffer.len()));
    let of_the_allocator = PageBuf::new(100);
    assert_eq!(SEEN.get(), part(buffer.len()));
    drop((buffer, of_the_allocator));
    assert_eq!(SEEN.get(), 0);
}

#[test]
fn what_was_in_use_stays_for_a_moment() {
    let mut pool = Pool::new();
    let slots = 4 * WARM_BYTES_MIN / slot_bytes(1);
    let held = |pool: &mut Pool| {
        while pool.take_surplus().is_some() {}
        pool.warm_bytes
    };
    pool.note_used(slots * slot_bytes(1));
    for _ in 0..slots {
        pool.used_bytes -= slot_bytes(1);
        pool.put_warm(1, Slot(NonNull::dangling()));
    }
    assert_eq!(held(&mut pool), 4 * WARM_BYTES_MIN, "all of it");
    let mut now = Duration::ZERO;
    let mut kept = vec![held(&mut pool)];
    for _ in 0..100 {
        now += AGE_AFTER;
        pool.age(now);
        pool.age(now + AGE_AFTER / 2);
        kept.push(held(&mut pool));
    }
    assert_eq!(kept[1], 4 * WARM_BYTES_MIN / 8 * 7, "an eighth at once");
    assert!(kept.is_sorted_by(|a, b| a >= b) && kept[100] == WARM_BYTES_MIN, "{kept:?}");
}
