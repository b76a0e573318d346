"""Typed tables: keyspaces whose keys and values are objects of Python.

    events = db.table("events", key=esker.keys(str, int), value=esker.json)
    events["ann", 7] = {"kind": "login"}
    for (user, number), event in events.items(prefix=("ann",)):
        ...
    with db.transaction() as t:
        events.within(t)["ann", 8] = {}

The first fields of keys serve as bounds and prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import codecs
from .codecs import Codec, Keys

if TYPE_CHECKING:
    from ._esker import Db, Keyspace, Range, Snapshot, Transaction, _Seconds

__all__ = ["Table", "TableRange"]

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

_BY_TYPE: dict[Any, Codec[Any]] = {str: codecs.text, bytes: codecs.raw}


class TableRange(Generic[_T_co]):
    """The entries, keys or values of a range of a table."""

    def __init__(self, of: Range[Any], decode: Callable[[Any], _T_co]) -> None:
        self._of, self._decode = of, decode

    def __iter__(self) -> Iterator[_T_co]:
        return map(self._decode, self._of)

    def __reversed__(self) -> Iterator[_T_co]:
        return map(self._decode, reversed(self._of))

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, item: object) -> bool:
        return any(item == other for other in self)


class Table(MutableMapping[_K, _V]):
    """A keyspace whose keys and values are objects of Python. Made by `Db.table`."""

    def __init__(self, keyspace: Any, key: Keys[_K], value: Codec[_V]) -> None:
        self._keyspace: Keyspace = keyspace
        self._key, self._value = key, value

    @property
    def keyspace(self) -> Keyspace:
        """The keyspace with the encoded entries."""
        return self._keyspace

    def within(self, state: Transaction | Snapshot) -> Table[_K, _V]:
        """Returns the table in a transaction or a snapshot."""
        return Table(state[self._keyspace], self._key, self._value)

    def _pair(self, entry: tuple[bytes, bytes]) -> tuple[_K, _V]:
        return self._key.decode(entry[0]), self._value.decode(entry[1])

    def __getitem__(self, key: _K) -> _V:
        found = self._keyspace.get(self._key.encode(key))
        if found is None:
            raise KeyError(key)
        return self._value.decode(found)

    def __setitem__(self, key: _K, value: _V) -> None:
        self._keyspace[self._key.encode(key)] = self._value.encode(value)

    def __delitem__(self, key: _K) -> None:
        try:
            del self._keyspace[self._key.encode(key)]
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        try:
            return self._key.encode(key) in self._keyspace  # type: ignore[arg-type]
        except TypeError:
            return False

    def __len__(self) -> int:
        return len(self._keyspace)

    def __bool__(self) -> bool:
        return bool(self._keyspace)

    def __iter__(self) -> Iterator[_K]:
        return iter(self.keys())

    def __reversed__(self) -> Iterator[_K]:
        return reversed(self.keys())

    def put(self, key: _K, value: _V, *, ttl: _Seconds | None = None) -> None:
        """Sets a key to a value, which expires after `ttl` seconds."""
        self._keyspace.put(self._key.encode(key), self._value.encode(value), ttl=ttl)

    def delete(self, key: _K) -> None:
        """Removes a key, which may be missing, without reading it."""
        self._keyspace.delete(self._key.encode(key))

    def clear(self) -> None:
        """Removes all entries."""
        self._keyspace.clear()

    def popitem(self) -> tuple[_K, _V]:
        """Removes and returns the last entry."""
        return self._pair(self._keyspace.popitem())

    def pop_first(self) -> tuple[_K, _V] | None:
        """Removes and returns the first entry, or returns `None`."""
        entry = self._keyspace.pop_first()
        return None if entry is None else self._pair(entry)

    def first(self) -> tuple[_K, _V] | None:
        """Returns the first entry, or `None`."""
        entry = self._keyspace.first()
        return None if entry is None else self._pair(entry)

    def last(self) -> tuple[_K, _V] | None:
        """Returns the last entry, or `None`."""
        entry = self._keyspace.last()
        return None if entry is None else self._pair(entry)

    def _bounds(self, start: Any, end: Any, prefix: Any) -> tuple[bytes | None, bytes | None]:
        if prefix is not None:
            if start is not None or end is not None:
                raise TypeError("a prefix goes without start and end")
            return self._key.prefix(prefix)
        lower = None if start is None else self._key.bound(start)
        return lower, None if end is None else self._key.bound(end)

    def items(  # type: ignore[override]
        self,
        start: Any = None,
        end: Any = None,
        *,
        prefix: Any = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> TableRange[tuple[_K, _V]]:
        """The entries of a range. `start`, `end` and `prefix` are keys, or the first fields of keys."""
        bounds = self._bounds(start, end, prefix)
        return TableRange(self._keyspace.items(*bounds, reverse=reverse, limit=limit), self._pair)

    def keys(  # type: ignore[override]
        self,
        start: Any = None,
        end: Any = None,
        *,
        prefix: Any = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> TableRange[_K]:
        """The keys of a range."""
        bounds = self._bounds(start, end, prefix)
        return TableRange(self._keyspace.keys(*bounds, reverse=reverse, limit=limit), self._key.decode)

    def values(  # type: ignore[override]
        self,
        start: Any = None,
        end: Any = None,
        *,
        prefix: Any = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> TableRange[_V]:
        """The values of a range of keys."""
        bounds = self._bounds(start, end, prefix)
        return TableRange(self._keyspace.values(*bounds, reverse=reverse, limit=limit), self._value.decode)

    def delete_range(self, start: Any = None, end: Any = None, *, prefix: Any = None) -> None:
        """Removes all entries of a range."""
        self._keyspace.delete_range(*self._bounds(start, end, prefix))

    def __repr__(self) -> str:
        return f"<esker table {self._keyspace.name!r}>"


def make(db: Db, name: str, key: Keys[_K] | type[_K], value: Any) -> Table[_K, Any]:
    """Makes a table: see `Db.table`."""
    keys = key if isinstance(key, Keys) else Keys((key,))
    codec: Codec[Any] = _BY_TYPE[value] if value in (str, bytes) else value
    return Table(db[name], keys, codec)
