//! Tests of the table of tracked keys against changes of a source that the test makes.

use std::collections::VecDeque;

use super::*;

/// Changes that the test makes.
#[derive(Clone, Default)]
struct Made(Arc<Mutex<VecDeque<(u64, Changed)>>>);

impl Changes for Made {
    fn next(&mut self, _: &Waker) -> Option<(u64, Changed)> {
        self.0.lock().pop_front()
    }
}

impl Made {
    fn key(&self, seq: u64, key: &str) {
        self.0.lock().push_back((seq, Changed::Key(key.into())));
    }

    fn open(&self) -> Result<Watched> {
        Ok(Some(vec![(0, Box::new(self.clone()))]))
    }
}

fn client(clients: &Clients, made: &Made, setting: &Setting) -> Arc<Client> {
    let client = clients.add(String::new(), String::new(), 0, [100, 100]).unwrap();
    client.state.is_resp3.store(true, Ordering::Relaxed);
    assert!(clients.track(&client, setting, Waker::noop().clone(), || made.open()).unwrap());
    client
}

/// Returns what was sent to a client, in short.
fn heard(client: &Client) -> String {
    let text = String::from_utf8(client.outbox.take_all()).unwrap();
    let words = text.split("\r\n").filter(|word| !word.starts_with(['$', '>', '*']) && !word.is_empty());
    words.filter(|word| *word != "invalidate").collect::<Vec<_>>().join(" ")
}

#[test]
fn readers_are_notified_once() {
    let (clients, made) = (Clients::default(), Made::default());
    let reader = client(&clients, &made, &Setting::default());
    clients.remember(&reader, &[b"a", b"b"], 0, false, 0);
    made.key(1, "a");
    made.key(2, "a");
    made.key(2, "other");
    clients.tell_changes(0);
    assert_eq!((heard(&reader), clients.tracking.sizes()), ("a".to_owned(), [1, 1, 0]));
    clients.tell_changes(0);
    made.0.lock().push_back((3, Changed::Any));
    assert_eq!(heard(&reader), "");
    clients.tell_changes(0);
    assert_eq!((heard(&reader), clients.tracking.sizes()), ("_".to_owned(), [0, 0, 0]));
    clients.tracking.end(&reader);
    assert_eq!((clients.tracking.clients(), reader.tracking.words()), (0, vec!["off"]));
}

#[test]
fn tracking_2_a_key_read_from_an_older_state_counts_as_changed() {
    let (clients, made) = (Clients::default(), Made::default());
    let reader = client(&clients, &made, &Setting::default());
    let rounds = clients.tracking.rounds();
    made.key(1, "a");
    clients.tell_changes(0);
    clients.remember(&reader, &[b"a"], rounds, false, 0);
    assert_eq!(heard(&reader), "a", "tracking.2");
    clients.remember(&reader, &[b"a"], clients.tracking.rounds(), true, 0);
    assert_eq!((heard(&reader), clients.tracking.sizes()[0]), ("a".to_owned(), 0), "tracking.2");
}

#[test]
fn own_changes_are_left_out_if_no_one_else_made_them() {
    let (clients, made) = (Clients::default(), Made::default());
    let quiet =
        Setting { is_no_loop: true, is_bcast: true, prefixes: vec![b"".into()], ..Setting::default() };
    let (one, other) = (client(&clients, &made, &quiet), client(&clients, &made, &quiet));
    for (key, writers) in [("a", &[one.id][..]), ("b", &[one.id, other.id]), ("c", &[one.id, NO_CLIENT])] {
        writers.iter().for_each(|id| clients.tracking.note_writer(key.as_bytes(), *id));
        made.key(5, key);
    }
    // Someone else commits one of the keys as well.
    made.key(6, "d");
    clients.tracking.note_writer(b"d", one.id);
    clients.tell_changes(5);
    assert_eq!((heard(&one), heard(&other)), ("b c d".to_owned(), "a b c d".to_owned()));
    made.key(7, "a");
    clients.tell_changes(7);
    assert_eq!(heard(&one), "a", "writers of an earlier commit do not count");
}

#[test]
fn a_large_table_is_reduced_and_reports_it() {
    let (clients, made) = (Clients::default(), Made::default());
    let reader = client(&clients, &made, &Setting::default());
    let keys: Vec<_> = (0..500).map(|n| format!("key{n}").into_bytes()).collect();
    keys.iter().for_each(|key| clients.remember(&reader, &[key], 0, false, 0));
    while clients.tracking.sizes()[0] > 20 {
        clients.remember(&reader, &[b"key0"], 0, false, 20);
    }
    let dropped = heard(&reader);
    let left = keys.iter().filter(|key| !dropped.split(' ').any(|word| word.as_bytes() == **key));
    assert!(left.count() <= 20 && clients.tracking.sizes() == [20, 20, 0]);
}

#[test]
fn ranges_concern_keys_and_prefixes_in_them() {
    let (clients, made) = (Clients::default(), Made::default());
    let reader = client(&clients, &made, &Setting::default());
    let prefixed =
        |prefix: &str| Setting { is_bcast: true, prefixes: vec![prefix.into()], ..Setting::default() };
    let (near, far) = (client(&clients, &made, &prefixed("b")), client(&clients, &made, &prefixed("x")));
    clients.remember(&reader, &[b"a", b"b", b"c"], 0, false, 0);
    made.0.lock().push_back((1, Changed::Range(b"b".into(), Some(b"c".into()))));
    clients.tell_changes(0);
    assert_eq!([heard(&reader), heard(&near), heard(&far)], ["b", "_", ""]);
    made.0.lock().push_back((1, Changed::Range(Vec::new(), None)));
    clients.tell_changes(0);
    assert_eq!([heard(&reader), heard(&near), heard(&far)], ["_", "_", "_"]);
}
