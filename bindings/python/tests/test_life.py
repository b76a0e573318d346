"""Opening, closing, forks, kills, copies and the feed."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import esker

WRITER = """
import os, sys, esker
db = esker.open(sys.argv[1], durability=sys.argv[2])
users = db["users"]
for n in range(10 ** 6):
    with db.transaction() as t:
        t[users][f"{n:08}"] = "x" * 100
        t["count"]["n"] = str(n)
    print(n, flush=True)
    if sys.argv[3] == "exit" and n == 150:
        os._exit(9)
"""


@pytest.mark.parametrize(("durability", "end"), [("sync", "exit"), ("buffered", "kill"), ("sync", "kill")])
def test_a_killed_process_loses_nothing_acknowledged(tmp_path, durability, end):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "db"), durability, end]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        last = -1
        for line in child.stdout:
            last = int(line)
            if end == "kill" and last == 150:
                child.send_signal(signal.SIGKILL)
    assert last >= 150
    with esker.open(tmp_path / "db", create=False) as db:
        count = int(db["count"]["n"])
        assert count >= last and len(db["users"]) == count + 1 and db.check()["problems"] == []
        assert db["users"].last()[0] == f"{count:08}".encode()


def test_a_program_that_ends_keeps_commits_without_durability(tmp_path):
    program = "import esker, sys; esker.open(sys.argv[1], durability='none')['users']['ann'] = '1'"
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "db")], check=True)
    with esker.open(tmp_path / "db") as db:
        assert db["users"]["ann"] == b"1"


def test_objects_after_close(db):
    users = db["users"]
    users.update({f"{n:04}": "v" for n in range(500)})
    walk, snapshot, t, batch, feed = iter(users), db.snapshot(), db.transaction(), db.batch(), db.feed()
    assert next(walk) == b"0000" and t[users]["0001"] == b"v"
    view = t[users]
    view["x"] = "1"
    batch[users]["y"] = "1"
    db.close()
    db.close()
    calls = [
        lambda: users["0001"], lambda: users.put("a", "b"), lambda: len(users), lambda: list(users),
        lambda: list(walk), lambda: snapshot[users]["0001"], lambda: db["users"], db.check, db.flush,
        t.commit, batch.commit, lambda: feed.next(0), lambda: db.transact(lambda t: t[users].add("n")),
        db.keyspaces, lambda: users.add("a"), lambda: users.clear(), lambda: users.at(1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(esker.Closed):
            call()
    t.rollback()
    del walk, snapshot, t, view, batch, feed
    gc.collect()


def test_a_forked_child_is_refused(db):
    users = db["users"]
    users["ann"] = "1"
    walk, t, snapshot, feed = iter(users), db.transaction(), db.snapshot(), db.feed()
    child = os.fork()
    if child == 0:
        calls = [
            lambda: users["ann"], lambda: users.put("a", "b"), lambda: next(walk), lambda: t[users],
            lambda: snapshot[users], lambda: db["users"], lambda: feed.next(0), t.commit, db.close, db.batch,
            lambda: len(users), lambda: users.keys(),
        ]  # fmt: skip
        refused = 0
        for call in calls:
            try:
                call()
            except esker.Forked:
                refused += 1
        os._exit(0 if refused == len(calls) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    users["bob"] = "2"
    assert len(users) == 2


def test_a_forked_child_does_not_wait_for_locks_of_threads_that_it_lacks(db):
    """Other threads use a transaction, a batch and a snapshot all the time, also at the moment of a fork."""
    users, stop = db["users"], threading.Event()
    t, batch, snapshot = db.transaction(), db.batch(), db.snapshot()
    point = t.savepoint()
    view = snapshot[users]

    def work():
        while not stop.is_set():
            for n in range(50):
                t[users][f"{n}"] = "v"
                batch[users][f"{n}"] = "v"
            len(t[users]), list(view), len(batch)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    calls = [
        lambda: t.is_open, lambda: t.__exit__(None, None, None), lambda: point.__exit__(None, None, None),
        lambda: len(batch), lambda: batch.is_open, batch.rollback, lambda: batch.__exit__(None, None, None),
        snapshot.close, snapshot.__enter__().__exit__, point.rollback, t.rollback, db.__exit__,
    ]  # fmt: skip
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                refused = 0
                for call in calls:
                    try:
                        call()
                    except esker.Forked:
                        refused += 1
                os._exit(0 if refused == len(calls) else 1)
            deadline = time.monotonic() + 20
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    pytest.fail("the child hangs")
                time.sleep(0.002)
            assert os.waitstatus_to_exitcode(ended[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_forked_child_ends_with_its_own_exception(tmp_path):
    """`with` blocks of the parent do not replace the exception that ends the child."""
    program = """
import esker, os, sys
with esker.open(sys.argv[1]) as db, db.snapshot(), db.batch(), db.transaction() as t, t.savepoint():
    child = os.fork()
    if child == 0:
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-c", program, str(tmp_path / "db")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("7\n", "", 0)


