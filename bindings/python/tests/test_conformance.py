"""Replays bindings/conformance.jsonl, which all bindings replay."""

import json
import math
import pathlib
import struct
import time
import uuid

import pytest

import esker

FILE = pathlib.Path(__file__).parents[2] / "conformance.jsonl"

# The classes of errors by the names of `esker_status`.
ERRORS = {
    "invalid": esker.Invalid, "io": esker.Io, "no_space": esker.NoSpace, "corrupt": esker.Corrupt,
    "no_database": esker.NoDatabase, "locked": esker.Locked, "read_only": esker.ReadOnly,
    "conflict": esker.Conflict, "deadlock": esker.Deadlock, "lock_timeout": esker.LockTimeout,
    "poisoned": esker.Poisoned, "too_long": esker.TooLong, "keyspace_not_found": esker.KeyspaceNotFound,
    "keyspace_exists": esker.KeyspaceExists, "merge": esker.Merge, "gone": esker.Gone,
    "no_feed": esker.NoFeed, "feed_ahead": esker.FeedAhead, "exists": esker.AlreadyExists,
    "closed": esker.Closed,
}  # fmt: skip


def raw(text):
    return None if text is None else bytes.fromhex(text)


def shown(value):
    return None if value is None else value.hex()


def field(given):
    if given is None:
        return None
    [(kind, value)] = given.items()
    match kind:
        case "bytes":
            return raw(value)
        case "int":
            return int(value)
        case "float":
            return esker.tuple.SingleFloat.from_bits(int(value, 16))
        case "double":
            return struct.unpack(">d", raw(value))[0]
        case "uuid":
            return uuid.UUID(value)
        case "tuple":
            return tuple(map(field, value))
    return value


