"""Checkpoints and long-term memory of LangGraph in Esker.

    from esker.langgraph import EskerSaver, EskerStore

    saver, store = EskerSaver(db), EskerStore(db)      # graph.compile(checkpointer=saver, store=store)
    store.put(("users", "ann"), "likes", {"food": "rice"}, ttl=60)
    print(store.search(("users",), filter={"food": "rice"}))

Needs the package `langgraph-checkpoint`: `pip install esker[langgraph]`. Both may use one database, and their
methods may be called from several threads and event loops.
"""

from __future__ import annotations

from .saver import EskerSaver
from .store import EskerStore

__all__ = ["EskerSaver", "EskerStore"]
