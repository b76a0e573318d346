"""`esker.langgraph` beyond the tests that LangGraph publishes: test_langgraph_suites.py."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import esker

pytest.importorskip("langgraph.checkpoint.base")

from langgraph.checkpoint.base import empty_checkpoint  # noqa: E402
from langgraph.store.base import GetOp, PutOp  # noqa: E402

from esker.langgraph import EskerSaver, EskerStore  # noqa: E402


def config(thread, id=None, namespace=""):
    given = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": {**given, "checkpoint_id": id} if id else given}


def checkpoint(id, values, versions):
    return {**empty_checkpoint(), "id": id, "channel_values": values, "channel_versions": versions}


def chain(saver, thread, length, **metadata):
    """Puts checkpoints, of which each changes the channel "n" and keeps "kept"."""
    parent = config(thread)
    for n in range(length):
        values, versions = {"n": n, "kept": "value"}, {"n": f"{n:03}", "kept": "000"}
        new = versions if n == 0 else {"n": versions["n"]}
        parent = saver.put(parent, checkpoint(f"{n:03}", values, versions), {"step": n, **metadata}, new)
        saver.put_writes(parent, [("n", n), ("other", n)], f"task {n}")
    return parent


def test_reopening_and_large_values(tmp_path):
    large = {"text": "x" * 5_000_000, "bytes": bytes(range(256)) * 1000}
    with esker.open(tmp_path / "db") as db:
        saver = EskerSaver(db)
        last = chain(saver, "t", 5)
        versions = {"large": "1", "kept": "000"}
        saver.put(last, checkpoint("100", {"large": large, "kept": "value"}, versions), {}, {"large": "1"})
    with esker.open(tmp_path / "db") as db:
        saver = EskerSaver(db)
        found = saver.get_tuple(config("t"))
        assert found.checkpoint["channel_values"] == {"large": large, "kept": "value"}
        assert found.parent_config == last and found.pending_writes == []
        steps = [found.metadata["step"] for found in saver.list(config("t"), before=found.config)]
        assert steps == [4, 3, 2, 1, 0]
        # A channel that did not change is stored once.
        assert len(db["langgraph.blobs"]) == 5 + 2
        assert db.check()["problems"] == []


def test_removal_removes_all_that_is_not_used(db):
    saver = EskerSaver(db)
    for thread in ("a", "ab", "b"):
        chain(saver, thread, 4, run_id=f"run of {thread}")
    saver.prune(["a"])
    assert saver.get_tuple(config("a")).checkpoint["channel_values"] == {"n": 3, "kept": "value"}
    sizes = {part: len(db[f"langgraph.{part}"]) for part in ("checkpoints", "blobs", "writes")}
    assert sizes == {"checkpoints": 1 + 4 + 4, "blobs": 2 + 5 + 5, "writes": 2 + 8 + 8}
    saver.delete_for_runs(["run of ab"])
    threads = [found.config["configurable"]["thread_id"] for found in saver.list(None)]
    assert threads == ["b", "a", "b", "b", "b"]
    saver.copy_thread("b", "c")
    saver.delete_thread("b")
    copy = saver.get_tuple(config("c"))
    assert copy.checkpoint["channel_values"] == {"n": 3, "kept": "value"} and len(copy.pending_writes) == 2
    saver.prune(["a", "c"], strategy="delete")
    with pytest.raises(ValueError):
        saver.prune(["a"], strategy="other")
    assert not any(len(db[f"langgraph.{part}"]) for part in ("checkpoints", "blobs", "writes"))


def test_a_value_is_never_lost(db):
    """A checkpoint that names values which were removed stores them, as does one without versions."""
    saver = EskerSaver(db)
    old = config("t", "000")
    chain(saver, "t", 2)
    saver.prune(["t"])
    saver.put(old, checkpoint("500", {"n": 0, "free": 1}, {"n": "000"}), {"source": "fork"}, {})
    assert saver.get_tuple(config("t")).checkpoint["channel_values"] == {"n": 0, "free": 1}


def test_prune_keeps_what_delta_channels_need(db):
    saver = EskerSaver(db)
    parent = config("t")
    for n in range(6):
        # The channel is stored in the third checkpoint only. The others have its writes.
        values = {"delta": ["snapshot"]} if n == 2 else {}
        counters = {"counters_since_delta_snapshot": {"delta": [n, n]}}
        parent = saver.put(parent, checkpoint(f"{n:03}", values, {"delta": f"{n:03}"}), counters, {})
        saver.put_writes(parent, [("delta", n)], "task")
    before = saver.get_delta_channel_history(config=parent, channels=["delta"])
    saver.prune(["t"])
    assert saver.get_delta_channel_history(config=parent, channels=["delta"]) == before
    assert before["delta"]["seed"] == ["snapshot"]
    assert [write[2] for write in before["delta"]["writes"]] == [2, 3, 4]
    assert [found.checkpoint["id"] for found in saver.list(config("t"))] == ["005", "004", "003", "002"]


def test_writes_of_several_threads(db):
    """Each write is stored once, though all threads store all of them, and beside prunes."""
    saver = EskerSaver(db)
    last = chain(saver, "t", 3)

    def work(worker):
        for n in range(20):
            saver.put_writes(last, [("channel", worker)], f"more {n}")
            chain(saver, f"own {worker}", 3)
            saver.prune([f"own {worker}", "t"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = saver.get_tuple(config("t"))
    assert len(found.pending_writes) == 2 + 20
    assert found.checkpoint["channel_values"] == {"n": 2, "kept": "value"}
    for worker in range(4):
        assert [at.metadata["step"] for at in saver.list(config(f"own {worker}"))] == [2]


def test_a_graph_continues_after_reopening(tmp_path):
    graphs = pytest.importorskip("langgraph.graph")
    builder = graphs.StateGraph(int)
    builder.add_node("add", lambda n: n + 1)
    builder.add_edge(graphs.START, "add")
    builder.add_edge("add", graphs.END)
    for n in range(3):
        with esker.open(tmp_path / "db") as db:
            graph = builder.compile(checkpointer=EskerSaver(db))
            before = graph.get_state(config("t")).values
            assert before == (n * 11 if n else {})
            assert graph.invoke(n * 11 + 10, config("t")) == n * 11 + 11
            run = graph.ainvoke(5, config("other"))
            assert asyncio.run(run) == 6
            assert len(list(graph.get_state_history(config("t")))) == 3 * (n + 1)


def test_store_reopening_and_order(tmp_path):
    with esker.open(tmp_path / "db") as db:
        store = EskerStore(db)
        store.put(("a", "b"), "2", {"n": 2, "large": "x" * 3_000_000})
        store.put(("a",), "1", {"n": 1, "tags": ["x"], "in": {"side": "\u00e9"}})
        store.put(("aa",), "3", {"n": "text"})
        created = store.get(("a",), "1").created_at
        time.sleep(0.01)
        store.put(("a",), "1", {"n": 5, "tags": ["x"], "in": {"side": "\u00e9"}})
        with pytest.raises(TypeError):
            store.batch([PutOp(("a",), "good", {}), PutOp(("a",), "bad", {"no": object()})])
    with esker.open(tmp_path / "db") as db:
        store = EskerStore(db)
        item = store.get(("a",), "1")
        assert item.created_at == created < item.updated_at
        assert [found.key for found in store.search(("a",))] == ["1", "2"]
        assert [found.key for found in store.search((), limit=1, offset=2)] == ["3"]
        for filter, keys in (
            ({"n": {"$gt": 2}}, ["1"]), ({"n": {"$gte": 2, "$lt": 5}}, ["2"]),
            ({"n": {"$ne": 2}}, ["1", "3"]), ({"n": {"$lt": "u"}}, ["3"]),
            ({"tags": ["x"]}, ["1"]), ({"in": {"side": "\u00e9"}}, ["1"]),
            ({"missing": None}, ["1", "2", "3"]),
        ):  # fmt: skip
            assert [found.key for found in store.search((), filter=filter)] == keys, filter
        with pytest.raises(ValueError):
            store.search((), filter={"n": {"$in": [1]}})
        assert store.list_namespaces() == [("a",), ("a", "b"), ("aa",)]
        assert store.list_namespaces(max_depth=1) == [("a",), ("aa",)]
        assert store.list_namespaces(prefix=("a",), suffix=("*",)) == [("a",), ("a", "b")]
        assert store.list_namespaces(limit=1, offset=1) == [("a", "b")]


def test_lifetimes_of_items(tmp_path):
    minute = 1 / 60
    with esker.open(tmp_path / "db") as db:
        store = EskerStore(db, ttl={"default_ttl": 0.6 * minute, "refresh_on_read": False})
        store.put(("a",), "default", {})
        store.put(("a",), "read", {})
        store.put(("b",), "for ever", {}, ttl=None)
        store.put(("a",), "long", {}, ttl=60)
        time.sleep(0.4)
        assert store.get(("a",), "read", refresh_ttl=True) is not None
        time.sleep(0.4)
        assert {found.key for found in store.search(())} == {"read", "long", "for ever"}
    with esker.open(tmp_path / "db") as db:
        store = EskerStore(db)
        time.sleep(0.4)
        assert [found.key for found in store.search(())] == ["long", "for ever"]
        assert 3500 < db["langgraph.items"].ttl(db["langgraph.items"].first()[0]) <= 3600
        db.sweep()
        assert len(db["langgraph.items"]) == 2


def test_batches_of_several_threads_are_atomic(db):
    """Two items are always written together, so no batch of reads sees them apart."""
    store, stop, apart = EskerStore(db), threading.Event(), []

    def write(worker):
        for n in range(100):
            value = {"worker": worker, "n": n}
            store.batch([PutOp(("pair",), "left", value), PutOp(("pair",), "right", value)])

    def read():
        while not stop.is_set():
            left, right = store.batch([GetOp(("pair",), "left"), GetOp(("pair",), "right")])
            if (left and left.value) != (right and right.value):
                apart.append((left, right))

    reader = threading.Thread(target=read)
    reader.start()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    stop.set()
    reader.join()
    assert apart == []

    async def concurrent():
        await asyncio.gather(*(store.aput(("many",), str(n), {"n": n}) for n in range(50)))
        return await store.asearch(("many",), limit=100)

    assert len(asyncio.run(concurrent())) == 50


def test_a_write_is_stored_once(db):
    """A task that runs again does not change its writes, but its error."""
    saver = EskerSaver(db)
    last = chain(saver, "t", 1)
    for n in (1, 2):
        saver.put_writes(last, [("channel", n), ("__error__", n)], "again")
    writes = saver.get_tuple(last).pending_writes
    assert [write for write in writes if write[0] == "again"] == [
        ("again", "__error__", 2), ("again", "channel", 1)]  # fmt: skip