def same(one, other):
    """Whether two fields are the same, NaNs and the types included."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return struct.pack(">d", one) == struct.pack(">d", other)
    return type(one) is type(other) and one == other


class Replay:
    def __init__(self, directory):
        self.directory, self.copies, self.mark = directory, 0, 0
        self.open(directory / "db")

    def open(self, path):
        self.path, self.txns, self.points, self.spaces = path, {}, {}, {}
        self.db = esker.open(path, durability="none", feed=("64MiB", 3600))

    def space(self, call):
        """The keyspace of a call, in its transaction."""
        name = call["keyspace"]
        if name not in self.spaces:
            self.spaces[name] = self.db[name]
        txn = self.txns.get(call.get("txn"))
        return self.spaces[name] if txn is None else txn[self.spaces[name]]

    def run(self, call):
        txn, do = self.txns.get(call.get("txn")), call["do"]
        key = raw(call.get("key"))
        match do:
            case "keyspace":
                self.spaces[call["keyspace"]] = (self.db if txn is None else txn)[call["keyspace"]]
            case "rename":
                (txn or self.db).rename_keyspace(call["from"], call["to"])
                if call["from"] in self.spaces:
                    self.spaces[call["to"]] = self.spaces.pop(call["from"])
            case "drop":
                (txn or self.db).drop_keyspace(call["keyspace"])
                self.spaces.pop(call["keyspace"], None)
            case "names":
                return self.db.keyspaces()
            case "operator":
                self.db[call["keyspace"]].merge_operator = call["operator"]
            case "begin":
                kind = call["kind"]
                begin = {"read_only": self.db.snapshot, "write_only": self.db.batch}
                self.txns[call["txn"]] = begin.get(kind, lambda: self.db.transaction(isolation=kind))()
            case "savepoint":
                self.points[call["txn"], call["savepoint"]] = txn.savepoint()
            case "rollback_to":
                self.points[call["txn"], call["savepoint"]].rollback()
            case "commit" | "rollback":
                del self.txns[call["txn"]]
                (txn.close if isinstance(txn, esker.Snapshot) else getattr(txn, do))()
            case "sleep":
                time.sleep(call["ms"] / 1000)
                # Until then `len` counts what has expired.
                self.db.sweep()
            case "reopen":
                self.db.close()
                self.open(self.path)
            case "checkpoint":
                self.copies += 1
                copy = self.directory / f"copy{self.copies}"
                self.db.checkpoint(copy)
                self.db.close()
                self.open(copy)
            case "mark":
                self.mark = self.db.seqno
            case "feed":
                return self.feed()
            case "pack":
                fields = tuple(map(field, call["fields"]))
                packed = esker.tuple.pack(fields)
                assert same(esker.tuple.unpack(packed), fields), (esker.tuple.unpack(packed), fields)
                return packed.hex()
            case "unpack":
                esker.tuple.unpack(key)
            case _:
                return self.entry(do, call, self.space(call), key)
        return None

    def entry(self, do, call, space, key):
        match do:
            case "put":
                ttl = call.get("ttl_ms")
                space.put(key, raw(call["value"]), ttl=None if ttl is None else ttl / 1000)
            case "get":
                return shown(space.get(key))
            case "contains":
                return key in space
            case "many":
                return list(map(shown, space.get_many(map(raw, call["keys"]))))
            case "delete":
                space.delete(key)
            case "remove":
                return shown(space.pop(key, None))
            case "delete_range":
                space.delete_range(raw(call["start"]), raw(call["end"]))
            case "delete_prefix":
                space.delete_range(prefix=raw(call["prefix"]))
            case "merge":
                space.merge(key, raw(call["operand"]))
            case "swap":
                return space.compare_and_swap(key, raw(call["expected"]), raw(call["value"]))
            case "add":
                return str(space.add(key, int(call["by"])))
            case "ttl":
                try:
                    return "none" if space.ttl(key) is None else "some"
                except KeyError:
                    return "missing"
            case "scan":
                bounds = {name: raw(call.get(name)) for name in ("start", "end", "prefix")}
                found = space.items(**bounds, reverse=call.get("reverse") or False, limit=call.get("limit"))
                return [[k.hex(), v.hex()] for k, v in found]
            case "len":
                return len(space)
            case _:
                raise AssertionError(f"an unknown call: {do}")

    def feed(self):
        self.db.sync()
        feed, commits = self.db.feed(self.mark), []
        while (commit := feed.next(0)) is not None:
            changes = []
            for change in commit:
                if change.kind in ("put", "merge", "delete", "delete_range"):
                    changes.append({"change": change.kind, "keyspace": change.keyspace,
                                    "key": shown(change.key), "value": shown(change.value)})  # fmt: skip
            if changes:
                commits.append(changes)
        return commits


def replay(lines, directory):
    state = Replay(directory)
    for number, line in enumerate(lines, 1):
        call = json.loads(line)
        try:
            reply, failed = state.run(call), None
        except esker.Error as error:
            reply, failed = None, error
        expected = ERRORS[call["error"]] if "error" in call else None
        if expected is None:
            assert failed is None, f"line {number}: {line.strip()}: {failed!r}"
            assert reply == call.get("is"), f"line {number}: {line.strip()}: {reply!r}"
        else:
            assert isinstance(failed, expected), f"line {number}: {line.strip()}: {failed!r} {reply!r}"
    assert state.db.check()["problems"] == []
    state.db.close()
    return number


def test_the_conformance_file(tmp_path):
    with FILE.open() as lines:
        assert replay(lines, tmp_path) > 100


def test_the_replayer_notices_what_differs(tmp_path):
    calls = [
        {"do": "keyspace", "keyspace": "a"},
        {"do": "put", "keyspace": "a", "key": "01", "value": "02"},
        {"do": "mark"},
        {"do": "begin", "txn": 1, "kind": "serializable"},
        {"do": "scan", "keyspace": "a", "start": None, "end": None, "reverse": True, "limit": None,
         "is": [["01", "02"]], "txn": 1},
        {"do": "add", "keyspace": "a", "key": "0a", "by": "-3", "is": "0", "txn": 1},
        {"do": "put", "keyspace": "a", "key": "01", "value": "03"},
        {"do": "commit", "txn": 1, "error": "conflict"},
        {"do": "feed", "is": [[{"change": "put", "keyspace": "a", "key": "01", "value": "03"}]]},
        {"do": "pack", "fields": [{"int": "-1"}, {"text": "a"}, None, {"float": "7fc00000"}],
         "is": "13fe0261000020ffc00000"},
        {"do": "unpack", "key": "ff", "error": "invalid"},
        {"do": "checkpoint"},
        {"do": "get", "keyspace": "a", "key": "01", "is": "03"},
    ]  # fmt: skip
    assert replay(map(json.dumps, calls), tmp_path / "right") == len(calls)
    for number, call in enumerate(calls):
        if "is" in call or "error" in call:
            wrong = {k: v for k, v in call.items() if k not in ("is", "error")} | {"is": "other"}
            with pytest.raises(AssertionError):
                replay(map(json.dumps, [*calls[:number], wrong]), tmp_path / f"wrong{number}")
