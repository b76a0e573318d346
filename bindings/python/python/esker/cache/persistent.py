"""`Deque` and `Index`: persistent collections with the interfaces of `diskcache.Deque` and
`diskcache.Index`."""

from __future__ import annotations

import operator
import os
from collections import OrderedDict
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from contextlib import contextmanager
from typing import Any, SupportsIndex

from .core import ENOVAL, Cache, Side

__all__ = ["Deque", "Index"]


def _compared(compare: Callable[[Any, Any], Any]) -> Callable[[Deque, object], Any]:
    """Makes a comparison with sequences, in the order of their items."""

    def method(self: Deque, other: object) -> Any:
        if not isinstance(other, (Sequence, Deque)):
            return NotImplemented
        if compare in (operator.eq, operator.ne) and len(self) != len(other):
            return compare is operator.ne
        for mine, yours in zip(self, other, strict=False):
            if mine != yours:
                return compare(mine, yours)
        return compare(len(self), len(other))

    return method


class Deque(Sequence[Any]):
    """A double-ended queue in a directory."""

    def __init__(
        self,
        iterable: Iterable[Any] = (),
        directory: str | os.PathLike[str] | None = None,
        maxlen: int | float | None = None,
    ) -> None:
        self._cache = Cache(directory, eviction_policy="none")
        self._maxlen: float = float("inf") if maxlen is None else maxlen
        self._extend(iterable)

    @classmethod
    def fromcache(
        cls, cache: Cache, iterable: Iterable[Any] = (), maxlen: int | float | None = None
    ) -> Deque:
        """Makes a queue in a cache, which should not evict."""
        self = cls.__new__(cls)
        self._cache = cache
        self._maxlen = float("inf") if maxlen is None else maxlen
        self._extend(iterable)
        return self

    @property
    def cache(self) -> Cache:
        """The cache that holds the items."""
        return self._cache

    @property
    def directory(self) -> str:
        """The directory."""
        return self._cache.directory

    @property
    def maxlen(self) -> float:
        """The number of items beyond which items at the other end are removed."""
        return self._maxlen

    @maxlen.setter
    def maxlen(self, value: int | float) -> None:
        self._maxlen = value
        with self._cache.transact(retry=True):
            while len(self._cache) > self._maxlen:
                self._cache.pull(retry=True)

    def _key(self, index: SupportsIndex) -> Iterator[Any]:
        """The keys from an index on: one that is removed meanwhile makes the next one the item."""
        position, length = operator.index(index), len(self._cache)
        reverse = position < 0
        if reverse:
            position = -position - 1
        if position >= length:
            raise IndexError("deque index out of range")
        for number, key in enumerate(self._cache.iterkeys(reverse=reverse)):
            if number >= position:
                yield key

    def _at(self, index: SupportsIndex, call: Callable[[Any], Any]) -> Any:
        for key in self._key(index):
            try:
                return call(key)
            except KeyError:
                continue
        raise IndexError("deque index out of range")

    def __getitem__(self, index: Any) -> Any:
        return self._at(index, self._cache.__getitem__)

    def __setitem__(self, index: int, value: Any) -> None:
        self._at(index, lambda key: self._cache.__setitem__(key, value))

    def __delitem__(self, index: int) -> None:
        self._at(index, self._cache.__delitem__)

    def __len__(self) -> int:
        return len(self._cache)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(directory={self.directory!r})"

    __eq__ = _compared(operator.eq)
    __ne__ = _compared(operator.ne)
    __lt__ = _compared(operator.lt)
    __gt__ = _compared(operator.gt)
    __le__ = _compared(operator.le)
    __ge__ = _compared(operator.ge)
    __hash__ = None  # type: ignore[assignment]

    def _values(self, reverse: bool) -> Iterator[Any]:
        for key in self._cache.iterkeys(reverse=reverse):
            try:
                yield self._cache[key]
            except KeyError:
                continue

    def __iter__(self) -> Iterator[Any]:
        return self._values(False)

    def __reversed__(self) -> Iterator[Any]:
        return self._values(True)

    def __iadd__(self, iterable: Iterable[Any]) -> Deque:
        self._extend(iterable)
        return self

    def __getstate__(self) -> tuple[Any, ...]:
        return self.directory, self.maxlen

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(directory=state[0], maxlen=state[1])  # type: ignore[misc]

    def _add(self, value: Any, side: Side) -> None:
        with self._cache.transact(retry=True):
            self._cache.push(value, side=side, retry=True)
            if len(self._cache) > self._maxlen:
                self._cache.pull(side="front" if side == "back" else "back", retry=True)

    def append(self, value: Any) -> None:
        """Adds a value at the back."""
        self._add(value, "back")

    def appendleft(self, value: Any) -> None:
        """Adds a value at the front."""
        self._add(value, "front")

    def _extend(self, iterable: Iterable[Any]) -> None:
        for value in iterable:
            self.append(value)

    def extend(self, iterable: Iterable[Any]) -> None:
        """Adds values at the back."""
        self._extend(iterable)

    def extendleft(self, iterable: Iterable[Any]) -> None:
        """Adds values at the front, each before the last one."""
        for value in iterable:
            self.appendleft(value)

    def clear(self) -> None:
        """Removes all items."""
        self._cache.clear(retry=True)

    def copy(self) -> Deque:
        """Returns another queue in the same directory."""
        return type(self)(directory=self.directory, maxlen=self.maxlen)

    __copy__ = copy

    def count(self, value: Any) -> int:
        """Returns how many items equal a value."""
        return sum(1 for item in self if item == value)

    def _taken(self, call: Callable[..., Any], side: Side) -> Any:
        _, value = call(default=(None, ENOVAL), side=side, retry=True)
        if value is ENOVAL:
            raise IndexError("the deque is empty")
        return value

    def peek(self) -> Any:
        """Returns the value at the back."""
        return self._taken(self._cache.peek, "back")

    def peekleft(self) -> Any:
        """Returns the value at the front."""
        return self._taken(self._cache.peek, "front")

    def pop(self) -> Any:
        """Removes and returns the value at the back."""
        return self._taken(self._cache.pull, "back")

    def popleft(self) -> Any:
        """Removes and returns the value at the front."""
        return self._taken(self._cache.pull, "front")

    def remove(self, value: Any) -> None:
        """Removes the first item that equals a value."""
        for key in self._cache.iterkeys():
            try:
                if self._cache[key] == value:
                    del self._cache[key]
                    return
            except KeyError:
                continue
        raise ValueError("the value is not in the deque")

    def reverse(self) -> None:
        """Reverses the order of the items."""
        with self._cache.transact(retry=True):
            keys = list(self._cache.iterkeys())
            values = [self._cache[key] for key in keys]
            for key, value in zip(keys, reversed(values), strict=True):
                self._cache[key] = value

    def rotate(self, steps: int = 1) -> None:
        """Moves items from the back to the front, or the other way for negative steps."""
        if not isinstance(steps, int):
            raise TypeError(f"steps is int, not {type(steps).__name__}")
        length = len(self)
        if length == 0:
            return
        count = abs(steps) % length if steps >= 0 else -(abs(steps) % length)
        with self._cache.transact(retry=True):
            for _ in range(abs(count)):
                try:
                    value = self.pop() if steps >= 0 else self.popleft()
                except IndexError:
                    return
                self._cache.push(value, side="front" if steps >= 0 else "back", retry=True)

    @contextmanager
    def transact(self) -> Iterator[None]:
        """A block whose changes are committed together."""
        with self._cache.transact(retry=True):
            yield


