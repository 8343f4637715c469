"""Writes the table of all pairs of writers and readers into `docs/formats.md`.

`tests/pairs.py` has the rows, and `tests/test_pairs.py` tests each cell.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from pairs import documented  # noqa: E402 - it is beside the tests

PAGE = ROOT / "docs" / "formats.md"


if __name__ == "__main__":
    PAGE.write_text(documented(PAGE.read_text("utf-8")), "utf-8")
