"""Keyspaces as dicts, against dicts."""

import random
import time
from collections.abc import Mapping, MutableMapping

import pytest

import esker


def test_a_keyspace_does_what_a_sorted_dict_does(db):
    rng, model, keyspace = random.Random(7), {}, db["users"]
    keys = [f"k{n}".encode() for n in range(30)]
    for step in range(1500):
        key, value = rng.choice(keys), bytes([rng.randrange(256)]) * rng.choice([0, 1, 40, 5000])
        match rng.randrange(9):
            case 0 | 1 | 2:
                keyspace[key] = model[key] = value
            case 3:
                assert keyspace.pop(key, None) == model.pop(key, None)
            case 4:
                assert keyspace.setdefault(key, value) == model.setdefault(key, value)
            case 5:
                pairs = {rng.choice(keys): value for _ in range(3)}
                keyspace.update(pairs)
                model.update(pairs)
            case 6 if step % 5 == 0:
                start, end = sorted(rng.sample(keys, 2))
                keyspace.delete_range(start, end)
                model = {k: v for k, v in model.items() if not start <= k < end}
            case 7:
                assert (key in keyspace, keyspace.get(key)) == (key in model, model.get(key))
            case 8 if step % 40 == 0:
                db.flush() if step % 80 else db.compact()
        if step % 50 == 0:
            ordered = sorted(model.items())
            assert list(keyspace.items()) == ordered and len(keyspace) == len(model)
            assert list(reversed(keyspace)) == [k for k, _ in reversed(ordered)]
            start, end = sorted(rng.sample(keys, 2))
            part = [(k, v) for k, v in ordered if start <= k < end]
            assert list(keyspace.items(start, end)) == part and len(keyspace.keys(start, end)) == len(part)
            assert list(keyspace.values(start, end, reverse=True, limit=2)) == [v for _, v in part[::-1][:2]]
            assert list(keyspace.keys(prefix="k1")) == [k for k, _ in ordered if k.startswith(b"k1")]
            assert keyspace == model and dict(keyspace) == model
            assert keyspace.first() == (ordered[0] if ordered else None)
    keyspace.clear()
    assert not keyspace and list(keyspace) == [] and keyspace.pop_first() is None


def test_it_is_a_mapping_and_refuses_what_a_dict_refuses(db):
    users = db["users"]
    assert isinstance(users, MutableMapping) and isinstance(db.snapshot()[users], Mapping)
    assert not isinstance(db.snapshot()[users], MutableMapping) and isinstance(db, Mapping)
    with pytest.raises(KeyError, match="b'ann'"):
        users["ann"]
    for failing in (lambda: users.__delitem__("ann"), lambda: users.pop("ann"), users.popitem):
        with pytest.raises(KeyError):
            failing()
    for wrong in (7, None, 1.5, ["a"]):
        with pytest.raises(TypeError, match="bytes, str or a bytes-like object"):
            users[wrong] = b"1"
        with pytest.raises(TypeError):
            users["a"] = wrong
    with pytest.raises(TypeError):
        users.items("a", prefix="b")
    with pytest.raises(TypeError):
        users.pop("a", 1, 2)
    with pytest.raises(UnicodeEncodeError):
        users["\ud800"] = b"1"
    assert len(users) == 0 and users != 5 and users == {}


def test_bytes_go_in_from_any_buffer_and_out_as_views(db):
    users = db["users"]
    users["text"], users[b"array"], users[memoryview(b"xviewx")[1:5]] = "\u00e9", bytearray(b"1"), b"2" * 9000
    assert users["text"] == b"\xc3\xa9" and users["array"] == b"1"
    for _ in range(2):
        view = users.get("view", view=True)
        assert isinstance(view, memoryview) and view.readonly and view == b"2" * 9000
        assert len(view[5:]) == 8995
        with pytest.raises(TypeError):
            view[0] = 1
        with pytest.raises(TypeError):
            type(view.obj)()
        users["view"] = b"3"
        db.compact()
        assert bytes(view) == b"2" * 9000
        users["view"] = b"2" * 9000
        db.compact()
    assert users.get("none", view=True) is None and users.get("none", 5) == 5
    empty = users.put("empty", b"") or users.get("empty", view=True)
    assert bytes(empty) == b"" and users.get_many(["text", "none"]) == [b"\xc3\xa9", None]
    db.close()
    assert view[:3] == b"222"


