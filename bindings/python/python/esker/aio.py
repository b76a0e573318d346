"""Esker for asyncio.

    import esker.aio

    async with esker.aio.open("data") as db:
        users = await db.keyspace("users")
        await users.put("ann", "1")
        print(await users.get("ann"))
        async for key, value in users.items(prefix="a"):
            ...

- Commits are futures of the engine: no thread waits for each of them, and commits that are awaited at the
  same time share a sync.
- A `get` that memory answers is done at once. One that has to read a file runs in a thread of a pool, as do
  walks, a chunk at a time, and all other calls.
- A commit proceeds even if the task that awaits it is cancelled.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _esker
from . import open as _open
from . import memory as _memory
from ._errors import Closed, Conflict, Deadlock, Invalid

if TYPE_CHECKING:
    from ._esker import _Data, _Durability, _Isolation, _Seconds

__all__ = ["Batch", "Db", "Keyspace", "Range", "Snapshot", "Transaction", "View", "memory", "open"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

# Threads at most.
_READERS_MAX = 16
_WAITERS_MAX = 256
# Conflicts after which a transaction takes the exclusive turn.
_ATTEMPTS_BEFORE_TURN = 8


class _Work:
    """The calls and commits of one database that one event loop waits for.

    Calls that may wait for other transactions have threads of their own. So a transaction that others wait
    for always finds a thread for its reads.
    """

    def __init__(self) -> None:
        self._completions = _esker.Completions()
        self._futures: dict[int, asyncio.Future[int]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._completions.fileno(), self._drain)
        self._is_closed = False
        self.has_ended = False
        self._readers = ThreadPoolExecutor(_READERS_MAX, "esker-read")
        self._waiters = ThreadPoolExecutor(_WAITERS_MAX, "esker-wait")

    async def read(self, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Runs a call that does not wait for other transactions."""
        if self.has_ended:
            raise Closed("the database is closed")
        return await self._loop.run_in_executor(self._readers, partial(call, *args, **kwargs))

    async def wait(self, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Runs a call that may wait for other transactions."""
        if self.has_ended:
            raise Closed("the database is closed")
        return await self._loop.run_in_executor(self._waiters, partial(call, *args, **kwargs))

    def start(self, begin: Callable[[_esker.Completions], int]) -> asyncio.Future[int]:
        """Begins a commit, and returns the future of its number."""
        if asyncio.get_running_loop() is not self._loop:
            raise Invalid("the database was opened in another event loop")
        if self._is_closed:
            raise Closed("the database is closed")
        future: asyncio.Future[int] = self._loop.create_future()
        self._futures[begin(self._completions)] = future
        return future

    def _drain(self) -> None:
        for token, outcome in self._completions.drain():
            future = self._futures.pop(token)
            if future.done():
                continue
            if isinstance(outcome, int):
                future.set_result(outcome)
            else:
                future.set_exception(outcome)

    async def close(self) -> None:
        """Waits for all commits."""
        self._is_closed = True
        while self._futures:
            await asyncio.wait(list(self._futures.values()))
        self._loop.remove_reader(self._completions.fileno())

    def end(self) -> None:
        """Ends the threads, once they have nothing to do."""
        self.has_ended = True
        self._readers.shutdown(wait=False)
        self._waiters.shutdown(wait=False)


class Range(AsyncIterator[_T_co], Generic[_T_co]):
    """A walk through entries, keys or values, read in chunks by a thread."""

    def __init__(self, work: _Work, begin: Callable[[], _esker.Entries[_T_co]]) -> None:
        self._work, self._begin = work, begin
        self._walk: _esker.Entries[_T_co] | None = None
        self._chunk: Iterator[_T_co] = iter(())

    def __aiter__(self) -> Range[_T_co]:
        return self

    async def __anext__(self) -> _T_co:
        for item in self._chunk:
            return item
        self._chunk = iter(await self._work.read(self._next_chunk))
        for item in self._chunk:
            return item
        raise StopAsyncIteration

    def _next_chunk(self) -> list[_T_co]:
        if self._walk is None:
            self._walk = self._begin()
        return self._walk.chunk()


class View:
    """One keyspace, for reading."""

    def __init__(self, view: _esker.View, work: _Work) -> None:
        self._view, self._work = view, work

    @property
    def name(self) -> str:
        """The name of the keyspace."""
        return self._view.name

    async def get(self, key: _Data, default: _T | None = None) -> bytes | _T | None:
        """Returns the value of a key, or `default`."""
        cached = self._view.get_if_cached(key)
        if cached is None:
            return await self._work.read(self._view.get, key, default)
        return default if cached[0] is None else cached[0]

    async def get_many(self, keys: Iterable[_Data]) -> list[bytes | None]:
        """Returns the values of several keys as of the same commit."""
        return await self._work.read(self._view.get_many, list(keys))

    async def contains(self, key: _Data) -> bool:
        """Returns whether there is such a key."""
        cached = self._view.get_if_cached(key)
        if cached is None:
            return await self._work.read(self._view.__contains__, key)
        return cached[0] is not None

    async def len(self) -> int:
        """Returns the number of keys."""
        return await self._work.read(self._view.__len__)

    async def ttl(self, key: _Data) -> float | None:
        """Returns the remaining lifetime of a key in seconds, `None` if it is unlimited."""
        return await self._work.read(self._view.ttl, key)

    async def first(self) -> tuple[bytes, bytes] | None:
        """Returns the first entry."""
        return await self._work.read(self._view.first)

    async def last(self) -> tuple[bytes, bytes] | None:
        """Returns the last entry."""
        return await self._work.read(self._view.last)

    def items(self, *bounds: _Data | None, **options: Any) -> Range[tuple[bytes, bytes]]:
        """The entries of a range, with the arguments of `esker.View.items`."""
        range_ = self._view.items(*bounds, **options)
        return Range(self._work, range_.__iter__)

    def keys(self, *bounds: _Data | None, **options: Any) -> Range[bytes]:
        """The keys of a range."""
        range_ = self._view.keys(*bounds, **options)
        return Range(self._work, range_.__iter__)

    def values(self, *bounds: _Data | None, **options: Any) -> Range[bytes]:
        """The values of a range."""
        range_ = self._view.values(*bounds, **options)
        return Range(self._work, range_.__iter__)

    def __aiter__(self) -> Range[bytes]:
        return self.keys()


class Keyspace(View):
    """One keyspace, for reading and writing. Each write is a commit of its own, except in a transaction."""

    _view: _esker.Keyspace

    def __init__(self, keyspace: _esker.Keyspace, work: _Work, *, in_transaction: bool = False) -> None:
        super().__init__(keyspace, work)
        # A transaction waits for others only when it commits or locks.
        self._in_transaction = in_transaction
        self._write = work.read if in_transaction else work.wait

    async def put(self, key: _Data, value: _Data, *, ttl: _Seconds | None = None) -> None:
        """Sets a key to a value, which expires after `ttl` seconds."""
        if self._in_transaction:
            return self._view.put(key, value, ttl=ttl)
        await self._work.start(lambda c: c.put(self._view, key, value, ttl))

    async def delete(self, key: _Data) -> None:
        """Removes a key, which may be missing."""
        if self._in_transaction:
            return self._view.delete(key)
        await self._work.start(lambda c: c.delete(self._view, key))

    async def merge(self, key: _Data, operand: _Data) -> None:
        """Merges an operand into a key."""
        if self._in_transaction:
            return self._view.merge(key, operand)
        await self._work.start(lambda c: c.merge(self._view, key, operand))

    async def delete_range(self, *bounds: _Data | None, prefix: _Data | None = None) -> None:
        """Removes all keys of a range."""
        await self._write(self._view.delete_range, *bounds, prefix=prefix)

    async def clear(self) -> None:
        """Removes all keys."""
        await self._write(self._view.clear)

    async def pop(self, key: _Data, default: _T | None = None) -> bytes | _T | None:
        """Removes a key and returns its value, or `default`."""
        return await self._write(self._view.pop, key, default)

    async def pop_first(self) -> tuple[bytes, bytes] | None:
        """Removes and returns the first entry."""
        return await self._write(self._view.pop_first)

    async def pop_last(self) -> tuple[bytes, bytes] | None:
        """Removes and returns the last entry."""
        return await self._write(self._view.pop_last)

    async def add(self, key: _Data, by: int = 1) -> int:
        """Adds to a number, and returns the number before."""
        return await self._write(self._view.add, key, by)

    async def compare_and_swap(self, key: _Data, expected: _Data | None, value: _Data | None) -> bool:
        """Sets a key to `value` if its value is `expected`."""
        return await self._write(self._view.compare_and_swap, key, expected, value)

    async def expire(self, key: _Data, ttl: _Seconds) -> bool:
        """Has a key expire."""
        return await self._write(self._view.expire, key, ttl)

    async def update(self, *other: Any, **named: _Data) -> None:
        """Puts all pairs of a mapping or iterable, in one commit."""
        await self._write(self._view.update, *other, **named)

    def using(self, *, durability: _Durability | None = None, ttl: _Seconds | None = None) -> Keyspace:
        """Returns a handle that writes with these options."""
        return Keyspace(self._view.using(durability=durability, ttl=ttl), self._work,
        in_transaction=self._in_transaction)


def _inner(keyspace: View | str) -> _esker.View | str:
    return keyspace if isinstance(keyspace, str) else keyspace._view


class Snapshot:
    """The state of all keyspaces at one commit."""

    def __init__(self, snapshot: _esker.Snapshot, work: _Work) -> None:
        self._snapshot, self._work = snapshot, work
        self.seqno = snapshot.seqno

    def __getitem__(self, keyspace: View | str) -> View:
        return View(self._snapshot[_inner(keyspace)], self._work)

    async def __aenter__(self) -> Snapshot:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._snapshot.close()


class Batch:
    """Writes that are committed together at the end of an `async with` block."""

    def __init__(self, batch: _esker.Batch, work: _Work) -> None:
        self._batch, self._work = batch, work

    def __getitem__(self, keyspace: View | str) -> _esker.BatchView:
        return self._batch[_inner(keyspace)]

    async def commit(self) -> int:
        """Commits, and returns the number of the commit."""
        return await self._work.start(lambda c: c.commit_batch(self._batch))

    async def __aenter__(self) -> Batch:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind is None and self._batch.is_open:
            await self.commit()
        self._batch.rollback()


class Transaction:
    """Reads and writes that are committed together at the end of an `async with` block."""

    def __init__(self, begin: Callable[[], _esker.Transaction], work: _Work, exclusive: bool) -> None:
        self._begin, self._work, self._exclusive = begin, work, exclusive
        self._transaction: _esker.Transaction | None = None

    def _inner(self) -> _esker.Transaction:
        if self._transaction is None:
            raise Invalid("the transaction has not begun: use `async with`")
        return self._transaction

    def __getitem__(self, keyspace: View | str) -> Keyspace:
        return Keyspace(self._inner()[_inner(keyspace)], self._work, in_transaction=True)

    def savepoint(self) -> _esker.Savepoint:
        """Sets a savepoint, which is used as in `esker.Transaction`."""
        return self._inner().savepoint()

    async def lock(
        self, keyspace: View | str, key: _Data, *, shared: bool = False, timeout: _Seconds | None = None
    ) -> None:
        """Locks a key until the transaction ends."""
        inner = self._inner()
        await self._work.wait(inner.lock, _inner(keyspace), key, shared=shared, timeout=timeout)

    async def commit(self) -> int:
        """Commits, and returns the number of the commit."""
        inner = self._inner()
        if self._exclusive:
            return await self._work.read(inner.commit)
        return await self._work.start(lambda c: c.commit(inner))

    async def rollback(self) -> None:
        """Rolls back."""
        self._inner().rollback()

    async def __aenter__(self) -> Transaction:
        # An exclusive transaction waits for its turn.
        self._transaction = await self._work.wait(self._begin) if self._exclusive else self._begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        inner = self._inner()
        try:
            if kind is None and inner.is_open:
                await self.commit()
        finally:
            inner.rollback()


class Db:
    """An open database, for one event loop."""

    def __init__(self, db: _esker.Db) -> None:
        self._db = db
        self._work = _Work()

    async def keyspace(self, name: str) -> Keyspace:
        """Returns the keyspace with this name, which is created if it is missing."""
        return Keyspace(await self._work.wait(self._db.__getitem__, name), self._work)

    async def drop_keyspace(self, name: str) -> None:
        """Drops a keyspace."""
        await self._work.wait(self._db.drop_keyspace, name)

    def keyspaces(self) -> list[str]:
        """Returns the names of all keyspaces."""
        return self._db.keyspaces()

    def snapshot(self) -> Snapshot:
        """Returns a snapshot."""
        return Snapshot(self._db.snapshot(), self._work)

    def batch(self, *, durability: _Durability | None = None) -> Batch:
        """Returns an empty batch."""
        return Batch(self._db.batch(durability=durability), self._work)

    def transaction(
        self, *, isolation: _Isolation | None = None, durability: _Durability | None = None
    ) -> Transaction:
        """Returns a transaction, which begins with its `async with` block."""

        def begin() -> _esker.Transaction:
            return self._db.transaction(isolation=isolation, durability=durability)

        return Transaction(begin, self._work, isolation == "exclusive")

    async def transact(
        self,
        body: Callable[[Transaction], Awaitable[_T]],
        *,
        isolation: _Isolation | None = None,
        durability: _Durability | None = None,
        attempts: int | None = None,
    ) -> _T:
        """Awaits `body` in a transaction, and commits. After a conflict it runs again."""
        attempt = 1
        while True:
            turn: _Isolation | None = "exclusive" if attempt > _ATTEMPTS_BEFORE_TURN else isolation
            try:
                async with self.transaction(isolation=turn, durability=durability) as t:
                    result = await body(t)
                return result
            except (Conflict, Deadlock):
                if attempt == attempts:
                    raise
            await asyncio.sleep(random.uniform(0, min(0.002, 20e-6 * 2**attempt)))
            attempt += 1

    async def feed(self, after: int = 0) -> AsyncIterator[_esker.Commit]:
        """The commits after the commit `after`, in order. Ends when the database is closed."""
        feed = await self._work.read(self._db.feed, after)
        while True:
            try:
                commit = await self._work.wait(feed.next, 0.5)
            except Closed:
                return
            if commit is not None:
                yield commit

    async def run(self, call: Callable[[_esker.Db], _T]) -> _T:
        """Runs a function of the database in a thread: `await db.run(lambda db: db.compact())`."""
        return await self._work.wait(call, self._db)

    async def close(self) -> None:
        """Waits for the commits in progress, and closes the database."""
        if self._work.has_ended:
            return
        await self._work.close()
        try:
            await self._work.wait(self._db.close)
        finally:
            self._work.end()

    async def __aenter__(self) -> Db:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()


class _Opening:
    """A database that is being opened: for `await` and `async with`."""

    def __init__(self, call: Callable[[], _esker.Db]) -> None:
        self._call = call
        self._db: Db | None = None

    async def _open(self) -> Db:
        return Db(await asyncio.to_thread(self._call))

    def __await__(self) -> Generator[Any, None, Db]:
        return self._open().__await__()

    async def __aenter__(self) -> Db:
        self._db = await self._open()
        return self._db

    async def __aexit__(self, *exception: object) -> None:
        if self._db is not None:
            await self._db.close()


def open(path: str | os.PathLike[str], **options: Any) -> _Opening:  # noqa: A001
    """Opens a database, with the options of `esker.open`: `async with esker.aio.open("data") as db`."""
    return _Opening(lambda: _open(path, **options))


def memory(**options: Any) -> _Opening:
    """Opens a new database in memory."""
    return _Opening(lambda: _memory(**options))
