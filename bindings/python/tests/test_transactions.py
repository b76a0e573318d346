"""Transactions, snapshots, batches: alone, together, and from threads."""

import gc
import threading
import weakref

import pytest

import esker


def number(keyspace, key):
    return int.from_bytes(keyspace.get(key, b""), "little")


def test_a_block_commits_or_rolls_back(db):
    users = db["users"]
    with db.transaction() as t:
        t[users]["ann"] = "1"
        assert "ann" not in users and t[users].first() == (b"ann", b"1") and len(t["users"]) == 1
    assert users["ann"] == b"1" and not t.is_open
    with pytest.raises(ZeroDivisionError), db.transaction() as t:
        t[users].clear()
        1 / 0
    assert users["ann"] == b"1"
    with pytest.raises(esker.Invalid, match="has ended"):
        t[users]["ann"]
    with db.transaction() as t:
        t["made"]["x"] = "1"
        assert "made" not in db
        seqno = t.commit()
    assert db["made"]["x"] == b"1" and seqno == db.seqno


def test_savepoints(db):
    users = db["users"]
    with db.transaction() as t:
        view = t[users]
        view["kept"] = "1"
        point = t.savepoint()
        view["undone"] = "1"
        view.delete_range()
        point.rollback()
        with pytest.raises(ValueError), t.savepoint():
            view["inner"] = "1"
            raise ValueError
        with t.savepoint():
            view["nested"] = "1"
        point.release()
        with pytest.raises(esker.Invalid, match="savepoint"):
            point.rollback()
    assert list(users) == [b"kept", b"nested"]


def test_conflicts(db):
    users = db["users"]
    users["n"] = "0"
    with pytest.raises(esker.Conflict) as conflict, db.transaction() as t:
        t[users]["m"] = t[users]["n"]
        users["n"] = "1"
    assert conflict.value.keyspace == "users" and "m" not in users
    with db.transaction(isolation="snapshot") as t:
        t[users]["m"] = t[users]["n"]
        users["n"] = "2"
    assert users["m"] == b"1"


def test_a_list_reads_the_entries_and_not_the_length(db):
    numbers, log = db["numbers"], db["log"]
    numbers.update((f"{n:04}", "x") for n in range(3000))
    for few in (1, 2000):
        t = db.transaction(isolation="serializable")
        assert len(list(t[numbers].items(limit=few))) == len(list(t[numbers].keys(limit=few))) == few
        numbers[f"new {few}"] = "x"  # behind what was read
        t[log]["a"] = "1"
        t.commit()
    t = db.transaction(isolation="serializable")
    keys = t[numbers].keys(limit=5)
    begun = iter(keys)
    t[numbers].delete_range(end="2999")
    assert (len(keys), len(list(begun))) == (3, 5)
    entries, begun = t[numbers].items(), iter(t[numbers].items())
    assert len(entries) == 3 and len(list(begun)) == 3
    numbers["newer"] = "x"
    with pytest.raises(esker.Conflict):  # it has read the length
        t.commit()
    t = db.transaction()
    entries = t[numbers].items()
    begun = iter(entries)
    t.rollback()
    with pytest.raises(esker.Invalid, match="has ended"):
        len(entries)


def test_transact_runs_again_and_returns(db):
    users, seen = db["users"], []

    @db.transact
    def outcome(t):
        seen.append(t.attempt)
        before = t[users].add("n", 10)
        if len(seen) < 3:
            users.add("n")
        return before

    assert (outcome, seen, number(users, "n")) == (2, [1, 2, 3], 12)

    @esker.transactional(db, durability="none")
    def move(t, by, *, to):
        return t[users].add(to, by)

    assert move(5, to="n") == 12 and number(users, "n") == 17
    with pytest.raises(RuntimeError, match="no"):
        db.transact(lambda t: (t[users].clear(), (_ for _ in ()).throw(RuntimeError("no")))[0])
    with pytest.raises(esker.Invalid, match="ends this transaction"):
        db.transact(lambda t: t.commit())
    with pytest.raises(esker.Conflict):
        db.transact(lambda t: (t[users].add("n"), users.add("n")), attempts=2)
    kept = []
    db.transact(kept.append)
    with pytest.raises(esker.Invalid, match="has ended"):
        kept[0][users]["n"]


def test_threads_lose_no_update(db):
    counts, per_thread = db["counts"], 60

    def work(kind):
        for _ in range(per_thread):
            if kind == 0:
                counts.add("n")
            elif kind == 1:
                db.transact(lambda t: t[counts].add("n"))
            elif kind == 2:
                with db.transaction(isolation="exclusive") as t:
                    t[counts].add("n")
            else:
                list(counts.items()), db.snapshot()[counts].get("n")

    threads = [threading.Thread(target=work, args=(n % 4,)) for n in range(8)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert not any(thread.is_alive() for thread in threads)
    assert number(counts, "n") == 6 * per_thread


def test_one_transaction_and_one_iterator_for_many_threads(db):
    users = db["users"]
    users.update({f"{n:05}": "v" for n in range(3000)})
    walk, found = iter(users), []
    with db.transaction() as t:

        def work(thread):
            for n in range(200):
                t[users][f"t{thread}.{n}"] = "1"
            found.extend(walk)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        [thread.start() for thread in threads]
        [thread.join(60) for thread in threads]
    assert len(users) == 3800 and sorted(found) == [f"{n:05}".encode() for n in range(3000)]


def test_locks_wait_and_time_out(db):
    users = db["users"]
    with db.transaction() as first, db.transaction() as second:
        first.lock(users, "k")
        with pytest.raises(TimeoutError) as late:
            second.lock(users, "k", timeout=0.01)
        assert isinstance(late.value, esker.LockTimeout)
        second.lock(users, "other")


def test_snapshots_and_batches(db):
    users = db["users"]
    users.update(a="1", b="2", c="3")
    with db.snapshot() as snapshot:
        view, walk = snapshot[users], iter(snapshot["users"].items())
        with db.batch() as batch:
            batch[users]["d"] = "4"
            batch["users"].delete_range("a", "c")
            batch[users].put("brief", "1", ttl=0)
            assert len(batch) >= 2 and "d" not in users
        assert list(users) == [b"c", b"d"] and snapshot.seqno < db.seqno
        assert dict(view) == {b"a": b"1", b"b": b"2", b"c": b"3"} and len(view) == 3
        assert list(walk) == list(view.items())
    with pytest.raises(esker.Invalid, match="closed"):
        view["a"]
    with pytest.raises(KeyError), db.batch() as batch:
        batch[users]["e"] = "5"
        raise KeyError
    assert "e" not in users
    with pytest.raises(esker.Invalid):
        batch[users]["e"] = "5"


def test_what_is_dropped_ends(db):
    users = db["users"]
    t = db.transaction(isolation="exclusive")
    t[users]["lost"] = "1"
    view = t[users]
    del t
    gc.collect()
    assert view["lost"] == b"1"
    del view
    users["after"] = "1"
    assert list(users) == [b"after"]
    box = [db.snapshot(), db["users"], iter(db["users"])]
    box.append(box)
    watch = weakref.ref(box[0])
    del box
    gc.collect()
    assert watch() is None
