"""``penstock_bench parts`` checks what each program reads, and prints a table."""

from __future__ import annotations

from penstock_bench import parts


def test_the_table(tmp_path, capsys):
    assert parts.main(["--reads", "40", "--rounds", "1", "--directory", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:38].strip() for line in lines[1:]] == [
        "a system call, page cache",
        "zarr-python",
        "Penstock, a server of its own",
        "Penstock, a server beside the rank",
    ]
    assert not list(tmp_path.iterdir())
    assert parts.main(["--reads", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
