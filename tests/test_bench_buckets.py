"""``penstock_bench buckets`` compares what it has read, and prints a table."""

from __future__ import annotations

import pytest

from penstock_bench import buckets


def test_the_table(capsys):
    words = ["--mib", "4", "--chunk-mib", "1", "--rounds", "1"]
    assert buckets.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 MiB in chunks of 1 MiB")
    names = [buckets.CRATE, buckets.PENSTOCK, buckets.ZARR]
    assert [line[:32].rstrip() for line in lines[1:]] == names


@pytest.mark.parametrize("words", [["--mib", "0"], ["--url"]])
def test_wrong_options(capsys, words):
    assert buckets.main(words) == 2
    assert "error" in capsys.readouterr().err
