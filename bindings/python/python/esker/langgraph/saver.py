"""`EskerSaver`: checkpoints of LangGraph."""

from __future__ import annotations

import asyncio
import random
from builtins import list as List  # `EskerSaver.list` hides the name
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from .. import Db, Snapshot, Transaction
from .. import tuple as fields
from ..shared import Db as SharedDb
from . import records
from .records import Place, Record, Write

# Checkpoints that `alist` reads at a time.
_CHUNK = 16


class EskerSaver(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of LangGraph in a database, open or shared, which the caller closes.

    Each call is one commit, with the durability of the database. A channel's value is stored once for each of
    its versions. The asynchronous methods run in threads.
    """

    def __init__(
        self, db: Db | SharedDb, *, name: str = "langgraph", serde: SerializerProtocol | None = None
    ) -> None:
        """Uses the keyspaces `NAME.checkpoints`, `NAME.blobs` and `NAME.writes`."""
        super().__init__(serde=serde)
        self.db: Any = db
        self._checkpoints: Any = db[f"{name}.checkpoints"]
        self._blobs: Any = db[f"{name}.blobs"]
        self._writes: Any = db[f"{name}.writes"]

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns the checkpoint that the configuration names, or the newest one of its namespace."""
        with self.db.snapshot() as state:
            found = self._find(state, Place.of(config))
            return found and self._tuple(state, *found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Returns the checkpoints of a thread, or of all, from the newest id to the oldest, as of one commit.

        Those of several namespaces or threads are sorted in memory by their keys.
        """
        with self.db.snapshot() as state:
            for place in islice(self._matches(state, config, filter, before), limit):
                value = state[self._checkpoints].get(place.key())
                if value is not None:
                    yield self._tuple(state, place, records.decode(self.serde, value))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint, and those of its channel values that are not there.

        A value without a version is stored with the checkpoint.
        """
        parent, place = Place.of(config).id, Place.of(config, checkpoint["id"])
        versions = checkpoint["channel_versions"]
        inline, versioned = {}, {}
        for channel, value in checkpoint["channel_values"].items():
            if channel in versions:
                versioned[channel] = _blob_key(place, channel, versions[channel])
            else:
                inline[channel] = value
        kept = {**checkpoint, "channel_values": inline}
        record = Record(kept, get_checkpoint_metadata(config, metadata), parent)
        data, blobs = records.encode(self.serde, record), dict[bytes, bytes]()

        def blob(channel: str, key: bytes) -> bytes:
            if key not in blobs:
                value = self.serde.dumps_typed(checkpoint["channel_values"][channel])
                blobs[key] = records.join(*records.typed(value))
            return blobs[key]

        def store(t: Transaction) -> None:
            there = t[self._blobs]
            for channel, key in versioned.items():
                if channel in new_versions or key not in there:
                    there[key] = blob(channel, key)
            t[self._checkpoints][place.key()] = data

        self.db.transact(store)
        stored: RunnableConfig = place.config()
        return stored

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Stores writes of a task. A write that is there stays, unless it is of a special channel."""
        place = Place.of(config)
        entries = []
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            data = records.encode_write(task_path, channel, self.serde.dumps_typed(value))
            entries.append((index, fields.pack((*place, task_id, index)), data))

        def store(t: Transaction) -> None:
            there = t[self._writes]
            for index, key, data in entries:
                if index < 0 or key not in there:
                    there[key] = data

        self.db.transact(store)

    def delete_thread(self, thread_id: str) -> None:
        """Removes all of a thread."""
        with self.db.batch() as batch:
            for keyspace in (self._checkpoints, self._blobs, self._writes):
                batch[keyspace].delete_range(*fields.prefix_range((str(thread_id),)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Removes the checkpoints of these runs. Reads the metadata of all checkpoints."""
        runs = set(run_ids)
        if not runs:
            return

        def is_of_runs(_place: Place, record: Record) -> bool:
            return record.metadata.get("run_id") in runs

        def remove(t: Transaction) -> None:
            for namespace, of in self._by_namespace(t, ()).items():
                keep = {place: record for place, record in of.items() if not is_of_runs(place, record)}
                if len(keep) < len(of):
                    self._keep(t, namespace, of, keep)

        self.db.transact(remove)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies all of a thread to another one."""
        target = str(target_thread_id)
        with self.db.snapshot() as state, self.db.batch() as batch:
            for keyspace in (self._checkpoints, self._blobs, self._writes):
                bounds = fields.prefix_range((str(source_thread_id),))
                for key, value in state[keyspace].items(*bounds):
                    batch[keyspace][fields.pack((target, *fields.unpack(key)[1:]))] = value

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Removes all checkpoints ("delete"), or all but the newest of each namespace ("keep_latest").

        A newest checkpoint whose delta channels have no snapshot keeps the ancestors up to theirs.
        """
        if strategy == "delete":
            for thread in thread_ids:
                self.delete_thread(thread)
            return
        if strategy != "keep_latest":
            raise ValueError(f'a strategy is "keep_latest" or "delete", not {strategy!r}')

        for thread in thread_ids:
            self.db.transact(partial(self._keep_latest, str(thread)))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Returns the writes to channels since their last stored values, and these values."""
        seeds: dict[str, Any] = {}
        writes: dict[str, list[Any]] = {channel: [] for channel in channels}
        with self.db.snapshot() as state:
            found = self._find(state, Place.of(config)) if channels else None
            # Parents that a caller gave may form a circle.
            seen: set[str] = set()
            while found and found[1].parent and len(seeds) < len(writes) and found[0].id not in seen:
                place, record = found
                seen.add(place.id)
                found = self._find(state, place._replace(id=record.parent))
                if found:
                    self._collect(state, *found, writes, seeds)
        history: dict[str, DeltaChannelHistory] = {}
        for channel, of in writes.items():
            history[channel] = {"writes": of[::-1]}
            if channel in seeds:
                history[channel]["seed"] = seeds[channel]
        return history

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Returns a version after `current`. Branches of a thread get different ones."""
        number = current if isinstance(current, int) else int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.{random.getrandbits(53):016}"

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Is `get_tuple` in a thread."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Is `list` in a thread, a few checkpoints at a time."""
        walk = self.list(config, filter=filter, before=before, limit=limit)
        while chunk := await asyncio.to_thread(_next_chunk, walk):
            for found in chunk:
                yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Is `put` in a thread."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Is `put_writes` in a thread."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Is `delete_thread` in a thread."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Is `delete_for_runs` in a thread."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Is `copy_thread` in a thread."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Is `prune` in a thread."""
        await asyncio.to_thread(partial(self.prune, thread_ids, strategy=strategy))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Is `get_delta_channel_history` in a thread."""
        call = partial(self.get_delta_channel_history, config=config, channels=channels)
        return await asyncio.to_thread(call)

    def _find(self, state: Snapshot, place: Place) -> tuple[Place, Record] | None:
        """Returns the checkpoint at a place, or the newest one if the place has no id."""
        checkpoints = state[self._checkpoints]
        if place.id:
            value = checkpoints.get(place.key())
            return None if value is None else (place, records.decode(self.serde, value))
        bounds = fields.prefix_range(place[:2])
        for key, value in checkpoints.items(*bounds, reverse=True, limit=1):
            return Place.of_key(key), records.decode(self.serde, value)
        return None

    def _tuple(self, state: Snapshot, place: Place, record: Record) -> CheckpointTuple:
        """Returns a checkpoint as LangGraph wants it."""
        values = self._values(state, place, record, record.checkpoint["channel_versions"])
        parent = place._replace(id=record.parent).config() if record.parent else None
        return CheckpointTuple(
            config=place.config(),
            checkpoint=cast(Checkpoint, {**record.checkpoint, "channel_values": values}),
            metadata=record.metadata,
            parent_config=parent,
            pending_writes=[self._pending(write) for write in self._writes_at(state, place)],
        )

    def _values(
        self, state: Snapshot, place: Place, record: Record, channels: Iterable[str]
    ) -> dict[str, Any]:
        """Returns the values of channels at a checkpoint, and those that are stored with it."""
        versions = record.checkpoint["channel_versions"]
        wanted = [channel for channel in channels if channel in versions]
        keys = [_blob_key(place, channel, versions[channel]) for channel in wanted]
        found = dict(record.checkpoint["channel_values"])
        for channel, blob in zip(wanted, state[self._blobs].get_many(keys), strict=True):
            if blob is not None:
                found[channel] = records.decode_blob(self.serde, blob)
        return found

    def _pending(self, write: Write) -> tuple[str, str, Any]:
        return write.task, write.channel, self.serde.loads_typed(write.value)

    def _writes_at(self, state: Snapshot, place: Place) -> List[Write]:
        """Returns the writes at a checkpoint, in the order in which a run applies them."""
        entries = state[self._writes].items(*fields.prefix_range(place))
        return sorted(records.decode_write(key, value) for key, value in entries)

    def _matches(
        self,
        state: Snapshot,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
    ) -> Iterator[Place]:
        """Returns the places of the checkpoints that match, the newest id first."""
        only = Place.of(config) if config else Place("", "", "")
        has_namespace = bool(config) and "checkpoint_ns" in (config or {}).get("configurable", {})
        prefix = (only.thread, only.namespace) if has_namespace else (only.thread,) if config else ()
        limit = Place.of({"configurable": {"thread_id": "", **before["configurable"]}}).id if before else ""
        start, end = fields.prefix_range(prefix)
        if has_namespace and limit:
            end = only._replace(id=limit).key()
        keys = state[self._checkpoints].keys(start, end, reverse=True)
        places: Iterable[Place] = map(Place.of_key, keys)
        if not has_namespace:
            places = sorted(places, key=lambda place: place.id, reverse=True)
        for place in places:
            if (only.id and place.id != only.id) or (limit and place.id >= limit):
                continue
            if filter:
                value = state[self._checkpoints].get(place.key(), b"")
                metadata = records.decode(self.serde, value).metadata
                if any(metadata.get(name) != wanted for name, wanted in filter.items()):
                    continue
            yield place

    def _by_namespace(
        self, t: Transaction, prefix: tuple[str, ...]
    ) -> dict[tuple[str, str], dict[Place, Record]]:
        """Returns all checkpoints of a thread, or of all threads, by namespace."""
        found: dict[tuple[str, str], dict[Place, Record]] = {}
        for key, value in t[self._checkpoints].items(*fields.prefix_range(prefix)):
            place = Place.of_key(key)
            record = records.decode(self.serde, value)
            found.setdefault((place.thread, place.namespace), {})[place] = record
        return found

    def _keep_latest(self, thread: str, t: Transaction) -> None:
        for namespace, of in self._by_namespace(t, (thread,)).items():
            self._keep(t, namespace, of, self._needed(t, of))

    def _keep(
        self,
        t: Transaction,
        namespace: tuple[str, str],
        of: dict[Place, Record],
        keep: dict[Place, Record],
    ) -> None:
        """Removes all but some checkpoints of a namespace, and the channel values that none of those uses."""
        for place in of.keys() - keep.keys():
            del t[self._checkpoints][place.key()]
            t[self._writes].delete_range(*fields.prefix_range(place))
        used = {
            _blob_key(place, channel, version)
            for place, record in keep.items()
            for channel, version in record.checkpoint["channel_versions"].items()
        }
        keys = t[self._blobs].keys(*fields.prefix_range(namespace))
        for key in [key for key in keys if key not in used]:
            t[self._blobs].delete(key)

    def _needed(self, t: Transaction, of: dict[Place, Record]) -> dict[Place, Record]:
        """Returns the newest of the checkpoints, and the ancestors that its delta channels need."""
        place = max(of)
        needed = {place: of[place]}
        missing = set(of[place].metadata.get("counters_since_delta_snapshot") or ())
        while True:
            record = of[place]
            versions = record.checkpoint["channel_versions"]
            for channel in List(missing):
                is_inline = channel in record.checkpoint["channel_values"]
                key = _blob_key(place, channel, versions.get(channel, ""))
                if is_inline or key in t[self._blobs]:
                    missing.discard(channel)
            place = place._replace(id=record.parent)
            if not missing or place not in of or place in needed:
                return needed
            needed[place] = of[place]

    def _collect(
        self,
        state: Snapshot,
        place: Place,
        record: Record,
        writes: dict[str, List[Any]],
        seeds: dict[str, Any],
    ) -> None:
        """Adds the writes at a checkpoint, from the last to the first, and the values stored there."""
        for write in reversed(self._writes_at(state, place)):
            if write.channel in writes and write.channel not in seeds:
                writes[write.channel].append(self._pending(write))
        open_channels = writes.keys() - seeds.keys()
        found = self._values(state, place, record, open_channels)
        seeds.update((channel, value) for channel, value in found.items() if channel in open_channels)


def _next_chunk(walk: Iterator[CheckpointTuple]) -> list[CheckpointTuple]:
    return list(islice(walk, _CHUNK))


def _blob_key(place: Place, channel: str, version: str | int | float) -> bytes:
    return fields.pack((place.thread, place.namespace, channel, version))
