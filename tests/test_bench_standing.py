"""``penstock_bench standing`` checks what it has saved, and prints a table."""

from __future__ import annotations

from penstock_bench import standing


def test_the_table(tmp_path, capsys):
    words = ["--mib", "4", "--rounds", "1", "--directory", str(tmp_path)]
    assert standing.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 MiB on ")
    names = [standing.FILE, standing.OWN, standing.WAITED, standing.HANDED, standing.ENDED]
    assert [line[:40].rstrip() for line in lines[1:]] == names
    assert not list(tmp_path.iterdir())
    assert standing.main(["--mib", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
