"""A program whose types mypy checks: test_typing.py."""

from __future__ import annotations

import esker


def program(path: str) -> int:
    with esker.open(path, memory="64MiB", durability="none") as db:
        users = db["users"]
        users["ann"] = "1"
        value: bytes = users["ann"]
        maybe: bytes | None = users.get("bob")
        text: bytes | str = users.get("bob", "none")
        view: memoryview | None = users.get(b"ann", view=True)
        first: tuple[bytes, bytes] | None = users.pop_first()
        names: list[str] = db.keyspaces()
        with db.transaction(isolation="snapshot") as t, t.savepoint():
            t[users].put("cid", value, ttl=60)

        def add(t: esker.Transaction) -> int:
            return t[users].add("n", 5)

        before: int = db.transact(add)
        for key, value in users.items("a", "c", reverse=True, limit=10):
            print(key.hex(), value.hex())
        with db.snapshot() as snapshot, db.batch() as batch:
            batch[users]["copy"] = snapshot[users].get("ann", b"")
        return before + len([value, maybe, text, view, first, names])
