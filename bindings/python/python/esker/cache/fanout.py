"""`FanoutCache`: the interface of `diskcache.FanoutCache`.

diskcache divides such a cache among databases, so that writers wait less for each other. Writers of Esker do
not wait for readers, and commit in groups, so one database serves: `shards` is accepted and kept.
"""

from __future__ import annotations

import os
from typing import Any

from .core import Cache
from .disk import Disk
from .persistent import Deque, Index

__all__ = ["FanoutCache"]


class FanoutCache(Cache):
    """A cache with named caches, queues and indexes below its directory."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        shards: int = 8,
        timeout: float = 0.010,
        disk: type[Disk] = Disk,
        **settings: Any,
    ) -> None:
        self._shards_count = shards
        self._caches: dict[str, Cache] = {}
        self._deques: dict[str, Deque] = {}
        self._indexes: dict[str, Index] = {}
        super().__init__(directory, timeout, disk, **settings)

    def _below(self, kind: str, name: str) -> str:
        return os.path.join(self.directory, kind, *name.split("/"))

    def cache(self, name: str, timeout: float = 60, disk: type[Disk] | None = None, **settings: Any) -> Cache:
        """Returns the cache with this name below the directory."""
        if name not in self._caches:
            path = self._below("cache", name)
            self._caches[name] = Cache(path, timeout, disk or self._disk_class, **settings)
        return self._caches[name]

    def deque(self, name: str, maxlen: int | float | None = None) -> Deque:
        """Returns the queue with this name below the directory."""
        if name not in self._deques:
            cache = Cache(self._below("deque", name), disk=self._disk_class, eviction_policy="none")
            self._deques[name] = Deque.fromcache(cache, maxlen=maxlen)
        return self._deques[name]

    def index(self, name: str) -> Index:
        """Returns the index with this name below the directory."""
        if name not in self._indexes:
            cache = Cache(self._below("index", name), disk=self._disk_class, eviction_policy="none")
            self._indexes[name] = Index.fromcache(cache)
        return self._indexes[name]

    def close(self) -> None:
        """Closes the database, and those below."""
        for cache in self._caches.values():
            cache.close()
        for deque in self._deques.values():
            deque.cache.close()
        for index in self._indexes.values():
            index.cache.close()
        super().close()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._directory, self._shards_count, self._timeout, self._disk_class
