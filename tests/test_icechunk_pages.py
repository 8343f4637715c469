"""What docs/icechunk.md shows is run here."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import zarr

icechunk = pytest.importorskip("icechunk")

PAGE = (Path(__file__).parent.parent / "docs" / "icechunk.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    icechunk.set_logs_filter("error")
    names = {"__name__": "page"}
    exec(compile("\n".join(BLOCKS), "docs/icechunk.md", "exec"), names)
    expected = np.repeat([0.0, 1.0, 2.0], 10)
    found = zarr.open_group(names["repository"].readonly_session("main").store, mode="r")[
        "fields/u"
    ]
    assert zarr.open_group("fields.zarr")["u"][:, 0].tolist() == expected.tolist()
    expected[::10] -= 1
    assert found[:, 0].tolist() == expected.tolist()
    assert np.concatenate(names["parts"])[:, 0].tolist() == expected.tolist()
