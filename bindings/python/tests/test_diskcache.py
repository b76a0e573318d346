"""Runs the tests of the package diskcache, from its source distribution, on `esker.cache`.

They are fetched from PyPI and never kept. `LEFT_OUT` says which do not run, and why.
Those of its recipes run with diskcache's own recipes, which take any cache.

Not run at all are test_djangocache.py, since there is no cache for Django, and test_doctest.py, which runs
the examples in the source of diskcache.
"""

import pathlib
import re
import subprocess
import sys
import tarfile

import pytest

VERSION = "5.6.3"
PARTS = ("core", "deque", "index", "fanout")

SQL = "reaches into the SQLite database, or mocks its connection"
DISK = "mocks the methods of diskcache's own class Disk"
SHARDS = "mocks the shards, or counts them: here one database serves"
FILES = "values are not files of their own"
PICKLE = "has a file as a key, which needs pickle"

LEFT_OUT = {
    "core": {
        "test_custom_filename_disk": FILES, "test_get_keyerror4": FILES, "test_path": FILES,
        "test_check": FILES, "test_cleanup_dirs": FILES, "test_disk_write_os_error": FILES,
        "test_init_makedirs": "mocks os.makedirs: the engine makes the directory",
        "test_pragma_error": SQL, "test_close_error": SQL, "test_set_timeout": SQL, "test_add_timeout": SQL,
        "test_integrity_check": SQL, "test_custom_eviction_policy": "a policy is a clause of SQL",
        "test_get_ioerror_fast_path": DISK, "test_pop_ioerror": DISK, "test_pull_ioerror": DISK,
        "test_peek_ioerror": DISK, "test_peekitem_ioerror": DISK,
        "test_getsetdel": PICKLE,
    },
    "deque": {},
    "index": {},
    "fanout": {
        "test_init": SHARDS, "test_volume": SHARDS,
        **{f"test_{name}_timeout": SHARDS
           for name in ("set", "touch", "add", "incr", "decr", "get", "pop", "delete", "remove", "reset")},
        "test_getsetdel": PICKLE, "test_custom_filename_disk": FILES,
    },
}  # fmt: skip

SHIM = '''
import sys, types
import esker.cache
from esker.cache import *
from esker.cache import core as _core
EVICTION_POLICY = {name: {} for name in EVICTION_POLICIES}
class EmptyDirWarning(UserWarning): pass
class UnknownFileWarning(UserWarning): pass
for _name, _of in (("core", _core), ("fanout", esker.cache.fanout), ("persistent", esker.cache.persistent)):
    sys.modules["diskcache." + _name] = _of
    globals()[_name] = _of
'''

RECIPES = '''
import diskcache, esker.cache
diskcache.Cache, diskcache.FanoutCache = esker.cache.Cache, esker.cache.FanoutCache
'''


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """The tests of diskcache, beside a module `diskcache` that is `esker.cache`."""
    directory = tmp_path_factory.mktemp("diskcache")
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
             f"diskcache=={VERSION}", "--dest", directory]  # fmt: skip
    subprocess.run(fetch, check=True)
    with tarfile.open(directory / f"diskcache-{VERSION}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    (directory / "shim").mkdir()
    (directory / "shim" / "diskcache.py").write_text(SHIM)
    (directory / "plugins").mkdir()
    (directory / "plugins" / "recipes_on_esker.py").write_text(RECIPES)
    return directory


def run(suite, part, first, left_out=(), options=()):
    """Runs the tests of a file, with a directory that comes first among those of modules."""
    tests = suite / f"diskcache-{VERSION}" / "tests" / f"test_{part}.py"
    names = re.findall(r"^def (test_\w+)", tests.read_text(), re.MULTILINE)
    assert set(left_out) <= set(names)
    # Each by its name: --deselect also leaves out tests whose names are longer.
    chosen = [f"{tests.name}::{name}" for name in names if name not in left_out]
    package = pathlib.Path(__import__("esker").__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, *options]
    command.append(f"--rootdir={tests.parent}")
    environment = {"PYTHONPATH": f"{first}:{package}", "PATH": "/usr/bin:/bin", "HOME": str(suite)}
    done = subprocess.run(command, cwd=tests.parent, env=environment, capture_output=True, text=True)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert f"{len(chosen)} passed" in done.stdout


@pytest.mark.parametrize("part", PARTS)
def test_diskcache(suite, part):
    run(suite, part, suite / "shim", LEFT_OUT[part])


def test_recipes(suite):
    own = f"{suite / 'plugins'}:{suite / f'diskcache-{VERSION}'}"
    run(suite, "recipes", own, options=("-p", "recipes_on_esker"))
