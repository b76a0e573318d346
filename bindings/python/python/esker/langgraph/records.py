"""What the saver keeps: keys, values and their serialization.

    NAME.checkpoints    (thread, namespace, id)             checkpoint, metadata, parent
    NAME.blobs          (thread, namespace, channel, version)           the value of a channel
    NAME.writes         (thread, namespace, id, task, index)            a pending write and its path

Keys have the encoding of `esker.tuple`. A value is a sequence of parts, each with its length before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from .. import tuple as fields
from .._errors import Invalid

_LENGTH_BYTES = 8


class Serde(Protocol):
    """Serialization of LangGraph: a value is a type and bytes."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...
    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


class Place(NamedTuple):
    """Where a checkpoint is."""

    thread: str
    namespace: str
    id: str

    @staticmethod
    def of(config: Any, id: str = "") -> Place:
        """Returns the place that a configuration names."""
        given = config["configurable"]
        found = id or given.get("checkpoint_id") or ""
        return Place(str(given["thread_id"]), given.get("checkpoint_ns") or "", str(found))

    @staticmethod
    def of_key(key: bytes) -> Place:
        """Returns the place that a key of a checkpoint names."""
        return Place(*fields.unpack(key))

    def key(self) -> bytes:
        """Returns the key of the checkpoint."""
        return fields.pack(self)

    def config(self) -> Any:
        """Returns the configuration that names the place."""
        thread, namespace, id = self
        return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": id}}


class Record(NamedTuple):
    """A stored checkpoint."""

    checkpoint: Any
    metadata: Any
    parent: str


class Write(NamedTuple):
    """A stored write, not yet deserialized."""

    path: str
    task: str
    position: int
    channel: str
    value: tuple[str, bytes]


def join(*parts: bytes) -> bytes:
    """Returns the parts as one value."""
    return b"".join(piece for part in parts for piece in (len(part).to_bytes(_LENGTH_BYTES, "little"), part))


def split(value: bytes) -> Iterator[bytes]:
    """Returns the parts of a value."""
    position = 0
    while position < len(value):
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(value[position:start], "little")
        if position > len(value):
            raise Invalid("a record of LangGraph ends early")
        yield value[start:position]


def typed(value: tuple[str, bytes]) -> tuple[bytes, bytes]:
    """Returns the two parts of a serialized value."""
    return value[0].encode(), value[1]


def encode(serde: Serde, record: Record) -> bytes:
    """Returns the value of a checkpoint."""
    checkpoint, metadata = serde.dumps_typed(record.checkpoint), serde.dumps_typed(record.metadata)
    return join(*typed(checkpoint), *typed(metadata), record.parent.encode())


def decode(serde: Serde, value: bytes) -> Record:
    """Returns the checkpoint of a value."""
    kind, checkpoint, metadata_kind, metadata, parent = split(value)
    return Record(
        serde.loads_typed((kind.decode(), checkpoint)),
        serde.loads_typed((metadata_kind.decode(), metadata)),
        parent.decode(),
    )


def decode_blob(serde: Serde, value: bytes) -> Any:
    """Returns the value of a channel."""
    kind, data = split(value)
    return serde.loads_typed((kind.decode(), data))


def encode_write(path: str, channel: str, value: tuple[str, bytes]) -> bytes:
    """Returns the value of a write."""
    return join(path.encode(), channel.encode(), *typed(value))


def decode_write(key: bytes, value: bytes) -> Write:
    """Returns the write of an entry."""
    path, channel, kind, data = (bytes(part) for part in split(value))
    *_, task, index = fields.unpack(key)
    return Write(path.decode(), task, index, channel.decode(), (kind.decode(), data))
