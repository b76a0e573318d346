import pytest

import esker


@pytest.fixture
def db(tmp_path):
    """A database on the disk, which is checked and closed at the end."""
    with esker.open(tmp_path / "db", durability="none", feed=True) as opened:
        yield opened
        try:
            assert opened.check()["problems"] == []
        except esker.Closed:
            pass
