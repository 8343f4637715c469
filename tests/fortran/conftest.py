"""Fixtures of the tests of the Fortran module."""

from __future__ import annotations

import os

import pytest
from fortran_programs import Builder, built, installed, missing


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """Header, library and module: those that are installed, or new ones."""
    if (what := missing()) and "PENSTOCK_C_PREFIX" not in os.environ:
        pytest.skip(what)
    assert what is None, what
    return installed() or built(tmp_path_factory.mktemp("module"))


@pytest.fixture(scope="session")
def build(tree, tmp_path_factory):
    """Compiles programs."""
    return Builder(tree, tmp_path_factory.mktemp("programs"))
