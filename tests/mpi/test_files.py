"""Parallel files in an MPI job: every rank is a client, and some have servers."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import penstock as ps

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size


def volume(place: Path, servers: int) -> str:
    """The path of a new volume, which rank 0 makes."""
    path = str(place / f"files-{servers}.vol")
    if rank == 0:
        ps.FileSystem.create(path, servers=servers, capacity=32 << 20).close()
    comm.barrier()
    return path


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_ranks_write_subfiles_and_read_others(place: Path, servers: int) -> None:
    path = volume(place, servers)
    with ps.FileSystem(path, comm, servers=servers) as fs:
        assert (fs.rank, fs.servers) == (rank, servers)
        if rank == 0:
            fs.mkdir("/runs")
            fs.create("/runs/mesh", cells=size, bsu=4096)
        comm.barrier()
        with fs.attach("/runs/mesh", "r+") as f:
            own = f.open(ps.View(hn=size), rank)
            data = np.random.default_rng(rank).integers(0, 255, 300_001, np.uint8)
            assert own.write(data) == data.size
            requests = [own.iwrite_at(data.size + i * 1000, bytes([rank] * 1000)) for i in range(9)]
            assert [request.wait() for request in requests] == [1000] * 9
            comm.barrier()
            other = (rank + 1) % size
            found = f.open(ps.View(hn=size), other).read(400_000)
            expected = np.random.default_rng(other).integers(0, 255, 300_001, np.uint8)
            assert found[:300_001] == expected.tobytes()
            assert found[300_001:] == bytes([other] * 9000)
            comm.barrier()
    with ps.FileSystem(path, comm) as fs, fs.attach("/runs/mesh") as f:
        whole = np.full(size * 309_001 + 5000 * size, 7, np.uint8)
        assert f.open().read_at(0, whole) == size * 309_001
    if rank == 0:
        with ps.FileSystem(path) as fs:
            assert fs.stat("/runs/mesh").bytes == size * 309_001


@pytest.mark.parametrize("servers", [1, 3])
def test_collective_calls(place: Path, servers: int) -> None:
    path = volume(place, servers)
    with ps.FileSystem(path, comm) as fs:
        if rank == 0:
            fs.create("/u", cells=4, bsu=1000)
        comm.barrier()
        with fs.attach("/u", "r+") as f:
            # Rows of BSUs are dealt out to ranks, and read back as one sequence.
            rows = ps.View(vbs=1, vn=size)
            data = np.full(400_000, rank + 1, np.uint8)
            assert f.write_all(rows, rank, data) == data.size
            out = np.zeros(data.size * size // 2, np.uint8)
            assert f.read_all(None, 0, out) == out.size
            expected = np.arange(out.size) // 4000 % size + 1
            assert (out == expected).all()
            with pytest.raises(ps.OverlapError) if size > 1 else pytest.raises(ps.SchemaError):
                f.write_all(None, 0 if size > 1 else 9, data)
            with pytest.raises(ps.SchemaError, match="rank 0"):
                f.write_all(rows, rank if rank else size, data)
            f.checkpoint() if rank == 0 else None
            comm.barrier()


def test_a_shared_pointer(place: Path) -> None:
    path = volume(place, 2)
    with ps.FileSystem(path, comm) as fs:
        if rank == 0:
            fs.create("/log", cells=3, bsu=64)
        comm.barrier()
        with fs.attach("/log", "r+") as f:
            token = comm.bcast(f.open().share() if rank == 0 else None)
            log = f.open(pointer=token)
            for _ in range(20):
                assert log.write(bytes([rank + 1] * 100)) == 100
            comm.barrier()
            found = f.open().read(size * 3000)
            assert len(found) == size * 2000
            records = [found[i : i + 100] for i in range(0, len(found), 100)]
            assert all(record == record[:1] * 100 for record in records)
            assert sorted(record[0] for record in records) == sorted(20 * list(range(1, size + 1)))


@pytest.mark.skipif(size < 2, reason="a dedicated server takes a rank")
def test_dedicated_servers(place: Path) -> None:
    path = volume(place, 1)
    fs = ps.FileSystem(path, comm, dedicated=True)
    if fs.rank is None:
        with pytest.raises(ps.SchemaError, match="closed"):
            fs.list()
    if fs.rank == 0:
        fs.create("/f", cells=1)
        with fs.attach("/f", "r+") as f:
            assert f.open().write(b"dedicated") == 9
            assert f.open().read(100) == b"dedicated"
    fs.close()
    # A server's FileSystem is made when the clients have closed theirs.
    ranks = comm.allgather(fs.rank)
    assert ranks.count(None) == 1
    assert [found for found in ranks if found is not None] == list(range(size - 1))


@pytest.mark.skipif(size < 2, reason="a dedicated server takes a rank")
def test_dedicated_servers_save_and_end_when_all_clients_have_left(place: Path) -> None:
    path = volume(place, 1)
    is_server = False
    try:
        with ps.FileSystem(path, comm, dedicated=True) as fs:
            if fs.rank == 0:
                fs.create("/f", cells=1)
                with fs.attach("/f", "w") as f:
                    f.open().write(b"written, not saved")
            raise ZeroDivisionError("client")
    except ZeroDivisionError:
        pass
    except ps.PeerError as error:
        is_server = True
        assert "all clients have left" in str(error)
    assert comm.allgather(is_server).count(True) == 1
    with ps.FileSystem(path, comm) as fs, fs.attach("/f") as f:
        assert f.open().read(100) == b"written, not saved"


@pytest.mark.skipif(size < 2, reason="one rank leaves others")
@pytest.mark.parametrize("way", ["raises", "drops"])
def test_one_who_leaves_is_named(place: Path, way: str) -> None:
    path = volume(place, 1)
    fs = ps.FileSystem(path, comm)
    if rank == size - 1:
        if way == "raises":
            with pytest.raises(ZeroDivisionError), fs:
                raise ZeroDivisionError("by chance")
        del fs
    else:
        with pytest.raises(ps.PeerError) as raised:
            fs.close()
        assert raised.value.rank == size - 1
        why = "ZeroDivisionError: by chance" if way == "raises" else "without closing"
        assert why in str(raised.value)
    comm.barrier()
    with ps.FileSystem(path, comm) as fs:
        assert fs.list() == []


def test_errors_are_those_of_all_ranks(place: Path) -> None:
    with pytest.raises(ps.MissingError):
        ps.FileSystem(place / "none.vol", comm)
    path = volume(place, 2)
    with pytest.raises(ps.SchemaError, match="2 servers"):
        ps.FileSystem(path, comm, servers=3)
    if size > 1:
        with pytest.raises(ps.MismatchError):
            ps.FileSystem(path, comm, cache_bytes=1 << 20 if rank else 2 << 20)
        with pytest.raises(ps.MismatchError, match="rank 0 gives a URL, rank 1 a path"):
            ps.FileSystem(path if rank else "unix:///nobody.sock", comm)
    fs = ps.FileSystem(path, comm)
    if rank == 0:
        with pytest.raises(ps.BusyError):
            ps.FileSystem(path)
    comm.barrier()
    fs.close()


def test_attach_together(place: Path) -> None:
    path = volume(place, 2)
    with ps.FileSystem(path, comm) as fs:
        if rank == 0:
            fs.create("/f", cells=size)
        comm.barrier()
        with fs.attach_all("/f", "r+", mode="reckless") as f:
            assert f.open(ps.View(hn=size), rank).write(bytes([rank + 1] * 10)) == 10
            attached = fs.stat("/f").attached
            assert len(attached) == size and attached[0]["reckless"]
            comm.barrier()
        comm.barrier()
        assert fs.stat("/f").attached == []
        with pytest.raises(ps.MissingError):
            fs.attach_all("/none")
        if size > 1:
            with pytest.raises(ps.MismatchError, match="rank 1"):
                fs.attach_all("/f" if rank == 1 else "/g")
        with pytest.raises(ps.SchemaError, match=f"rank {size - 1}"):
            fs.attach_all("/f" if rank < size - 1 else "no path")
        comm.barrier()


@pytest.mark.parametrize("order", ["block", "row", "column"])
def test_import_and_export_by_all_ranks(place: Path, order: str) -> None:
    path = volume(place, 3)
    data = np.random.default_rng(5).integers(0, 255, 1_234_567, np.uint8).tobytes()
    view = ps.View(2, 1, 2, 3)
    local, back = place / "local", place / "back"
    if rank == 0:
        local.write_bytes(data)
    comm.barrier()
    with ps.FileSystem(path, comm) as fs:
        how = {"view": view, "subfile": 1, "order": order, "comm": comm}
        if order != "column":
            how["memory_bytes"] = 100_000
        assert fs.import_file(local, "/f", cells=6, bsu=1000, **how) == len(data)
        with fs.attach("/f") as f:
            assert f.open(view, 1, order=order).read(len(data)) == data
        assert fs.export_file("/f", back, **how) == len(data)
        assert back.read_bytes() == data
        comm.barrier()
        with pytest.raises(ps.ExistsError):
            fs.export_file("/f", back, **how)
        with pytest.raises(ps.MissingError):
            fs.import_file(place / "none" if rank == size - 1 else local, "/f", **how)
        with pytest.raises(ps.SchemaError, match="order"):
            fs.export_file("/f", back, **{**how, "order": "spiral" if rank == 0 else order})
        assert sorted(one.name for one in place.glob("*.part")) == []
        comm.barrier()
    with ps.FileSystem(path, comm) as fs:  # one rank, and what is saved
        if rank == size - 1:
            how = {**how, "comm": None, "overwrite": True}
            assert fs.export_file("/f", back, **how) == len(data)
            assert back.read_bytes() == data
        comm.barrier()


@pytest.mark.skipif(size < 2, reason="others hear of it")
@pytest.mark.parametrize("call", ["write", "read", "sync", "checkpoint", "rename", "write_all"])
def test_a_rank_that_leaves_ends_the_calls_of_all(place: Path, call: str) -> None:
    """Its server goes with it: nobody waits for what that server will never do."""
    path = volume(place, size)

    def use(fs: ps.FileSystem) -> None:
        if rank == 0:
            fs.create("/f", cells=2 * size, bsu=100, base=0)
        comm.barrier()
        with fs.attach("/f", "r+") as f:
            s, own = f.open(), f.open(ps.View(hn=2 * size), rank)
            for turn in range(1_000_000):
                if rank == size - 1 and turn == 20:
                    raise InterruptedError("told to leave")
                if call == "write":
                    s.write_at(0, bytes(4000))
                elif call == "read":
                    s.read(4000, at=0)
                elif call == "sync":
                    own.write(bytes(500))
                    fs.sync()
                elif call == "checkpoint":
                    f.checkpoint()
                elif call == "rename":
                    fs.mkdir(f"/{rank}-{turn}")
                    fs.rename(f"/{rank}-{turn}", f"/{rank}-{turn}-")
                else:
                    f.write_all(ps.View(vn=size), rank, bytes(4000))

    kind = InterruptedError if rank == size - 1 else ps.PeerError
    with pytest.raises(kind), ps.FileSystem(path, comm) as fs:
        use(fs)
    comm.barrier()
