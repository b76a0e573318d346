"""Caches on the disk, with the interfaces of the package `diskcache`, and without pickle.

    from esker.cache import Cache

    cache = Cache("directory")
    cache.set("key", {"any": "JSON"}, expire=60, tag="pages")

    @cache.memoize(expire=3600)
    def page(number): ...

Values are `None`, numbers, text, bytes, and lists, tuples, sets and dicts of those. `PickleDisk` writes all
objects by pickle: `Cache("directory", disk=PickleDisk)`. One process uses a directory at a time; its caches
of one directory share the database.
"""

from .core import DEFAULT_SETTINGS, ENOVAL, EVICTION_POLICIES, UNKNOWN, Cache, Timeout
from .disk import Disk, JSONDisk, PickleDisk
from .fanout import FanoutCache
from .persistent import Deque, Index

__all__ = [
    "DEFAULT_SETTINGS", "ENOVAL", "EVICTION_POLICIES", "UNKNOWN", "Cache", "Deque", "Disk", "FanoutCache",
    "Index", "JSONDisk", "PickleDisk", "Timeout",
]  # fmt: skip