def test_opening(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        esker.open(tmp_path / "db", create=False)
    assert isinstance(missing.value, esker.NoDatabase) and missing.value.path == tmp_path / "db"
    with esker.open(str(tmp_path / "db"), memory="64MiB", compression="zstd", mode=0o700) as db:
        db["users"]["ann"] = "1"
        with pytest.raises(esker.Locked) as locked:
            esker.open(tmp_path / "db")
        assert locked.value.pid == os.getpid()
        follower = esker.follow(tmp_path / "db")
        db["users"]["ann"] = "2"
        follower.catch_up()
        assert follower.db.open_keyspace("users")["ann"] == b"2"
        with pytest.raises(esker.NoFeed):
            db.feed()
    with esker.open(tmp_path / "db", read_only=True) as db:
        assert db.open_keyspace("users")["ann"] == b"2" and len(db["users"]) == 1
        for change in (lambda: db["users"].put("a", "b"), lambda: db.create_keyspace("other")):
            with pytest.raises(esker.ReadOnly):
                change()
    for wrong in ({"durability": "often"}, {"memory": "much"}, {"isolation": "x"}, {"compression": "x"}):
        with pytest.raises(esker.Invalid):
            esker.memory(**wrong)
    for wrong in ({"blobs": "much"}, {"blobs": True}, {"blobs": 1.5}, {"feed": (1, 2, 3)}):
        with pytest.raises((TypeError, ValueError)):
            esker.memory(**wrong)
    with pytest.raises(TypeError):
        esker.open(None)
    with pytest.raises(TypeError, match='no option "colour"'):
        esker.memory(colour=1)


def test_blobs(tmp_path):
    for given, expected in ((None, 1), ("2KiB", 1), (1000, 1), (False, 0), (10000, 0)):
        with esker.open(tmp_path / f"{given}", blobs=given) as db:
            db["users"]["ann"] = "x" * 5000
            db.flush()
        assert len(list((tmp_path / f"{given}").glob("*.blob"))) == expected, given


def test_damage_names_file_and_offset(tmp_path):
    with esker.open(tmp_path / "db") as db:
        db["users"].update({f"{n:04}": os.urandom(100) for n in range(5000)})
        db.compact()
    [table] = (tmp_path / "db").glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    with esker.open(tmp_path / "db") as db:
        with pytest.raises(esker.Corrupt) as damage:
            list(db["users"].items())
        assert damage.value.path == table and 0 < damage.value.offset <= len(content) // 2 + 8192
        assert db.check()["problems"]


def test_copies(db, tmp_path):
    users = db["users"]
    users["ann"] = "1"
    assert db.checkpoint(tmp_path / "copy") == db.seqno
    with pytest.raises(esker.AlreadyExists):
        db.checkpoint(tmp_path / "copy")
    first = db.backup(tmp_path / "backups")
    users["ann"] = "2"
    assert [b["id"] for b in esker.backups(tmp_path / "backups")] == [first]
    db.backup(tmp_path / "backups")
    esker.restore(tmp_path / "backups", tmp_path / "old", id=first)
    esker.restore(tmp_path / "backups", tmp_path / "new")
    for name, value in (("copy", b"1"), ("old", b"1"), ("new", b"2")):
        with esker.open(tmp_path / name) as copy:
            assert copy["users"]["ann"] == value
    assert db.stats()["items"] == 1


def test_feed(db):
    users = db["users"]
    start = db.seqno
    with db.batch() as batch:
        batch[users]["ann"] = "1"
        batch[users].delete("bob")
    users.delete_range("c", "d")
    db.sync()
    feed = db.feed(start)
    commit = feed.next(5)
    assert [(c.kind, c.keyspace, c.key, c.value) for c in commit] == [
        ("put", "users", b"ann", b"1"),
        ("delete", "users", b"bob", None),
    ]
    [change] = feed.next(5)
    assert change[:4] == ("delete_range", "users", b"c", b"d") and feed.next(0) is None
    users.merge_operator = "append"
    before = time.time() - 0.001
    users.using(ttl=60).merge("m", "1")
    users.merge("m", "2")
    db.sync()
    merges = []
    while (commit := feed.next(0)) is not None:
        merges += [change for change in commit if change.kind == "merge"]
    assert [(c.key, c.value, c.lifetime, c.expires_at) for c in merges] == [
        (b"m", b"1", 60.0, None), (b"m", b"2", None, None)
    ]
    assert before <= merges[0].merged_at <= merges[1].merged_at <= time.time()
    assert (change.merged_at, change.lifetime) == (None, None)
    with pytest.raises(esker.FeedAhead):
        db.feed(10**6)
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(commit.seqno for commit in feed))
    reader.start()
    users["late"] = "1"
    db.sync()
    deadline = time.monotonic() + 10
    while not seen and time.monotonic() < deadline:
        time.sleep(0.01)
    expected = [db.seqno]
    db.close()
    reader.join(10)
    assert seen == expected and not reader.is_alive()


def test_the_newest_changes_are_waited_for_without_the_lock_of_the_interpreter(db):
    """A waiting reader, commits and walks let other threads run."""
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(1)
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    assert db.feed(db.seqno).next(0.3) is None
    stop.set()
    ticker.join()
    assert len(ticks) > 20
