"""Runs the tests of the package diskcache, from its source distribution, on `esker.cache`.

They are fetched from PyPI and never kept. `LEFT_OUT` says which do not run, and why.
Not run at all are test_djangocache.py, test_recipes.py and test_doctest.py: these modules are not there.
"""

import pathlib
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
    return directory


@pytest.mark.parametrize("part", PARTS)
def test_diskcache(suite, part):
    tests = suite / f"diskcache-{VERSION}" / "tests" / f"test_{part}.py"
    package = pathlib.Path(__import__("esker").__file__).parents[1]
    left_out = [f"--deselect={tests.name}::{name}" for name in LEFT_OUT[part]]
    left_out.append(f"--rootdir={tests.parent}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests.name, *left_out]
    environment = {"PYTHONPATH": f"{suite / 'shim'}:{package}", "PATH": "/usr/bin:/bin", "HOME": str(suite)}
    done = subprocess.run(command, cwd=tests.parent, env=environment, capture_output=True, text=True)
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
