"""Runs the tests that LangGraph publishes on `esker.langgraph`.

- The package langgraph-checkpoint-conformance: all of it.
- The tests in the source distributions of langgraph-checkpoint-sqlite and langgraph-checkpoint, with Esker in
  the place of their savers and stores. They are fetched from PyPI and never kept.

`LEFT_OUT` says which tests do not run, and why. Not run at all are files on SQL, on migrations between
formats of SQLite, and on the serializers, which are LangGraph's own.
"""

import asyncio
import subprocess
import sys
import tarfile

import pytest

import esker

pytest.importorskip("langgraph.checkpoint.base")

SQLITE, CHECKPOINT = "langgraph-checkpoint-sqlite==3.1.2", "langgraph-checkpoint==4.3.2"

VECTORS = "searches by vectors"
SQL = "tests helpers that write SQL"
NAMES = "expects that names of fields which SQL would misread are refused, or dots in them resolved"
LOOP = "the store may be called in the event loop"
SWEEP = "counts what a sweep removes: the engine has removed it before"
REFRESH = "expects that reads do not refresh a lifetime by default, which the interface says they do"
ASYNC = "expects that the asynchronous methods belong to another class"

LEFT_OUT = {
    (SQLITE, "test_store.py"): {
        "test_vector_": VECTORS, "test_embed_with_path": VECTORS, "test_scores": VECTORS,
        "test_non_ascii": VECTORS, "test_nonnull_migrations": SQL, "test_escape_glob_literal": SQL,
        "test_namespace_match_pattern": SQL, "test_list_namespaces_prefix_uses_indexable_condition": SQL,
        "test_sql_injection_vulnerability": NAMES, "test_filter_keys_with_hyphens_and_digits": NAMES,
    },
    (SQLITE, "test_async_store.py"): {
        "test_vector_": VECTORS, "test_embed_with_path": VECTORS, "test_no_running_loop": LOOP,
    },
    (SQLITE, "test_ttl.py"): {"test_ttl_refresh": SWEEP, "test_ttl_override_default": REFRESH},
    (SQLITE, "test_sqlite.py"): {
        "test_search_where": SQL, "test_metadata_predicate": SQL, "test_informative_async_errors": ASYNC,
        "test_checkpoint_search_sql_injection_prevention": NAMES,
        "test_metadata_filter_keys_with_hyphens_and_digits": NAMES,
    },
    (SQLITE, "test_aiosqlite.py"): {},
    (SQLITE, "test_get_delta_channel_history.py"): {},
    (SQLITE, "test_delta_parent_walk.py"): {"test_walk_step_looks_up_the_parent_by_primary_key": SQL},
    (CHECKPOINT, "test_store.py"): {
        "test_vector_": VECTORS, "_vector_": VECTORS, "test_embed_with_path": VECTORS,
        "test_non_ascii": VECTORS,
    },
}  # fmt: skip

# A plugin of pytest: it is there before the tests are imported.
SHIM = '''
import contextlib, sys, tempfile, types
import esker
import langgraph.store.memory
from esker.langgraph import EskerSaver, EskerStore

def open_db(path):
    # The tests make the file of the database first.
    return esker.memory() if path == ":memory:" else esker.open(path + ".esker", durability="none")

class SqliteSaver(EskerSaver):
    @classmethod
    @contextlib.contextmanager
    def from_conn_string(cls, path):
        with open_db(path) as db:
            yield cls(db)

class AsyncSqliteSaver(EskerSaver):
    @classmethod
    @contextlib.asynccontextmanager
    async def from_conn_string(cls, path):
        with open_db(path) as db:
            yield cls(db)

class SqliteStore(EskerStore):
    @classmethod
    @contextlib.contextmanager
    def from_conn_string(cls, path, ttl=None, index=None):
        with open_db(path) as db:
            yield cls(db, ttl=ttl)
    def setup(self): pass
    def sweep_ttl(self): return self.db.sweep()
    def start_ttl_sweeper(self): pass
    def stop_ttl_sweeper(self): pass

class AsyncSqliteStore(EskerStore):
    @classmethod
    @contextlib.asynccontextmanager
    async def from_conn_string(cls, path, ttl=None, index=None):
        with open_db(path) as db:
            yield cls(db, ttl=ttl)
    async def setup(self): pass
    async def sweep_ttl(self): return self.db.sweep()
    async def start_ttl_sweeper(self): pass
    async def stop_ttl_sweeper(self): pass

class InMemoryStore(EskerStore):
    def __init__(self): super().__init__(esker.memory())

NOTHING = dict.fromkeys("NS_MATCH_FUNCTION BaseSqliteStore SqliteIndexConfig _escape_glob_literal "
                        "_namespace_match_pattern _metadata_predicate search_where DELTA_STAGE1_SQL".split())
ALL = {**NOTHING, **{kind.__name__: kind for kind in (SqliteSaver, AsyncSqliteSaver, SqliteStore,
                                                      AsyncSqliteStore)}}
for name in ("checkpoint.sqlite", "checkpoint.sqlite.aio", "checkpoint.sqlite._delta",
             "checkpoint.sqlite.utils", "store.sqlite", "store.sqlite.aio", "store.sqlite.base"):
    module = sys.modules["langgraph." + name] = types.ModuleType("langgraph." + name)
    module.__dict__.update(ALL)
langgraph.store.memory.InMemoryStore = InMemoryStore
'''


def test_conformance(tmp_path):
    conformance = pytest.importorskip("langgraph.checkpoint.conformance")
    from esker.langgraph import EskerSaver

    opened = []

    @conformance.checkpointer_test(name="EskerSaver")
    async def saver():
        with esker.open(tmp_path / str(len(opened)), durability="none") as db:
            opened.append(db)
            yield EskerSaver(db)
            assert db.check()["problems"] == []

    results = asyncio.run(conformance.validate(saver)).results
    assert len(results) == 8
    assert [result.failures for result in results.values() if not result.passed] == []
    assert sum(result.tests_passed for result in results.values()) == 81


@pytest.fixture(scope="module")
def suites(tmp_path_factory):
    """The sources of the packages, beside a plugin that replaces their savers and stores."""
    directory = tmp_path_factory.mktemp("langgraph")
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", directory]
    for package in (SQLITE, CHECKPOINT):
        name, _, version = package.partition("==")
        subprocess.run([*fetch, "--no-binary", name, package], check=True)
        file = f"{name.replace('-', '_')}-{version}"
        with tarfile.open(directory / f"{file}.tar.gz") as archive:
            members = [member for member in archive if member.name.startswith(f"{file}/tests/")]
            archive.extractall(directory, members, filter="data")
        (directory / file).rename(directory / name)
    (directory / "esker_shim.py").write_text(SHIM)
    return directory


@pytest.mark.parametrize(("package", "file"), LEFT_OUT)
def test_suite(suites, package, file):
    for needed in ("pytest_asyncio", "pytest_mock", "langgraph.graph"):
        pytest.importorskip(needed)
    root = suites / package.partition("==")[0]
    left_out = " and ".join(f"not {name}" for name in LEFT_OUT[package, file])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "esker_shim",
               "-o", "asyncio_mode=auto", f"--rootdir={root}", f"tests/{file}"]  # fmt: skip
    if left_out:
        command += ["-k", left_out]
    installed = esker.__path__[0].rpartition("/")[0]
    environment = {"PYTHONPATH": f"{suites}:{root}:{installed}", "PATH": "/usr/bin:/bin", "HOME": str(suites)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
