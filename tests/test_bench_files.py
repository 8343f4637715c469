"""``penstock_bench files`` checks all that it reads, and prints tables."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from helpers import is_in_memory

import penstock as ps
from penstock_bench import files
from penstock_bench.direct import direct_rate, fio_rate, fio_version
from penstock_bench.files_bench import COPY, Quotient, Table
from penstock_bench.files_case import CREATES, PARTS, READS, STATS, WRITES, Case
from penstock_bench.files_parts import BENCHMARK, LIMIT

WAYS = (
    "one striped subfile",
    "a subfile a cell",
    "blocks of 4 x 2 BSUs",
    "blocks of 4 x 2, by rows",
)
CLIENTS = ("1 client", "1 client, together", "2 ranks", "2 ranks, together")
ACCESSES = ["16 KiB", "64 KiB"]


def measured(place, *words: str) -> list[dict]:
    """The tables of a quick run in a directory, in which nothing else is left."""
    report = place / "report.json"
    words = (*words, "--quick", "--directory", str(place), "--json", str(report))
    assert files.main(list(words)) == 0
    told = json.loads(report.read_text())
    assert [path.name for path in place.iterdir()] == ["report.json"]
    for table in told["tables"]:
        rates = [rate for row in table["rows"].values() for each in row.values() for rate in each]
        assert rates and all(rate > 0 for rate in rates)
    return told["tables"]


def test_large_files_through_all_views(place, capsys):
    tables = measured(place, "--part", "sequential")
    assert len(tables) == 2
    for table in tables:
        limit, *rows = table["rows"]
        assert table["beside"] == limit
        assert rows == [f"{clients}: {way}" for clients in CLIENTS for way in WAYS]
        assert list(table["aims"]) == rows
        assert all(list(row) == list(PARTS) for row in table["rows"].values())
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(COPY)]
    assert len([line for line in lines if re.match("[12] (client|rank)", line)]) == 2 * 16


def test_the_figures(tmp_path, capsys):
    """On a disk, too, where there is direct I/O, with fio or without."""
    states = ["memory", "cache"] if is_in_memory(tmp_path) else ["disk", "cache"]
    tables = measured(tmp_path, "--part", "sizes,views", "--ranks", "1")
    figure_10, figure_12, *others = tables
    assert list(figure_10["rows"]) == [LIMIT, *ACCESSES]
    assert list(figure_12["rows"]) == [LIMIT, "1 server", "2 servers"]
    for table in (figure_10, figure_12):
        for row in table["rows"].values():
            assert list(row) == [f"{state}|{part}" for state in states for part in PARTS]
    ways = [("cell after cell", "cyclic", "striped")] * 2 + [("cells", "striped", "half")] * 2
    for table, groups in zip(others, ways, strict=True):
        assert list(table["rows"]) == ACCESSES
        for row in table["rows"].values():
            assert list(row) == [f"{group}|{part}" for group in groups for part in PARTS]
    titles = [line for line in capsys.readouterr().out.splitlines() if "Figure" in line]
    assert [title.split(":")[0] for title in titles] == [
        "sizes, Figure 10",
        "sizes, Figure 12",
        *(f"views, Figure {figure}, {state}" for figure in (14, 16) for state in states),
    ]


def test_small_accesses_and_names(place, capsys):
    tables = measured(place, "--part", "random,creates")
    random, creates = tables
    at_once = ["1 at a time, cautious", "1 at a time, reckless", "8 at a time, cautious"]
    who = ["1 thread, a server beside it", "1 rank, a server in another"]
    assert list(random["rows"]) == [
        "a system call, page cache",
        *(f"{one}: {way}" for one in who for way in at_once),
    ]
    assert all(list(row) == [READS, WRITES] for row in random["rows"].values())
    assert sorted(random["aims"].values()) == [40_000, 40_000, 100_000, 100_000]
    assert list(creates["rows"]) == [
        "the file system, with syncs: 4 threads",
        *(
            f"{servers}: {clients}"
            for servers in ("1 server", "4 servers")
            for clients in ("1 thread", "4 threads", "2 ranks of 2 threads")
        ),
    ]
    assert all(list(row) == [CREATES, STATS] for row in creates["rows"].values())
    assert "100,000" in capsys.readouterr().out


def test_without_jobs_there_are_no_ranks(place, capsys):
    [random] = measured(place, "--part", "random", "--ranks", "1")
    assert not [row for row in random["rows"] if "rank" in row]
    assert "MPI" not in capsys.readouterr().out


def test_a_wrong_byte_ends_the_benchmark(place, monkeypatch, capsys):
    read_at = ps.Subfile.read_at

    def read_wrongly(self, offset, out):
        moved = read_at(self, offset, out)
        memory = memoryview(out)
        memory[7] ^= 1
        return moved

    monkeypatch.setattr(ps.Subfile, "read_at", read_wrongly)
    words = ["--quick", "--ranks", "1", "--directory", str(place), "--part"]
    for part in ("sizes", "random"):
        assert files.main([*words, part]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert "BYTES WRONG, the first at 7" in said.err
    assert not list(place.iterdir())


@pytest.mark.parametrize("view", [(1, 1, 1, 1), (1, 1, 1, 4), (4, 2, 2, 2), (8, 1, 1, 1)])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_the_shares_are_all_of_the_file(view, size):
    """Each byte of each subfile is one client's, and the accesses of a client fill its memory."""
    case = Case(view, cells=4, bsu=100, bytes=9600, access=700)
    _, vn, _, hn = view
    owners = {(subfile, byte): 0 for subfile in range(vn * hn) for byte in range(9600 // vn // hn)}
    for rank in range(size):
        shares = case.shares(rank, size)
        end = 0
        for share in shares:
            assert share.begin == end
            end = share.end
            for byte in range(share.offset, share.offset + share.end - share.begin):
                owners[share.subfile, byte] += 1
        covered = sorted((begin, end) for _, begin, end in case.accesses(shares))
        assert sum(end - begin for begin, end in covered) == end
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(covered))
    assert set(owners.values()) == {1}


def test_subfiles_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="different lengths"):
        Case((1, 1, 1, 4), cells=4, bsu=64, bytes=4 * 64 + 1, access=64).shares(0, 1)


