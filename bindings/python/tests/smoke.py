"""What a first program does, with the standard library only: smoke.rs runs it. The argument is a path."""

import sys
import threading

import esker

path = sys.argv[1]


def fails_with(error, call):
    try:
        call()
    except error as found:
        return found
    raise AssertionError(f"no {error.__name__}")


with esker.open(path, feed=True) as db:
    users = db["users"]
    users["ann"] = "1"
    with db.transaction() as t:
        t[users]["bob"] = t[users]["ann"]
    assert list(users.items("a", "c", reverse=True)) == [(b"bob", b"1"), (b"ann", b"1")]
    keys = set()
    for commit in db.feed(0):
        keys.update(change.key for change in commit)
        if b"bob" in keys:
            break
    assert b"ann" in keys
    fails_with(KeyError, lambda: users["eve"])
    locked = fails_with(esker.Locked, lambda: esker.open(path))
    assert str(locked)

    def add_one():
        for _ in range(50):
            db.transact(lambda t: t[users].put("n", str(int(t[users].get("n", b"0")) + 1)))

    threads = [threading.Thread(target=add_one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = db.table("events", key=esker.keys(str, int), value=esker.json)
    events["ann", 7] = {"page": "/"}
    snapshot = db.snapshot()
    users.put("gone", "x", ttl=0.001)
    del users["bob"]
    assert "bob" in snapshot[users] and "bob" not in users

with esker.open(path) as db:
    assert db["users"]["n"] == b"200" and "gone" not in db["users"]
    events = db.table("events", key=esker.keys(str, int), value=esker.json)
    assert events["ann", 7] == {"page": "/"}
    db.checkpoint(path + ".copy")
with esker.open(path + ".copy", read_only=True) as db:
    assert db["users"]["ann"] == b"1"
    fails_with(esker.ReadOnly, lambda: db["users"].put("ann", "2"))
print("ok")
