"""Arrays that stay open: any rank reads and writes any part, without the others."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import penstock as ps

FORMS = {
    "chunks": ps.Chunks((5, 4)),
    "codec": ps.Chunks((5, 4), codec="zstd:1"),
    "shards": ps.Chunks((10, 8), subchunks=(5, 4), codec="zstd:1"),
    "npy": ps.RowMajor("npy"),
    "parts": ps.Distribution("BLOCK,*", mesh=(2,)),
    "natural": None,
}
SHAPE = (23, 17)


def stored(path, form, dtype="f8"):
    """An array of known elements, stored in this form, and its elements."""
    name = "u.npy" if form == "npy" else "u.zarr"
    values = np.arange(np.prod(SHAPE)).reshape(SHAPE).astype(dtype)
    memory = ps.Distribution("BLOCK,*", mesh=(1,))
    array = ps.Array("u", SHAPE, dtype, memory=memory, disk=FORMS[form])
    with ps.Session() as s:
        s.write(path / name, array, values)
    return path / name, values


def random_region(rng):
    starts = [int(rng.integers(0, extent)) for extent in SHAPE]
    ends = [
        int(rng.integers(start, extent + 1)) for start, extent in zip(starts, SHAPE, strict=True)
    ]
    return tuple(slice(start, end) for start, end in zip(starts, ends, strict=True))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dedicated", [False, True])
def test_a_session_of_one_rank_reads_and_writes_any_part(tmp_path, form, dedicated):
    path, model = stored(tmp_path, form)
    rng = np.random.default_rng(7)
    with ps.Session(servers=3, dedicated=dedicated, cache_bytes=2000) as s:
        with s.open(path, mode="r+") as a:
            assert (a.name, a.shape, a.dtype) == ("u", SHAPE, np.dtype("f8"))
            for _ in range(60):
                region = random_region(rng)
                if rng.random() < 0.5:
                    model[region] = rng.random(model[region].shape)
                    a.write(region, model[region])
                assert np.array_equal(a.read(region), model[region])
            a.flush()
            back = s.read(path, s.open(path))
            assert np.array_equal(back, model)
        with s.open(path, mode="r") as a:
            assert np.array_equal(a.read(), model)
            with pytest.raises(ps.ReadOnlyError, match="open it with mode"):
                a.write((slice(0, 1), 0), np.zeros((1, 1)))


@pytest.mark.parametrize("form", ["chunks", "codec", "npy"])
@pytest.mark.parametrize("dedicated", [False, True])
def test_ranks_move_parts_without_one_another(tmp_path, form, dedicated):
    path, model = stored(tmp_path, form)

    def program(s):
        with s.open(path, mode="r+") as a:
            # Each rank changes rows of its own, at its own pace; blocks are shared.
            rng = np.random.default_rng(s.rank)
            rows = range(s.rank, SHAPE[0], s.size)
            mine = {row: model[row].copy() for row in rows}
            for _ in range(40 + 20 * s.rank):
                row = int(rng.choice(list(rows)))
                begin = int(rng.integers(0, SHAPE[1]))
                values = rng.random(SHAPE[1] - begin)
                mine[row][begin:] = values
                a.write((row, slice(begin, None)), values[None])
                other = int(rng.choice(list(rows)))
                assert np.array_equal(a.read(other), mine[other][None])
            s.barrier()
            # Others' writes are seen as soon as they have returned.
            whole = a.read()
        return mine, whole

    results = ps.run(program, 3, servers=2, dedicated=dedicated, cache_bytes=500)
    for mine, _ in results:
        for row, values in mine.items():
            model[row] = values
    for _, whole in results:
        assert np.array_equal(whole, model)
    with ps.Session() as s:
        assert np.array_equal(s.read(path, s.open(path)), model)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dedicated", [False, True])
def test_all_ranks_move_parts_together(tmp_path, form, dedicated):
    path, _model = stored(tmp_path, form)

    def program(s):
        rows = slice(s.rank * 8, min(s.rank * 8 + 8, SHAPE[0]))
        with s.open(path, mode="r+") as a:
            for step in range(3):
                # What one rank has written alone is seen by all, and the other way round.
                if s.rank == step:
                    a.write((step, slice(0, 5)), np.full((1, 5), -1.0 - step))
                s.barrier()
                new = np.array(a.read_all((rows, slice(3, 9))))
                assert (new[step, :2] == -1 - step).all() or s.rank > 0
                new += 1000 * (step + 1)
                report = a.write_all((rows, slice(3, 9)), new)
                assert report.bytes == new.nbytes
                assert np.array_equal(a.read((rows, slice(3, 9))), new)
                s.barrier()
            column = ps.Strided(s.rank, 1, [(SHAPE[0], SHAPE[1])])
            a.write_all(column, np.full(SHAPE[0], 10.0 + s.rank))
            assert (a.read((slice(None), s.rank)) == 10 + s.rank).all()
            mine = [ps.Boxes((s.rank, 0), (1, 2)), ps.Boxes((20, 5 + s.rank), (3, 1))]
            first, second = a.read_all(mine)
            assert (first == [[10, 11]]).all()
            assert np.array_equal(second, a.read(mine[1]))
            whole = a.read_all()
            with pytest.raises(ps.OverlapError):
                a.write_all((0, slice(0, 2)), np.zeros((1, 2)))
            with pytest.raises(ps.SchemaError):
                a.read_all((0, slice(0, 2)), np.zeros(5 if s.rank == 1 else (1, 2)))
            assert np.array_equal(a.read(), whole)
        with pytest.raises(ps.SchemaError, match="closed"):
            a.read_all()
        with s.open(path, mode="r") as a:
            assert np.array_equal(a.read_all(), whole)
            with pytest.raises(ps.ReadOnlyError, match="open it with mode"):
                a.write_all(slice(0, 0), np.zeros((0, SHAPE[1])))
        return whole

    results = ps.run(program, 3, servers=2, dedicated=dedicated, cache_bytes=1500)
    for whole in results:
        assert np.array_equal(whole, results[0])
    with ps.Session() as s:
        assert np.array_equal(s.read(path, s.open(path)), results[0])


def test_nobody_else_writes_an_array_that_is_open_to_be_changed(tmp_path):
    path, model = stored(tmp_path, "chunks")
    with ps.Session() as s, ps.Session() as other, s.open(path, mode="r+") as a:
        described = s.open(path)
        for session in (s, other):
            with pytest.raises(ps.BusyError):
                session.write(path, described, model)
        with pytest.raises(ps.BusyError):
            other.open(path, mode="r+")
        a.write(0, np.ones((1, SHAPE[1])))
        a.close()
        with other.open(path, mode="r") as b:
            assert np.array_equal(b.read(0), np.ones((1, SHAPE[1])))
        s.write(path, described, model)


def test_an_array_left_open_is_closed_with_its_session(tmp_path):
    path, model = stored(tmp_path, "codec")
    with ps.Session() as s:
        a = s.open(path, mode="r+")
        a.write((slice(3, 9), slice(2, 5)), np.full((6, 3), 9.0))
    model[3:9, 2:5] = 9
    with ps.Session() as s:
        assert np.array_equal(s.read(path, s.open(path)), model)
        b = s.open(path, mode="r")
        b.close()
        b.close()
        with pytest.raises(ps.SchemaError, match="closed"):
            b.read()


def test_what_does_not_fit_is_an_error_of_one_rank(tmp_path):
    path, model = stored(tmp_path, "chunks")
    with ps.Session() as s, s.open(path, mode="r+") as a:
        for region, local, error in [
            ((slice(0, 2), 0), np.zeros((2, 2)), ps.SchemaError),
            ((slice(0, 2), 0), np.zeros((2, 1), "f4"), ps.SchemaError),
            ((slice(0, 2), 40), np.zeros((2, 1)), IndexError),
            ((slice(0, 4, 2), 0), np.zeros((2, 1)), ps.SchemaError),
        ]:
            with pytest.raises(error):
                a.write(region, local)
        with pytest.raises(ps.SchemaError):
            a.read((0, 0), out=np.zeros((1, 2)))
        with pytest.raises(ps.Error):
            a.read(ps.Boxes((20, 0), (10, 2)))
        assert np.array_equal(a.read(), model)
        out = np.zeros((SHAPE[1], SHAPE[0])).T
        assert a.read((), out=out) is out
        assert np.array_equal(out, model)
        assert a.read((slice(0, 0), slice(None))).shape == (0, SHAPE[1])


def test_opening_fails_alike_on_all_ranks(tmp_path):
    path, _ = stored(tmp_path, "chunks")

    def program(s):
        with pytest.raises(ps.MissingError) as missing:
            s.open(path, "v", mode="r")
        with pytest.raises(ps.MismatchError, match="mode"):
            s.open(path, mode="r" if s.rank else "r+")
        with pytest.raises(ps.SchemaError, match="no mode"):
            s.open(path, mode="w" if s.rank == 1 else "r")
        return str(missing.value)

    assert len(set(ps.run(program, 2))) == 1


@pytest.mark.parametrize("dedicated", [False, True])
def test_a_rank_that_leaves_ends_the_requests_of_the_others(tmp_path, dedicated):
    """Each gets an error that says why, and none waits for ever."""
    path, _ = stored(tmp_path, "chunks")
    heard = []

    def program(s):
        a = s.open(path, mode="r+")
        if s.rank == 1:
            a.read(3)
            raise ZeroDivisionError("of rank 1")
        with pytest.raises(ps.PeerError, match="of rank 1") as left:
            while True:
                a.write(s.rank, np.zeros((1, SHAPE[1])))
        heard.append(left.value.rank)
        raise left.value

    with pytest.raises((ps.PeerError, ZeroDivisionError)):
        ps.run(program, 3, servers=2, dedicated=dedicated)
    assert heard == [1, 1]
    # Nobody keeps the array from others.
    with ps.Session() as s, s.open(path, mode="r+") as a:
        a.write(0, np.ones((1, SHAPE[1])))


def test_an_array_is_described_whatever_its_session_does(tmp_path):
    """That is no call of the session: another thread may make it, and also when it is closed."""
    with ps.Session() as session:
        session.write(tmp_path / "u.zarr", ps.Array("u", (3, 4), "f8"), np.zeros((3, 4)))
        with ThreadPoolExecutor() as threads:
            described = threads.submit(session.open, tmp_path / "u.zarr", "u")
            assert described.result().shape == (3, 4)
    assert session.open(tmp_path / "u.zarr", "u").shape == (3, 4)


@pytest.mark.parametrize("form", FORMS)
def test_explain_says_what_a_request_moves(tmp_path, form):
    path, _ = stored(tmp_path, form)
    with ps.Session(servers=3) as s, s.open(path, mode="r+") as a:
        text = a.explain("read", (slice(3, 13), slice(2, 9)))
        assert text.startswith("read of 560 bytes of 'u' by this rank alone: ")
        servers = re.findall(
            r"^  server (\d): (\d+) bytes in (\d+) blocks of (\d+) bytes", text, re.M
        )
        assert sum(int(moved) for _, moved, _, _ in servers) == 560
        blocks = sum(int(count) for _, _, count, _ in servers)
        requests = int(re.search(r"(\d+) requests, \1 answers", text)[1])
        assert requests == len(servers) and f"{2 * requests} in all" in text
        if form in ("chunks", "codec", "shards"):
            assert blocks == 3 * 3, "rows 3 to 12 of chunks of 5, columns 2 to 8 of chunks of 4"


def test_explain_refuses_what_the_move_would_refuse(tmp_path):
    path, _ = stored(tmp_path, "chunks")
    with ps.Session() as s, s.open(path, mode="r") as a:
        assert "in all" in a.explain()
        with pytest.raises(ps.ReadOnlyError, match="open it with mode"):
            a.explain("write")
        with pytest.raises(ps.SchemaError, match="operation"):
            a.explain("move")
        with pytest.raises(ps.SchemaError):
            a.explain("read", ps.Runs([SHAPE[0] * SHAPE[1]], 1))
    with pytest.raises(ps.SchemaError, match="closed"):
        a.explain()
