"""A store of py-key-value in Esker.

    from esker.key_value import EskerStore

    async with EskerStore(path="data") as store:
        await store.put("ann", {"age": 31}, collection="users", ttl=3600)
        print(await store.get("ann", collection="users"))

Needs the package `py-key-value-aio`: `pip install esker[key-value]`. Keys are pairs of a collection and a
key, in the encoding of `esker.tuple`. Values are the JSON that py-key-value makes. The engine removes expired
entries.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from key_value.aio.stores.base import (
    BaseContextManagerStore,
    BaseCullStore,
    BaseDestroyCollectionStore,
    BaseDestroyStore,
    BaseEnumerateCollectionsStore,
    BaseEnumerateKeysStore,
    ManagedEntry,
)

from . import Db, Keyspace, Transaction, open
from . import tuple as fields

__all__ = ["EskerStore"]

# Keys or collections that are returned at most, unless a call asks for a number: as in the other stores.
_DEFAULT_LIMIT = 10_000


class EskerStore(
    BaseContextManagerStore,
    BaseEnumerateKeysStore,
    BaseEnumerateCollectionsStore,
    BaseDestroyCollectionStore,
    BaseDestroyStore,
    BaseCullStore,
):
    """Keeps the entries of py-key-value in a keyspace.

    Reads that memory answers are done at once. Other reads, and writes, run in threads. Each call is one
    commit.
    """

    def __init__(
        self,
        *,
        db: Db | None = None,
        path: str | os.PathLike[str] | None = None,
        keyspace: str = "key_value",
        default_collection: str | None = None,
        **options: Any,
    ) -> None:
        """Uses a keyspace of `db`, which the caller closes, or of the database at `path`.

        That is opened at the first call, with the options of `esker.open`, and closed with the store.
        """
        if (db is None) == (path is None):
            raise ValueError("give db or path")
        if db is not None and options:
            raise ValueError("an open database takes no options")
        super().__init__(
            default_collection=default_collection, client_provided_by_user=db is not None, stable_api=True
        )
        self._given, self._path, self._options = db, path, options
        self._name = keyspace

    async def _setup(self) -> None:
        self._db, self._map = await asyncio.to_thread(self._open)
        if self._given is None:
            self._exit_stack.push_async_callback(asyncio.to_thread, self._db.close)

    def _open(self) -> tuple[Db, Keyspace]:
        db = self._given
        if db is None:
            assert self._path is not None
            db = open(self._path, **self._options)
        return db, db[self._name]

    def _decoded(self, data: bytes | None) -> ManagedEntry | None:
        return None if data is None else self._serialization_adapter.load_json(json_str=data.decode())

    def _encoded(self, collection: str, key: str, entry: ManagedEntry) -> str:
        return self._serialization_adapter.dump_json(entry=entry, key=key, collection=collection)

    async def _get_managed_entry(self, *, collection: str, key: str) -> ManagedEntry | None:
        packed = fields.pack((collection, key))
        cached = self._map.get_if_cached(packed)
        if cached is not None:
            return self._decoded(cached[0])
        return self._decoded(await asyncio.to_thread(self._map.get, packed))

    async def _get_managed_entries(
        self, *, collection: str, keys: Sequence[str]
    ) -> list[ManagedEntry | None]:
        packed = [fields.pack((collection, key)) for key in keys]
        return [self._decoded(data) for data in await asyncio.to_thread(self._map.get_many, packed)]

    async def _put_managed_entry(self, *, collection: str, key: str, managed_entry: ManagedEntry) -> None:
        data = self._encoded(collection, key, managed_entry)
        packed = fields.pack((collection, key))
        await asyncio.to_thread(self._map.put, packed, data, ttl=_lifetime(managed_entry.ttl))

    async def _put_managed_entries(
        self,
        *,
        collection: str,
        keys: Sequence[str],
        managed_entries: Sequence[ManagedEntry],
        ttl: float | None,
        created_at: datetime,
        expires_at: datetime | None,
    ) -> None:
        entries = [
            (fields.pack((collection, key)), self._encoded(collection, key, entry))
            for key, entry in zip(keys, managed_entries, strict=True)
        ]

        def put() -> None:
            with self._db.batch() as batch:
                for key, data in entries:
                    batch[self._map].put(key, data, ttl=_lifetime(ttl))

        await asyncio.to_thread(put)

    async def _delete_managed_entry(self, *, key: str, collection: str) -> bool:
        return await self._delete_managed_entries(keys=[key], collection=collection) == 1

    async def _delete_managed_entries(self, *, keys: Sequence[str], collection: str) -> int:
        packed = [fields.pack((collection, key)) for key in keys]

        def delete(t: Transaction) -> int:
            return sum(t[self._map].pop(key, None) is not None for key in packed)

        return await asyncio.to_thread(self._db.transact, delete)

    async def _get_collection_keys(self, *, collection: str, limit: int | None = None) -> list[str]:
        bounds = fields.prefix_range((collection,))
        return await asyncio.to_thread(
            lambda: [fields.unpack(key)[1] for key in self._map.keys(*bounds, limit=_limit(limit))]
        )

    async def _get_collection_names(self, *, limit: int | None = None) -> list[str]:
        return await asyncio.to_thread(lambda: list(islice(self._collections(), _limit(limit))))

    def _collections(self) -> Any:
        """Returns the collections that have entries. Reads one key of each."""
        start = b""
        while (key := next(iter(self._map.keys(start, limit=1)), None)) is not None:
            collection = fields.unpack(key)[0]
            yield collection
            start = fields.prefix_range((collection,))[1]

    async def _delete_collection(self, *, collection: str) -> bool:
        bounds = fields.prefix_range((collection,))

        def delete(t: Transaction) -> bool:
            is_there = next(iter(t[self._map].keys(*bounds, limit=1)), None) is not None
            t[self._map].delete_range(*bounds)
            return is_there

        return await asyncio.to_thread(self._db.transact, delete)

    async def _delete_store(self) -> bool:
        await asyncio.to_thread(self._map.clear)
        return True

    async def _cull(self) -> None:
        await asyncio.to_thread(self._db.sweep)


def _limit(limit: int | None) -> int:
    return min(limit or _DEFAULT_LIMIT, _DEFAULT_LIMIT)


def _lifetime(ttl: float | None) -> float | None:
    # A lifetime that ended while the entry was made is over in the engine at once.
    return None if ttl is None else max(ttl, 0.001)
