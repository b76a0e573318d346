"""`esker.dbm`: with shelve, and in the tests that CPython has for its own modules."""

import dbm
import os
import shelve

import pytest

import esker
import esker.dbm

cpython = pytest.importorskip("test.test_dbm", reason="this Python comes without its tests")


def which(path, whichdb=dbm.whichdb):
    """`dbm.whichdb` knows only the modules of the standard library."""
    path = os.fsdecode(path)
    return "esker.dbm" if os.path.exists(os.path.join(path, "CURRENT")) else whichdb(path)


class TestAsInCpython(cpython.AnyDBMTestCase, cpython.unittest.TestCase):
    module = esker.dbm

    def setUp(self):
        for place, name, value in ((dbm, "whichdb", which), (dbm, "error", (esker.dbm.error,
        *dbm.error[1:]))):
            self.addCleanup(setattr, place, name, getattr(place, name))
            setattr(place, name, value)
        dbm._modules["esker.dbm"] = esker.dbm
        self.addCleanup(dbm._modules.pop, "esker.dbm")
        super().setUp()


def test_shelve(tmp_path):
    with shelve.Shelf(esker.dbm.open(tmp_path / "shelf", "c"), writeback=True) as shelf:
        shelf["list"] = [1]
        shelf["list"].append(2)
        shelf.sync()
        assert dict(shelf) == {"list": [1, 2]} and len(shelf) == 1
    with esker.open(tmp_path / "shelf") as db:
        assert shelve.Shelf(db["dbm"])["list"] == [1, 2]


def test_flags(tmp_path):
    path = tmp_path / "db"
    for flag in ("r", "w"):
        with pytest.raises(esker.dbm.error) as missing:
            esker.dbm.open(path, flag)
        assert isinstance(missing.value.__cause__, esker.NoDatabase)
    with pytest.raises(ValueError):
        esker.dbm.open(path, "x")
    with esker.dbm.open(path, "cs", 0o600) as db:
        db["b"], db["a"] = "2", b"1"
        assert (db.firstkey(), db.nextkey("a"), db.nextkey(b"b")) == (b"a", b"b", None)
        db.reorganize()
        with pytest.raises(esker.dbm.error, match="in use|open"):
            esker.dbm.open(path, "w")
    assert path.stat().st_mode & 0o777 == 0o700
    with esker.dbm.open(path) as db:
        assert db.keys() == [b"a", b"b"] and db.get("c") is None
        with pytest.raises(esker.ReadOnly):
            db["c"] = "3"
    with pytest.raises(esker.dbm.error, match="closed"):
        db["a"]
    with esker.dbm.open(path, "n") as db:
        assert len(db) == 0
    (tmp_path / "file").write_text("text")
    with pytest.raises(esker.dbm.error):
        esker.dbm.open(tmp_path / "file", "n")
    assert (tmp_path / "file").read_text() == "text"
