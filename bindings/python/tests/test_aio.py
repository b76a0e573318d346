"""The facade for asyncio."""

import asyncio
import threading

import pytest

import esker
import esker.aio


def in_loop(function):
    """Runs a coroutine function as a test."""

    def run(tmp_path):
        asyncio.run(asyncio.wait_for(function(tmp_path / "db"), 60))

    run.__name__ = function.__name__
    return run


@in_loop
async def test_reads_writes_and_walks(path):
    async with esker.aio.open(path, durability="buffered", feed=True) as db:
        users = await db.keyspace("users")
        threads = threading.active_count()
        await asyncio.gather(*(users.put(f"{n:04}", str(n)) for n in range(3000)))
        assert threading.active_count() <= threads + 1  # that of the engine
        assert await users.len() == 3000 and await users.get("0007") == b"7" and await users.get("x", 5) == 5
        assert [v async for v in users.values("0010", "0012")] == [b"10", b"11"]
        assert len([key async for key in users]) == 3000
        await users.put("0007", "brief", ttl=0)
        assert not await users.contains("0007") and await users.pop("0008") == b"8"
        await users.delete("0009")
        async with db.snapshot() as snapshot:
            await users.clear()
            assert len([key async for key in snapshot[users]]) == 2997
            assert await snapshot["users"].get("0001") == b"1"
        sums = await db.keyspace("sums")
        await db.run(lambda db: setattr(db["sums"], "merge_operator", "append"))
        await asyncio.gather(*(sums.merge("k", "x") for _ in range(50)))
        assert await sums.get("k") == b"x" * 50
        with pytest.raises(esker.Merge):
            await users.merge("k", "x")
        await db.run(lambda db: db.sync())
        seen = 0
        async for commit in db.feed(1):
            seen += len(list(commit))
            if commit.seqno == snapshot.seqno:
                break
        assert seen >= 3000
        walk = sums.items()
    with pytest.raises(esker.Closed):
        await users.get("0001")
    with pytest.raises(esker.Closed):
        await walk.__anext__()
    with pytest.raises(esker.Closed):
        await asyncio.wait_for(users.put("a", "b"), 5)
    with esker.open(path) as again:
        assert again["sums"]["k"] == b"x" * 50


@in_loop
async def test_transactions_and_batches(path):
    db = await esker.aio.open(path, durability="none")
    users = await db.keyspace("users")

    async def add(t):
        now = int(await t[users].get("n") or b"0")
        await asyncio.sleep(0)
        await t[users].put("n", str(now + 1))
        return now

    assert sorted(await asyncio.gather(*(db.transact(add) for _ in range(40)))) == list(range(40))
    with pytest.raises(esker.Conflict):
        async with db.transaction() as t:
            await t[users].put("m", await t[users].get("n"))
            await users.put("n", "7")
    with pytest.raises(ZeroDivisionError):
        async with db.transaction() as t:
            await t[users].put("lost", "1")
            1 / 0
    async with db.transaction(isolation="exclusive") as t:
        await t[users].put("kept", "1")
        with pytest.raises(ValueError), t.savepoint():
            await t[users].put("lost", "1")
            raise ValueError
    async with db.batch() as batch:
        batch[users]["b"] = "2"
        batch[users].delete("n")
    assert [key async for key in users] == [b"b", b"kept"]
    with pytest.raises(esker.Invalid):
        await batch.commit()
    task = asyncio.create_task(users.put("cancelled", "1"))
    await asyncio.sleep(0)
    task.cancel()
    await db.close()
    with esker.open(path) as again:
        assert again["users"]["cancelled"] == b"1"


@in_loop
async def test_other_tasks_run_while_a_commit_waits(path):
    async with esker.aio.open(path) as db:
        users, turns = await db.keyspace("users"), 0
        holder = db.transaction(isolation="exclusive")
        await holder.__aenter__()
        put = asyncio.create_task(users.put("ann", "1"))
        for turns in range(50):
            await asyncio.sleep(0.001)
        assert turns == 49 and not put.done()
        await holder.rollback()
        await put
        assert await users.get("ann") == b"1"
