"""`explain` says before what the report says after: the same blocks, transfers, bytes, buffers."""

from __future__ import annotations

import random
import re

import pytest
from conformance import random_block_bytes, random_case, write
from helpers import Dealt, caught, local_of, ramp

import penstock as ps

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20}
DISKS = [
    ps.Chunks((4, 3)),
    ps.Chunks((4, 4), codec="zstd:1"),
    ps.Chunks((8, 4), subchunks=(2, 4)),
    ps.RowMajor(),
    ps.RowMajor("npy"),
    ps.Distribution("BLOCK,*", (3,)),
]


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in\n{text}"
    return int(found[1])


def bytes_of(words: str) -> float:
    value, unit = words.split()
    return float(value) * UNITS[unit]


def assert_same_numbers(text: str, report: ps.Report, transfers: str) -> None:
    assert number(r"moved as (\d+) blocks", text) == report.blocks
    assert number(rf"(\d+) {transfers} and their answers", text) == report.transfers
    parts = re.findall(rf"server \d+ +(\d+) blocks, (.+?), (\d+) {transfers}", text)
    assert len(parts) == report.servers
    assert sum(int(blocks) for blocks, _, _ in parts) == report.blocks
    assert sum(int(moved) for _, _, moved in parts) == report.transfers
    in_all = re.search(r"blocks of at most .+?, (.+?) in all", text)[1]
    assert bytes_of(in_all) == pytest.approx(report.disk_bytes, rel=0.06)
    buffers = re.search(r"memory +(.+?) of staging", text)[1]
    # A buffer is only made when there is a block for it: what is announced is the most there is.
    assert report.buffer_bytes <= bytes_of(buffers) * 1.06


@pytest.mark.parametrize("disk", DISKS)
@pytest.mark.parametrize("servers", [1, 2, 7])
def test_the_numbers_are_those_of_the_report(place, disk, servers):
    held = Dealt("BLOCK,CYCLIC(2)", (2, 2))

    def main(session):
        u = ps.Array("u", (11, 9), "f8", memory=held.memory(0), disk=disk)
        local = local_of(u, held, session.rank, "C", ramp((11, 9)))
        before = session.explain(place / "u", u)
        assert not list(place.iterdir()), "explain has written something"
        session.barrier()
        report = session.write(place / "u", u, local.view)
        assert_same_numbers(before, report, "memgets")
        text = session.explain(place / "u", u, "read")
        _, back = session.read(place / "u", u), text
        return before, back, report

    texts = ps.run(main, 4, servers=servers, block_bytes=100, sync=False)
    assert len({text for text, _, _ in texts}) == 1, "the same on all ranks"
    text, back, report = texts[0]
    assert "4 clients" in text and f"by {servers} server" in text and "write" in text
    assert "read" in back and number(r"moved as (\d+) blocks", back) == report.blocks
    assert number(r"(\d+) memputs and their answers", back) == report.transfers


@pytest.mark.parametrize("seed", range(12))
def test_of_anything(place, seed):
    chance = random.Random(seed)
    case = random_case(chance, 3, 3)
    block_bytes = random_block_bytes(chance, case)

    def main(session):
        array = case.array(case.source, session.rank)
        text = session.explain(place / "u", array)
        report = write(session, case, place / "u")
        if isinstance(case.source, Dealt):
            assert_same_numbers(text, report, "memgets")
        else:
            assert "boxes" in text  # the others' are not known, and it says so

    ps.run(main, 3, servers=2, block_bytes=block_bytes, sync=False)


def test_it_says_what_is_wrong(place):
    u = ps.Array("u", (4, 4), "f8", disk=ps.Chunks((4,)))
    with ps.Session() as s:
        assert isinstance(caught(lambda: s.explain(place / "u", u)), ps.SchemaError)
        good = u.with_disk(ps.Chunks((4, 4)))
        missing = caught(lambda: s.explain(place / "u", good, "read"))
        assert isinstance(missing, ps.MissingError) and str(place / "u") in str(missing)
        assert isinstance(caught(lambda: s.explain(place / "u", good, "append")), ps.SchemaError)


def test_the_report_says_what_was_done(place):
    u = ps.Array("u", (16, 16), "f8", disk=ps.Chunks((8, 8)))
    with ps.Session(servers=3) as s:
        report = s.write(place / "u", u, ramp((16, 16)))
    assert (report.bytes, report.blocks, report.disk_bytes) == (2048, 4, 2048)
    assert (report.servers, report.transfers) == (3, 4)
    assert 0 < report.seconds < 60 and 0 < report.buffer_bytes <= 3 * 2 * 512
    assert all(word in repr(report) for word in ("Report(", "bytes=2048", "servers=3"))