class Index(MutableMapping[Any, Any]):
    """A mapping in a directory, in the order in which keys were added."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        directory: Any = None
        if args and (args[0] is None or isinstance(args[0], (str, os.PathLike))):
            directory, args = args[0], args[1:]
        self._cache = Cache(directory, eviction_policy="none")
        self._update(*args, **kwargs)

    _update = MutableMapping.update

    @classmethod
    def fromcache(cls, cache: Cache, *args: Any, **kwargs: Any) -> Index:
        """Makes an index in a cache, which should not evict."""
        self = cls.__new__(cls)
        self._cache = cache
        self._update(*args, **kwargs)
        return self

    @property
    def cache(self) -> Cache:
        """The cache that holds the items."""
        return self._cache

    @property
    def directory(self) -> str:
        """The directory."""
        return self._cache.directory

    def __getitem__(self, key: Any) -> Any:
        return self._cache[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._cache[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._cache[key]

    def __contains__(self, key: object) -> bool:
        return key in self._cache

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cache)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._cache)

    def __len__(self) -> int:
        return len(self._cache)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Returns the value of a key. A missing key is set to `default` first."""
        while True:
            value = self._cache.get(key, ENOVAL, retry=True)
            if value is not ENOVAL:
                return value
            self._cache.add(key, default, retry=True)

    def peekitem(self, last: bool = True) -> Any:
        """Returns the item that was added last, or first."""
        return self._cache.peekitem(last, retry=True)

    def pop(self, key: Any, default: Any = ENOVAL) -> Any:
        """Removes a key, and returns its value or the default."""
        value = self._cache.pop(key, default, retry=True)
        if value is ENOVAL:
            raise KeyError(key)
        return value

    def popitem(self, last: bool = True) -> Any:
        """Removes and returns the item that was added last, or first."""
        with self._cache.transact(retry=True):
            key, value = self._cache.peekitem(last, retry=True)
            del self._cache[key]
        return key, value

    def push(self, value: Any, prefix: str | None = None, side: Side = "back") -> Any:
        """Adds a value at an end of a queue, and returns its key."""
        return self._cache.push(value, prefix, side, retry=True)

    def pull(self, prefix: str | None = None, default: Any = (None, None), side: Side = "front") -> Any:
        """Removes and returns key and value at an end of a queue, or `default`."""
        return self._cache.pull(prefix, default, side, retry=True)

    def clear(self) -> None:
        """Removes all items."""
        self._cache.clear(retry=True)

    def keys(self) -> KeysView[Any]:
        """A view of the keys."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:
        """A view of the values."""
        return ValuesView(self)

    def items(self) -> ItemsView[Any, Any]:
        """A view of the items."""
        return ItemsView(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        if len(self) != len(other):
            return False
        if isinstance(other, (Index, OrderedDict)):
            pairs = zip(self.items(), other.items(), strict=False)
            return all(mine == yours for mine, yours in pairs)
        return all(key in other and other[key] == value for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.directory!r})"

    def __getstate__(self) -> str:
        return self.directory

    def __setstate__(self, state: str) -> None:
        self.__init__(state)  # type: ignore[misc]

    def memoize(self, name: str | None = None, typed: bool = False, ignore: Iterable[Any] = ()) -> Any:
        """Makes a function return what the index has for its arguments."""
        return self._cache.memoize(name, typed, ignore=ignore)

    @contextmanager
    def transact(self) -> Iterator[None]:
        """A block whose changes are committed together."""
        with self._cache.transact(retry=True):
            yield


