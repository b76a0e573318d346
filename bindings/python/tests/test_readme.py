"""The examples of the documents run."""

import asyncio
import importlib
import pathlib
import re
import textwrap

import pytest

import esker
import esker.aio
import esker.cache
import esker.dbm

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_the_readme(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, second, shared, graph = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(first, {})
    assert capsys.readouterr().out == "b'bob' b'1'\nb'ann' b'1'\n"
    exec(shared, {"esker": esker})
    with esker.open("shared") as db:
        assert db["numbers"].add("visits", 0) == 1
    with esker.open("data") as db:
        db["accounts"].add("ann", 40)
        names = {"db": db, "esker": esker}
        exec(second, names)
        with pytest.raises(ValueError, match="not enough"):
            names["move"]("ann", "bob", 30)
        assert [db["accounts"].add(name, 0) for name in ("ann", "bob")] == [10, 30]
        graphs = pytest.importorskip("langgraph.graph")
        names["builder"] = graphs.StateGraph(int).add_node("add", lambda n: n + 1)
        names["builder"].set_entry_point("add")
        exec(graph, names)
        assert names["graph"].invoke(1, {"configurable": {"thread_id": "t"}}) == 2
        assert db["langgraph.checkpoints"]


OPTIONAL = {"esker.key_value": "key_value.aio", "esker.langgraph": "langgraph.checkpoint.base"}


@pytest.mark.parametrize(
    "name",
    ["esker", "esker.aio", "esker.cache", "esker.dbm", "esker.shared", "esker.table", "esker.tuple", *OPTIONAL],
)
def test_examples_of_modules(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    module = importlib.import_module(name)
    text = textwrap.dedent("\n".join(re.findall(r"^(?:    .*)?$", module.__doc__, re.MULTILINE))).strip()
    assert len(text.splitlines()) >= 3
    if "async" in text:
        program = "async def main():\n" + textwrap.indent(text, "    ")
        names = {}
        exec(program, names)
        asyncio.run(names["main"]())
        return
    with esker.memory() as db:
        events = db.table("events", key=esker.keys(str, int), value=esker.json)
        exec(text, {"db": db, "esker": esker, "events": events if module is esker.table else db["events"]})
