"""The type stubs: against the module, and against a program."""

import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def run(*command, **kwargs):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_stubs_agree_with_the_module(tmp_path):
    pytest.importorskip("mypy")
    allowed = tmp_path / "allowed"
    # The abstract base classes of the stubs are registered, not inherited from.
    allowed.write_text("esker._esker.*\\.__(or|ror|ior|hash|class_getitem|reversed|buffer)__\n")
    run("-m", "mypy.stubtest", "esker._esker", "--ignore-missing-stub", "--allowlist", allowed,
        "--ignore-unused-allowlist", cwd=HERE.parent)  # fmt: skip


def test_a_program_is_well_typed(tmp_path):
    pytest.importorskip("mypy")
    run("-m", "mypy", cwd=HERE.parent)
    import typing_example

    assert typing_example.program(str(tmp_path / "db")) == 6