def test_ttl(db):
    users = db["users"]
    users.put("brief", "1", ttl=0.05)
    users.put("long", "1", ttl=100)
    users["ever"] = "1"
    assert users.ttl("ever") is None and 99 < users.ttl("long") <= 100
    assert users.expire("ever", 50) and users.ttl("ever") <= 50 and users.persist("ever")
    time.sleep(0.08)
    assert "brief" not in users and not users.expire("brief", 1)
    with pytest.raises(KeyError):
        users.ttl("brief")
    users.using(ttl=20)["handle"] = "1"
    assert users.ttl("handle") <= 20
    with pytest.raises(OverflowError):
        users.put("x", "1", ttl=-1)
    users.default_ttl = 30
    users["default"] = "1"
    assert users.ttl("default") <= 30 and db["users"].default_ttl == 30


def test_numbers_operators_and_swaps(db):
    counts = db.create_keyspace("counts", merge_operator="add-i64")
    assert [counts.add("n", 5), counts.add("n", -7), counts.add("n")] == [0, 5, -2]
    counts.merge("n", (10).to_bytes(8, "little"))
    assert int.from_bytes(counts["n"], "little", signed=True) == 9 and counts.merge_operator == "add-i64"
    with pytest.raises(esker.Merge) as failed:
        counts.merge("n", b"123")
    assert failed.value.keyspace == "counts"
    with pytest.raises(esker.Invalid):
        counts.merge_operator = "append"
    assert counts.compare_and_swap("s", None, "1") and not counts.compare_and_swap("s", "2", "3")
    assert counts.compare_and_swap("s", "1", None) and "s" not in counts


def test_keyspaces_by_name(db):
    assert "users" not in db and db["users"].name == "users" and "users" in db
    users = db["users"]
    db.rename_keyspace("users", "people")
    users["ann"] = "1"
    assert list(db) == ["default", "people"] == db.keyspaces() and db["people"]["ann"] == b"1"
    with pytest.raises(esker.KeyspaceExists):
        db.create_keyspace("people")
    with pytest.raises(KeyError) as missing:
        db.open_keyspace("users")
    assert isinstance(missing.value, esker.KeyspaceNotFound) and missing.value.keyspace == "users"
    del db["people"]
    with pytest.raises(esker.KeyspaceNotFound):
        users["ann"]
    with pytest.raises(esker.TooLong), db.batch() as batch:
        batch["default"]["x" * 70_000] = "1"


def test_history(db):
    prices = db["prices"]
    prices.keep_history(versions=5)
    prices["apple"] = "30"
    monday = db.seqno
    prices["apple"] = "35"
    db.compact()
    assert prices.at(monday)["apple"] == b"30" and prices["apple"] == b"35"
    with pytest.raises(esker.Gone):
        db["users"].at(0)


def test_the_length_that_a_list_asks_for(db):
    """`list` asks for the length after it has begun a walk. A walk that has begun earlier does not answer."""
    m = db["m"]
    m.update({f"{n:04}": "x" for n in range(3000)})
    for bounds, options, length in (
        (("0000", "0005"), {}, 5), (("0000", "2000"), {}, 2000), ((), {"limit": 10}, 10), ((), {}, 3000),
        (("1000",), {"limit": 500, "reverse": True}, 500), (("9",), {}, 0), ((), {"prefix": "000"}, 10),
    ):  # fmt: skip
        for part in (m.items, m.keys, m.values):
            found = part(*bounds, **options)
            assert (len(list(found)), len(found)) == (length, length)
    found = m.keys("0000", "0005")
    walk = iter(found)
    assert len(found) == 5
    m["0000x"] = "new"
    assert len(found) == 6 and len(list(walk)) == 5
    walk = iter(found)
    next(walk)
    assert len(found) == 6
    with db.transaction() as t:
        found = t["m"].keys("0000", "0005")
        walk = iter(found)
        assert len(found) == 6
        t["m"]["0000y"] = "new"
        assert len(found) == 7 == len(list(found))
    with db.snapshot() as snapshot:
        found = snapshot["m"].keys("0000", "0005")
        m.clear()
        assert len(list(found)) == len(found) == 7
