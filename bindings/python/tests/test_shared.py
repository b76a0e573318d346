"""`esker.open_shared`: several processes that write one database."""

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

import esker

OPTIONS = {"durability": "buffered", "memory": "64MiB"}


class Process:
    """Another process that opens the database, and executes lines of Python that it reads."""

    PROGRAM = """
import sys, esker
with esker.open_shared(sys.argv[1], durability="buffered", memory="64MiB") as db:
    names = {"db": db, "m": db["m"], "esker": esker}
    print("open", db.is_host, flush=True)
    for line in sys.stdin:
        try:
            print(repr(eval(line, names)), flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
"""

    def __init__(self, path):
        self.process = subprocess.Popen([sys.executable, "-c", self.PROGRAM, path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)  # fmt: skip
        opened, self.is_host = self.process.stdout.readline().split()
        assert opened == "open"

    def __call__(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.stdin.close()
            assert self.process.wait(60) == 0
        self.process.stdout.close()


@pytest.fixture(params=["host", "guest"])
def db(request, tmp_path):
    """A shared database of which this process is the host, or a guest."""
    path = str(tmp_path / "db")
    if request.param == "host":
        with esker.open_shared(path, **OPTIONS) as opened:
            assert opened.is_host
            yield opened
    else:
        with Process(path), esker.open_shared(path, **OPTIONS) as opened:
            assert not opened.is_host
            yield opened
    with esker.open(path) as opened:
        assert opened.check()["problems"] == []


def test_a_keyspace_is_a_mapping(db):
    users = db["users"]
    users["ann"], users["bob"], users["cid"] = "1", b"2", bytearray(b"3")
    assert dict(users) == {b"ann": b"1", b"bob": b"2", b"cid": b"3"} and len(users) == 3 and users
    assert ("ann" in users, "dan" in users, users.get("dan"), users.get("dan", 5)) == (True, False, None, 5)
    assert users.get_many(["cid", "no"]) == [b"3", None]
    assert list(users.items("b", reverse=True)) == [(b"cid", b"3"), (b"bob", b"2")]
    assert list(users.keys(prefix="a")) == [b"ann"] and list(users.values(limit=1)) == [b"1"]
    assert list(reversed(users)) == [b"cid", b"bob", b"ann"]
    assert (len(users.keys("b")), len(users.items(limit=2)), len(users.items())) == (2, 2, 3)
    assert (users.first(), users.last()) == ((b"ann", b"1"), (b"cid", b"3"))
    for missing in (lambda: users["no"], lambda: users.__delitem__("no"), lambda: users.pop("no"),
                    lambda: users.ttl("no")):  # fmt: skip
        with pytest.raises(KeyError):
            missing()
    assert (users.pop("ann"), users.pop("ann", 1), users.setdefault("e", b"5")) == (b"1", 1, b"5")
    assert (users.pop_first(), users.pop_last(), users.popitem()) == (
        (b"bob", b"2"), (b"e", b"5"), (b"cid", b"3"))  # fmt: skip
    with pytest.raises(KeyError):
        users.popitem()
    users.update({"x": "1", "y": "2"}, z="3")
    users.delete_range(prefix="x")
    users.delete("y")
    assert list(users) == [b"z"]
    users.clear()
    assert not users and users.pop_first() is None


def test_other_writes(db):
    numbers = db["numbers"]
    assert (numbers.add("n", 5), numbers.add("n")) == (0, 5)
    assert numbers.compare_and_swap("k", None, "1") and not numbers.compare_and_swap("k", None, "2")
    numbers.put("short", "x", ttl=0.2)
    numbers.using(ttl=100, durability="sync")["long"] = "x"
    assert numbers.ttl("k") is None and 90 < numbers.ttl("long") <= 100
    time.sleep(0.3)
    assert numbers.get("short") is None
    large = os.urandom(3_000_000)
    numbers["large"] = large
    assert numbers["large"] == large and list(numbers.values("large", limit=1)) == [large]
    with pytest.raises(TypeError):
        numbers[5] = "x"
    with pytest.raises(esker.TooLong):
        numbers["x" * 70_000] = "y"


def test_keyspaces(db):
    db["b"], db["a"]
    assert list(db) == db.keyspaces() and len(db) == len(list(db))
    assert {"a", "b"} <= set(db) and "a" in db and "c" not in db
    assert not any(name.startswith("esker") for name in db)
    db["a"]["key"] = "x"
    db.rename_keyspace("a", "c")
    db.drop_keyspace("b")
    assert "c" in db and not {"a", "b"} & set(db) and db["c"]["key"] == b"x"
    with pytest.raises(esker.KeyspaceNotFound):
        db.open_keyspace("b")


def test_snapshots_batches_and_transactions(db):
    m, other = db["m"], db["other"]
    m["a"] = "1"
    with db.snapshot() as before:
        with db.batch() as batch:
            batch[m]["b"] = "2"
            batch["other"].put("x", "y", ttl=100)
            batch[m].delete("a")
            assert len(batch) == 3 and "b" not in m
        assert dict(before["m"]) == {b"a": b"1"} and before[other].get("x") is None
        assert dict(m) == {b"b": b"2"} and other["x"] == b"y"
        assert not hasattr(before["m"], "put")
    with pytest.raises(esker.Invalid):
        before[m]["a"]
    with pytest.raises(ZeroDivisionError), db.batch() as batch:
        batch[m].delete_range("a", "z")
        raise ZeroDivisionError
    with db.transaction(isolation="snapshot", durability="sync") as t:
        t[m]["c"] = "3"
        t.lock(m, "c")
        assert list(t["m"]) == [b"b", b"c"] and "c" not in m and t.is_open
    assert m["c"] == b"3" and not t.is_open
    with pytest.raises(ZeroDivisionError), db.transaction() as t:
        t[m].clear()
        raise ZeroDivisionError
    with pytest.raises(esker.Invalid):
        t[m]["a"] = "1"
    assert list(m) == [b"b", b"c"]
    with db.batch() as batch:
        batch[m].clear()
    assert not m


def test_a_conflict_runs_the_body_again(db):
    m, attempts = db["m"], []
    m["n"] = "0"

    def body(t):
        attempts.append(t[m]["n"])
        if len(attempts) == 1:
            m["n"] = "1"
        t[m]["n"] = t[m]["n"] + b"x"
        with pytest.raises(esker.Invalid):
            t.commit()
        return "done"

    assert db.transact(body) == "done" and attempts == [b"0", b"1"] and m["n"] == b"1x"
    attempts.clear()
    with pytest.raises(esker.Conflict):
        db.transact(body, attempts=1)

    @esker.transactional(db)
    def move(t, amount):
        return t["accounts"].add("ann", -amount)

    assert (move(5), move(1)) == (0, -5)


def test_processes_see_each_others_commits(tmp_path):
    path = str(tmp_path / "db")
    with esker.open_shared(path, **OPTIONS) as db, Process(path) as a, Process(path) as b:
        assert (db.is_host, a.is_host, b.is_host) == (True, "False", "False")
        for _ in range(20):
            before = int(a('db.transact(lambda t: t["m"].add("n", 1))'))
            assert b('m.add("n", 1)') == str(before + 1)
            db["m"].add("n", 1)
        assert db["m"].add("n", 0) == 60 and a('m.add("n", 0)') == "60"
        assert b("m.put('k', 'v')") == "None" and db["m"]["k"] == b"v"
        assert a("m['missing']") == "KeyError" and b("m.put('x' * 70000, '')") == "TooLong"
        with pytest.raises(esker.Locked):
            esker.open(path)


def test_a_guest_takes_over_from_a_killed_host(tmp_path):
    path = str(tmp_path / "db")
    with Process(path) as host, esker.open_shared(path, **OPTIONS) as db, Process(path) as other:
        m = db["m"]
        for n in range(100):
            m[f"{n:03}"] = "x"
        snapshot, transaction, walk = db.snapshot(), db.transaction(), iter(m.items())
        transaction[m]["lost"] = "x"
        assert next(walk) == (b"000", b"x") and host.is_host == "True"
        host.kill()
        assert len(m) == 100 and other("len(m)") == "100"
        m["more"] = "x"
        assert other('m["more"]') == "b'x'"
        assert db.is_host != (other("db.is_host") == "True")
        for gone in (lambda: snapshot[m].get("000"), transaction.commit):
            with pytest.raises(esker.HostGone):
                gone()
        assert "lost" not in m


def test_a_host_that_never_comes(tmp_path):
    path = str(tmp_path / "db")
    with esker.open(path), pytest.raises(esker.NoHost) as error:
        esker.open_shared(path, wait=0.3)
    assert isinstance(error.value, TimeoutError) and pathlib.Path(error.value.path).name == "db"
    with pytest.raises(TypeError):
        esker.open_shared(path, wrong=1)


def child(db, queue):
    try:
        db["m"]
        queue.put("no error")
    except esker.Forked:
        queue.put("Forked")


def test_ends_and_forks(tmp_path):
    db = esker.open_shared(tmp_path / "db", **OPTIONS)
    m = db["m"]
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    process = fork.Process(target=child, args=(db, queue))
    process.start()
    assert queue.get(timeout=60) == "Forked"
    process.join()
    m["a"] = "1"
    db.sync()
    db.close()
    db.close()
    for call in (db.keyspaces, db.snapshot, lambda: m["a"]):
        with pytest.raises(esker.Closed):
            call()


def test_langgraph_on_a_shared_database(tmp_path):
    pytest.importorskip("langgraph.checkpoint.base")
    from esker.langgraph import EskerSaver, EskerStore
    from langgraph.checkpoint.base import empty_checkpoint

    path = str(tmp_path / "db")
    with Process(path), esker.open_shared(path, **OPTIONS) as db:
        saver, store = EskerSaver(db), EskerStore(db)
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        put = saver.put(config, {**empty_checkpoint(), "channel_values": {"a": 1}}, {"step": 1}, {})
        saver.put_writes(put, [("a", 2)], "task")
        found = saver.get_tuple(config)
        assert found.checkpoint["channel_values"] == {"a": 1} and found.pending_writes == [("task", "a", 2)]
        assert len(list(saver.list(config))) == 1
        store.put(("a",), "k", {"n": 1}, ttl=60)
        assert [item.value for item in store.search(("a",))] == [{"n": 1}]
        assert store.list_namespaces() == [("a",)]
        saver.delete_thread("t")
        assert saver.get_tuple(config) is None
