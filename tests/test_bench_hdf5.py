"""``penstock_bench hdf5`` checks what it writes, and prints a table."""

from __future__ import annotations

import re

from penstock_bench import hdf5


def test_the_table(tmp_path, capsys):
    words = ["--mebibytes", "1", "--rounds", "1", "--h5pcc", "none", "--directory", str(tmp_path)]
    assert hdf5.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    stores = [hdf5.FLAT, hdf5.RUN, hdf5.CHUNKS, hdf5.DEFLATE, hdf5.ZLIB]
    assert [line[:28].strip() for line in lines[2:]] == stores
    assert all(re.search(r" \d+\.\d\d", line) for line in lines[3:6])
    assert not list(tmp_path.iterdir())
    assert hdf5.main(["--rounds", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
