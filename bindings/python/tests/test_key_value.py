"""`esker.key_value`: the store of py-key-value."""

import asyncio
import threading
import time

import pytest

import esker

pytest.importorskip("key_value.aio")

from key_value.aio import errors, protocols  # noqa: E402
from key_value.aio.protocols import key_value as parts  # noqa: E402

from esker.key_value import EskerStore  # noqa: E402

VALUES = [
    {}, {"text": "\u00e9\U0001f600\0"}, {"list": [1, 2.5, None, True, {"in": ["side"]}]}, {"n": 2**60},
    {"large": "x" * 3_000_000},
]  # fmt: skip


def run(body, *args, **kwargs):
    """Runs a test with a store in an event loop."""

    async def main():
        async with EskerStore(*args, **kwargs) as store:
            return await body(store)

    return asyncio.run(main())


def test_it_has_all_parts_of_the_interface(db):
    store = EskerStore(db=db)
    for name in ("KeyValue", "EnumerateKeys", "EnumerateCollections", "DestroyCollection", "DestroyStore",
                 "Cull"):  # fmt: skip
        protocol = getattr(parts, f"Async{name}Protocol")
        assert isinstance(store, protocol), protocol
    assert isinstance(store, protocols.AsyncKeyValue)
    for wrong in ({}, {"db": db, "path": "p"}, {"db": db, "memory": "64MiB"}):
        with pytest.raises(ValueError):
            EskerStore(**wrong)


def test_values_keys_and_reopening(tmp_path):
    names = ["plain", "a::b", "\0", "", "x" * 5000, "\u00e9"]

    async def put(store):
        for n, value in enumerate(VALUES):
            await store.put(f"key {n}", value)
        for n, name in enumerate(names):
            await store.put(name, {"n": n}, collection="names")
            await store.put("key", {"n": n}, collection=f"in {name}")
        with pytest.raises(errors.SerializationError):
            await store.put("key", {"no": object()})

    async def get(store):
        assert [await store.get(f"key {n}") for n in range(len(VALUES))] == VALUES
        assert await store.get_many(names, collection="names") == [{"n": n} for n in range(len(names))]
        assert sorted(await store.keys("names")) == sorted(names)
        assert await store.keys("names", limit=2) == sorted(names)[:2]
        in_names = [f"in {name}" for name in names]
        assert sorted(await store.collections()) == sorted(["default_collection", "names", *in_names])
        assert len(await store.collections(limit=3)) == 3

    run(put, path=tmp_path / "db")
    run(get, path=tmp_path / "db")
    with esker.open(tmp_path / "db") as db:
        assert db.check()["problems"] == []


def test_lifetimes(tmp_path):
    async def body(store):
        await store.put("short", {"n": 1}, ttl=0.4)
        await store.put_many(["a", "b"], [{"n": 2}, {"n": 3}], ttl=100)
        value, ttl = await store.ttl("a")
        assert value == {"n": 2} and 95 < ttl <= 100
        assert await store.get("short") == {"n": 1}
        await store.put("b", {"n": 4})
        assert await store.ttl("b") == ({"n": 4}, None)
        await asyncio.sleep(0.5)
        assert await store.ttl("short") == (None, None) and await store.keys() == ["a", "b"]
        assert await store.delete("short") is False
        await store.cull()
        # The engine has removed it, or does now: it is not only hidden.
        assert len(store._map) == 2

    run(body, path=tmp_path / "db")

    async def reopened(store):
        return await store.ttl("a")

    value, ttl = run(reopened, path=tmp_path / "db")
    assert value == {"n": 2} and 90 < ttl < 100


def test_removal(db):
    async def body(store):
        for collection in ("a", "ab", "b"):
            await store.put_many(["x", "y"], [{"n": 1}, {"n": 2}], collection=collection)
        assert await store.delete_many(["x", "missing"], collection="a") == 1
        assert await store.destroy_collection("a") is True and await store.destroy_collection("a") is False
        assert await store.collections() == ["ab", "b"] and await store.keys("ab") == ["x", "y"]
        assert await store.destroy() is True and await store.collections() == []

    db["other"]["key"] = "stays"
    run(body, db=db, keyspace="entries")
    assert db["other"]["key"] == b"stays" and len(db["entries"]) == 0


def test_threads_and_loops(tmp_path):
    """Several threads, each with its event loop, use one database, and each sees its own writes."""
    with esker.open(tmp_path / "db", durability="none") as db:
        failures = []

        async def body(store, worker):
            for n in range(50):
                await store.put(f"{worker} {n}", {"n": n})
                assert await store.get(f"{worker} {n}") == {"n": n}
            await asyncio.gather(*(store.put("shared", {"by": worker, "n": n}) for n in range(20)))

        def work(worker):
            try:
                run(lambda store: body(store, worker), db=db)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == [] and len(db["key_value"]) == 201


def test_a_database_that_is_in_use(tmp_path):
    with esker.open(tmp_path / "db"):
        with pytest.raises(errors.StoreSetupError) as error:
            run(lambda store: store.get("key"), path=tmp_path / "db")
        assert isinstance(error.value.__cause__, esker.Locked)

    async def after_the_end():
        store = EskerStore(path=tmp_path / "db")
        await store.put("key", {})
        await store.close()
        with pytest.raises(esker.Closed):
            await store.get("key")

    begin = time.monotonic()
    asyncio.run(after_the_end())
    assert time.monotonic() - begin < 30
