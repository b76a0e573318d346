"""`EskerStore`: long-term memory of LangGraph.

    NAME.items    (label of the namespace, ..., None, key)    times of creation and update, lifetime, value

Keys have the encoding of `esker.tuple`, in which `None` sorts first: the items of a namespace are adjacent,
and precede those of the namespaces below it. Values are JSON.
"""

from __future__ import annotations

import asyncio
import json
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import Any, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)

from .. import Db, Transaction, View
from .. import tuple as fields
from ..shared import Db as SharedDb

_Labels = tuple[str, ...]

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


class _Record(NamedTuple):
    """The value of an item. Times are seconds since 1970, `ttl` is in minutes."""

    created: float
    updated: float
    ttl: float | None
    value: dict[str, Any]

    @staticmethod
    def decode(data: bytes) -> _Record:
        return _Record(*json.loads(data))

    def encode(self) -> bytes:
        return json.dumps(self, ensure_ascii=False, separators=(",", ":")).encode()


class EskerStore(BaseStore):
    """Keeps items of LangGraph in a database, open or shared, which the caller closes.

    The writes of a call of `batch` are one commit; its reads see the state before. A search returns items in
    the order of their namespaces and keys, and reads all items below its namespace until it has enough. There
    is no vector search: `query` and `index` have no effect. The asynchronous methods run in threads.
    """

    supports_ttl = True

    def __init__(self, db: Db | SharedDb, *, name: str = "langgraph", ttl: TTLConfig | None = None) -> None:
        """Uses the keyspace `NAME.items`. Of `ttl`, `default_ttl` and `refresh_on_read` have an effect:
        expired items are never returned, and the engine removes them."""
        super().__init__()
        self.db: Any = db
        self.ttl_config = ttl
        self._items: Any = db[f"{name}.items"]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Runs the operations, and returns their results."""
        given = list(ops)
        for op in given:
            validate_op_namespace(op)
        results: list[Result] = []
        puts: dict[bytes, PutOp] = {}
        # Keys of items whose lifetime begins again.
        read: list[bytes] = []
        with self.db.snapshot() as state:
            view = state[self._items]
            for op in given:
                if isinstance(op, GetOp):
                    results.append(_get(view, op, read))
                elif isinstance(op, SearchOp):
                    results.append(list(_search(view, op, read)))
                elif isinstance(op, ListNamespacesOp):
                    end = op.offset + op.limit
                    results.append(list(islice(_namespaces(view, op), op.offset, end)))
                elif isinstance(op, PutOp):
                    puts[_key(op.namespace, op.key)] = op
                    results.append(None)
                else:
                    raise ValueError(f"there is no operation {type(op).__name__}")
        if read:
            self._refresh(read)
        if puts:
            self._put(puts)
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Is `batch` in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _put(self, puts: dict[bytes, PutOp]) -> None:
        # Encoded first: a value that is no JSON fails before anything is written.
        now = time.time()
        new = {
            key: _Record(now, now, op.ttl, dict(op.value)).encode()
            for key, op in puts.items()
            if op.value is not None
        }

        def write(t: Transaction) -> None:
            items = t[self._items]
            for key, op in puts.items():
                if op.value is None:
                    items.delete(key)
                    continue
                data, before = new[key], items.get(key)
                if before is not None:
                    data = _Record(_Record.decode(before).created, now, op.ttl, dict(op.value)).encode()
                items.put(key, data, ttl=None if op.ttl is None else op.ttl * 60)

        self.db.transact(write)

    def _refresh(self, keys: list[bytes]) -> None:
        def write(t: Transaction) -> None:
            items = t[self._items]
            for key in keys:
                data = items.get(key)
                ttl = None if data is None else _Record.decode(data).ttl
                if data is not None and ttl is not None:
                    items.put(key, data, ttl=ttl * 60)

        # A power loss may take it: reads do not wait for the disk.
        self.db.transact(write, durability="buffered")


def _key(namespace: _Labels, key: str) -> bytes:
    return fields.pack((*namespace, None, key))


def _get(view: View, op: GetOp, read: list[bytes]) -> Item | None:
    key = _key(op.namespace, op.key)
    data = view.get(key)
    if data is None:
        return None
    record = _Record.decode(data)
    if op.refresh_ttl and record.ttl is not None:
        read.append(key)
    return Item(
        namespace=op.namespace,
        key=op.key,
        value=record.value,
        created_at=_time(record.created),
        updated_at=_time(record.updated),
    )


def _search(view: View, op: SearchOp, read: list[bytes]) -> Iterator[SearchItem]:
    entries = view.items(*fields.prefix_range(tuple(op.namespace_prefix)))
    records = ((key, _Record.decode(data)) for key, data in entries)
    found = ((key, record) for key, record in records if _matches(record.value, op.filter or {}))
    for key, record in islice(found, op.offset, op.offset + op.limit):
        *namespace, _, name = fields.unpack(key)
        if op.refresh_ttl and record.ttl is not None:
            read.append(key)
        yield SearchItem(
            namespace=tuple(namespace),
            key=name,
            value=record.value,
            created_at=_time(record.created),
            updated_at=_time(record.updated),
        )


def _namespaces(view: View, op: ListNamespacesOp) -> Iterator[_Labels]:
    """Returns the namespaces that match, in order. Reads one key of each."""
    conditions = op.match_conditions or ()
    start, end = fields.prefix_range(_common_prefix(conditions))
    while True:
        key = next(iter(view.keys(start, end, limit=1)), None)
        if key is None:
            return
        namespace = fields.unpack(key)[:-2]
        start = fields.prefix_range((*namespace, None))[1]
        if all(_is_match(condition, namespace) for condition in conditions):
            if op.max_depth is not None and len(namespace) >= op.max_depth:
                namespace = namespace[: op.max_depth]
                start = fields.prefix_range(namespace)[1]
            yield namespace


def _common_prefix(conditions: Iterable[MatchCondition]) -> _Labels:
    """Returns labels with which all matching namespaces begin."""
    longest: _Labels = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            literal = path[: path.index("*")] if "*" in path else path
            longest = max(longest, literal, key=len)
    return longest


def _is_match(condition: MatchCondition, namespace: _Labels) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise ValueError(f"there is no match type {condition.match_type!r}")
    if len(path) > len(namespace):
        return False
    start = 0 if condition.match_type == "prefix" else len(namespace) - len(path)
    labels = namespace[start : start + len(path)]
    return all(wanted in ("*", label) for wanted, label in zip(path, labels, strict=True))


def _matches(value: Any, wanted: Any) -> bool:
    """Returns whether a value is the wanted one, has the wanted fields, or passes the comparisons."""
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(_compare(value, name, operand) for name, operand in wanted.items())
        return isinstance(value, dict) and all(_matches(value.get(name), of) for name, of in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(value, list)
            and len(value) == len(wanted)
            and all(_matches(one, of) for one, of in zip(value, wanted, strict=True))
        )
    return bool(value == wanted)


def _compare(value: Any, name: str, operand: Any) -> bool:
    compare = _COMPARISONS.get(name)
    if compare is None:
        raise ValueError(f"there is no comparison {name!r}")
    try:
        return bool(compare(value, operand))
    except TypeError:
        # Values that have no order.
        return False


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
