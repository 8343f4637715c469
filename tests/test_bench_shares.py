"""``penstock_bench shares`` checks what it reads, and prints a table."""

from __future__ import annotations

import re

from penstock_bench import shares


def test_the_table(tmp_path, capsys):
    words = ["--mebibytes", "1", "--rounds", "1", "--ranks", "5", "--directory", str(tmp_path)]
    assert shares.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:40].strip() for line in lines[1:]] == list(shares.STORES)
    assert all(len(re.findall(r"\(\d+\.\d\d\)", line)) == 2 for line in lines[1:])
    assert not list(tmp_path.iterdir())
    assert shares.main(["--ranks", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err


def test_unequal_shares_have_the_rows_of_equal_ones():
    for ranks in (1, 3, 4, 8, 10):
        for store in (shares.SHARES, shares.UNEVEN):
            counts = [shares.rows_of(store, rank, ranks, 10) for rank in range(ranks)]
            assert sum(counts) == 10 * ranks
            assert ranks < 4 or len(set(counts)) > 1
            on_first = sum(counts[::2])
            assert store != shares.SHARES or ranks != 8 or on_first == 40