def test_what_is_short_of_its_aim_has_a_mark():
    rows = {
        "limit": {"write": [10e6], "read": [40e6]},
        "ours": {"write": [9e6, 3e6, 8e6], "read": [39e6]},
    }
    table = Table("p", "t; MB/s", rows, 1e6, "limit", {"ours": 0.85})
    assert files.table_text(table).splitlines() == [
        "p, t; MB/s",
        "",
        "       write  of it  read  of it   aim",
        "limit     10   1.00    40   1.00",
        "ours       8  0.80*    39   0.97  0.85",
    ]
    rows = {"one": {"c": [90.0], "s": [80.0]}, "many": {"c": [1000.0], "s": [2000.0]}}
    table = Table("p", "t", rows, aims={"one": 100, "many": 1500}, aims_at=("c",))
    assert files.table_text(table).splitlines()[2:] == [
        "           c      s    aim",
        "one      90*     80    100",
        "many  1,000*  2,000  1,500",
    ]


def test_quotients_have_columns_and_groups_have_heads():
    rows = {"4 KiB": {"a|w": [10.0], "a|r": [20.0], "b|w": [10.6], "b|r": [23.0], "c|w": [1.0]}}
    quotients = [Quotient("b of a|w", "b|w", "a|w", 0.1), Quotient("b of a|r", "b|r", "a|r", 0.1)]
    table = Table("p", "t", rows, quotients=quotients, hidden=("c",))
    assert files.table_text(table).splitlines()[2:] == [
        "        a       b      b of a",
        "        w   r   w   r       w      r",
        "4 KiB  10  20  11  23    1.06  1.15*",
    ]


def test_the_rates_of_a_disk(tmp_path):
    if is_in_memory(tmp_path):
        pytest.skip("there is no direct I/O")
    path = tmp_path / "file"
    path.write_bytes(bytes(3 << 20))
    for operation in ("write", "read"):
        assert direct_rate(path, operation) > 0
        if fio_version():
            assert fio_rate(path, operation, 1 << 20, 1 << 16, 2) > 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rounds", "0"], "--rounds"),
        (["--depth", "0"], "--depth"),
        (["--block-kib", "0"], "--block-kib"),
        (["--access-kib", "100"], "power of 2"),
        (["--mib", "3"], "multiple of 2 MiB"),
        (["--small-mib", "1"], "multiple of 2 MiB"),
        (["--part", "random,walks"], "'walks'"),
        (["--mode", "careless"], "careless"),
        (["--directory", "/nowhere"], "/nowhere"),
        (["--json", "/nowhere/a.json"], "/nowhere/a.json"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(capsys, words, why):
    assert files.main(words) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert why in said.err


def test_all_parts_have_a_test():
    assert list(BENCHMARK) == ["sequential", "sizes", "views", "random", "creates"]
