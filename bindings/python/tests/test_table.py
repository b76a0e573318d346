"""Typed tables."""

import uuid

import pytest

import esker


def test_keys_and_values_are_objects_in_order(db):
    events = db.table("events", key=esker.keys(str, int), value=esker.json)
    pairs = {(user, n): {"n": n, "name": user} for user in ("ann", "ann\0", "bob") for n in (-5, 0, 7, 2**62)}
    for key in reversed(list(pairs)):
        events[key] = pairs[key]
    assert list(events.items()) == sorted(pairs.items()) and len(events) == 12 and events == pairs
    assert [n for (_, n) in events.keys(prefix=("ann",))] == [-5, 0, 7, 2**62]
    assert list(events.keys(("ann", 7), ("bob", 0)))[0] == ("ann", 7)
    assert list(events.values(("bob",), reverse=True, limit=1)) == [pairs["bob", 2**62]]
    assert list(reversed(events))[0] == ("bob", 2**62) == events.last()[0]
    assert ("ann", 0) in events.keys(prefix="ann") and ("ann", 1) not in events and "ann" not in events
    events.delete_range(prefix=("ann",))
    assert events.first()[0] == ("ann\0", -5) and events.pop(("bob", 0)) == pairs["bob", 0]
    events.update({("cid", 1): [1], ("cid", 2): None})
    assert events["cid", 2] is None and events.popitem() == (("cid", 2), None)
    with pytest.raises(KeyError, match="dan"):
        events["dan", 1]
    for wrong in ("ann", ("ann",), ("ann", "1"), ("ann", 1, 2), ("ann", True), (b"ann", 1), ("ann", 1.0)):
        with pytest.raises(TypeError):
            events[wrong] = 1
    with pytest.raises(TypeError):
        events["ann", 1] = object()


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (esker.json, {"a": [1, None, "\u00e9"]}),
        (esker.msgpack, {1: b"\0", "a": [1.5]}),
        (esker.pickle, {1, (2,)}),
        (str, "\u00e9"),
        (bytes, b"\0"),
    ],
)
def test_codecs_in_every_state(db, codec, value):
    if codec is esker.msgpack:
        pytest.importorskip("msgpack")
    table = db.table("t", key=uuid.UUID, value=codec)
    one, other = uuid.UUID(int=1), uuid.UUID(int=2)
    table[one] = value
    with db.snapshot() as snapshot:
        with db.transaction() as t:
            table.within(t)[other] = value
            assert other not in table and list(table.within(t)) == [one, other]
        table.put(one, value, ttl=0)
        assert list(table) == [other] and table[other] == value
        assert list(table.within(snapshot).items()) == [(one, value)]
    table.delete(other)
    assert table.pop_first() is None and not table


def test_what_is_of_another_table_is_an_error(db):
    db["events"][b"\xff"] = b"{}"
    events = db.table("events", esker.keys(str, (int, type(None))), esker.json)
    with pytest.raises(esker.Invalid):
        list(events)
    db["events"].clear()
    db.table("events", str, str)["ann"] = "no json"
    with pytest.raises(esker.Invalid, match="1 fields"):
        list(events)
    events["ann", None] = 1
    events["ann", 1] = 2
    assert list(events.values(("ann", None))) == [1, 2]
    for types in ((), (dict,), (str, list)):
        with pytest.raises(esker.Invalid):
            esker.keys(*types)
