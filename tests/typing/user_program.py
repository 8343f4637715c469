"""A user's program calls all of Penstock's public interface, as the README and the documents do.

`make lint` checks it with `mypy --strict`, which must find nothing. `tests/test_typing.py` runs it
on threads, and `tests/mpi/test_typing.py` over MPI.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import xarray

import penstock as ps

if TYPE_CHECKING:
    from mpi4py import MPI

ROWS, COLUMNS = 24, 8


def block_array(ranks: int) -> ps.Array:
    """An array in blocks of rows, with ghost cells, and every parameter given."""
    return ps.Array(
        "u",
        shape=(ROWS, COLUMNS),
        dtype="f8",
        memory=ps.Distribution("BLOCK,*", mesh=(ranks,), halo=((1, 1), 0)),
        disk=ps.Chunks((8, 8), subchunks=(4, 4), codec="zstd:3"),
        dims=("y", "x"),
        attrs={"long_name": "temperature", "scale": np.float64(2)},
        fill_value=0.0,
    )


def arrays_of_lists(ranks: int) -> list[ps.Array]:
    """Arrays whose shapes, meshes and names are lists, with all kinds of dtypes."""
    dtypes: list[npt.DTypeLike] = ["f4", np.float64, np.dtype("<i4"), float, "?", np.complex64]
    return [
        ps.Array(
            f"a{number}",
            [ROWS, COLUMNS],
            dtype,
            ps.Distribution("CYCLIC(2),*", [ranks], halo=[0, [1, 1]]),
            ps.Chunks([8, 8]),
            ["y", "x"],
        )
        for number, dtype in enumerate(dtypes)
    ]


def main(s: ps.Session, place: Path) -> float:
    """What each rank does."""
    write_and_read(s, place)
    regions(s, place)
    boxes(s, place)
    forms(s, place)
    split_collectives(s, place)
    groups(s, place)
    rows(s, place)
    errors(s, place)
    stores(s, place)
    return float(s.rank)


def write_and_read(s: ps.Session, place: Path) -> None:
    u = block_array(s.size)
    local = np.full(u.local_shape(s.rank), float(s.rank))
    report = s.write(place / "run.zarr", u, local, attrs={"units": "K"})
    assert report.bytes == ROWS * COLUMNS * 8 and report.seconds > 0
    assert report.servers == s.servers and report.blocks > 0 and report.disk_bytes >= report.bytes
    assert report.transfers > 0 and report.buffer_bytes > 0
    back = s.read(place / "run.zarr", u)
    assert back.shape == local.shape and float(back.sum()) >= 0
    into: npt.NDArray[np.float64] = np.zeros(u.local_shape(s.rank))
    same: npt.NDArray[np.float64] = s.read(place / "run.zarr", u, into)
    assert same is into

    opened = s.open(str(place / "run.zarr"), "u")
    assert opened.attrs["units"] == "K" and opened.dims == ("y", "x")
    columns = opened.with_memory(ps.Distribution("*,CYCLIC", mesh=[s.size]))
    share = s.read(place / "run.zarr", columns, strategy="two-phase")
    for part in columns.local_slices(s.rank):
        indices = np.arange(ROWS)[part] if isinstance(part, slice) else part
        assert indices.ndim == 1
    assert share.shape == columns.local_shape(s.rank) == columns.local_shapes(s.rank)[0]
    assert "blocks" in s.explain(place / "run.zarr", u)
    assert s.explain(place / "run.zarr", u, "read", strategy="caching")
    for array in arrays_of_lists(s.size):
        s.write(place / "lists.zarr", array, np.zeros(array.local_shape(s.rank), array.dtype))


def regions(s: ps.Session, place: Path) -> None:
    u = s.open(place / "run.zarr", "u")
    row = np.full((1, COLUMNS), float(s.rank))
    s.write(place / "run.zarr", u, row, region=slice(s.rank, s.rank + 1))
    corner: np.ndarray = s.read(place / "run.zarr", u, region=(slice(0, 8), slice(0, 4)))
    last: np.ndarray = s.read(place / "run.zarr", u, region=-1)
    two: list[np.ndarray] = s.read(
        place / "run.zarr", u, region=[slice(0, 2), ps.Boxes((0, 0), (1, 1))]
    )
    assert corner.shape == (8, 4) and last.shape == (1, COLUMNS) and len(two) == 2
    point = s.read(place / "run.zarr", u, region=ps.Boxes(start=[0, 0], shape=[1, 1]))
    assert point[0, 0] == 0


def boxes(s: ps.Session, place: Path) -> None:
    one = ps.Array("w", (s.size, 4), "f8", ps.Boxes(start=(s.rank, 0), shape=(1, 4), halo=0))
    s.write(place / "boxes.zarr", one, xarray.DataArray(np.ones((1, 4))))
    s.write(place / "boxes.zarr", one, np.ones((1, 4)).data)
    mine = [ps.Boxes((s.rank, 0), (1, 1)), ps.Boxes((s.rank, 3), (1, 1))]
    level = ps.Array("level", (s.size, 4), "f4", mine, fill_value=np.nan)
    s.write(place / "level.zarr", level, [np.zeros((1, 1), "f4"), np.ones((1, 1), "f4")])
    held = s.read(place / "level.zarr", level)
    assert len(held) == 2 and held[1][0, 0] == 1


def forms(s: ps.Session, place: Path) -> None:
    memory = ps.Distribution("BLOCK,*", (s.size,))
    u = ps.Array("u", (ROWS, COLUMNS), "i2", memory, disk=ps.RowMajor("npy"))
    local = np.ones(u.local_shape(s.rank), "i2")
    s.write(place / "u.npy", u, local)
    s.write(place / "u.raw", u.with_disk(ps.RowMajor()), local)
    s.write(place / "parts", u.with_disk(ps.Distribution("BLOCK,*", mesh=(2,))), local)
    s.write(place / "natural.zarr", u.with_disk(None), local)


def split_collectives(s: ps.Session, place: Path) -> None:
    u = block_array(s.size)
    local = np.ones(u.local_shape(s.rank))
    written: ps.Split[ps.Report] = s.begin_write(place / "split.zarr", u, local, copy=True)
    local[...] = 2
    written.test()
    assert written.end().bytes == ROWS * COLUMNS * 8
    reading = s.begin_read(place / "split.zarr", u, np.zeros_like(local), background="disk")
    into: npt.NDArray[np.float64] = reading.end()
    row: ps.Split[np.ndarray] = s.begin_read(place / "split.zarr", u, region=0)
    assert row.end().shape == (1, COLUMNS) and into.shape == local.shape


def groups(s: ps.Session, place: Path) -> None:
    u = block_array(s.size)
    v = ps.Array("v", (ROWS, COLUMNS), np.float32, ps.Distribution("BLOCK,*", (s.size,)))
    flow = ps.Group(
        "flow",
        [u, v.with_disk(ps.Chunks((ROWS, COLUMNS)))],
        place / "flow.zarr",
        keep=2,
        attrs={"title": "a flow"},
        coords={
            "y": np.arange(ROWS),
            "lat": ("lat", np.linspace(-90, 90, ROWS), {"units": "degrees_north"}),
            "lon": (("lon",), [0.0, 1.0]),
            "station": ("station", ["Uppsala", "Lund"]),
        },
        time_attrs={"units": "days since 2000-01-01", "calendar": "standard"},
        time_chunk=4,
    )
    values = {"u": np.ones(u.local_shape(s.rank)), "v": np.ones(v.local_shape(s.rank), "f4")}
    state = s.restart(flow)
    for step in range(state.step + 1 if state else 0, 4):
        report: ps.Report = s.timestep(flow, values, time=0.5 * step)
        if step % 2:
            s.checkpoint(flow, values, step=step, attrs={"seed": np.int64(42), "count": 3})
    assert report.seconds > 0
    later = flow.with_memory({"u": ps.Distribution("*,BLOCK", mesh=(s.size,))})
    state = s.restart(later, step=3)
    assert state is not None and (state.step, state.time, state.timesteps) == (3, 1.5, 4)
    assert state.attrs == {"seed": 42, "count": 3} and set(state) == set(flow) == {"u", "v"}
    assert state["u"].shape == later["u"].local_shape(s.rank) and len(flow) == 2


def rows(s: ps.Session, place: Path) -> None:
    position = ps.Array("px", (None, 3), "f8", dims=("particle", "axis"), disk=ps.Chunks((100, 3)))
    mass = ps.Array("mass", shape=(None,), dtype="f4", dims=["particle"], disk=ps.Chunks(100))
    cloud = ps.Group("cloud", (position, mass), str(place / "cloud.zarr"))
    values = {"px": np.ones((s.rank, 3)), "mass": np.ones(s.rank, "f4")}
    s.timestep(cloud, values)
    s.checkpoint(cloud, values)
    state = s.restart(cloud)
    assert state is not None and state["px"].ndim == 2


def errors(s: ps.Session, place: Path) -> None:
    try:
        s.read(place / "run.zarr", ps.Array("pressure", (ROWS, COLUMNS), "f8"))
    except ps.MissingError as error:
        path: str | None = error.path
        assert error.kind == "Missing" and path is not None and path.endswith("run.zarr")
        assert error.cause in str(error) and isinstance(error, FileNotFoundError)
        assert error.bytes is None and error.doing
    try:
        s.write(place / "run.zarr", block_array(s.size + 1), np.zeros(3))
    except (ps.SchemaError, ps.MismatchError, ps.OverlapError, ps.UnsupportedError) as wrong:
        assert isinstance(wrong, ps.Error)
    try:
        s.barrier()
    except (ps.FullError, ps.BusyError, ps.DamagedError, ps.IoError, ps.ReadOnlyError):
        raise
    except (ps.PeerError, ps.OutOfBoundsError) as error:
        raise RuntimeError("the session is over") from error


def heard(done: int, everything: int) -> None:
    """Hear how far a copy is."""
    assert 0 <= done <= everything


def stores(s: ps.Session, place: Path) -> None:
    report = s.copy(place / "flow.zarr", place / "coarse.zarr", chunks={"y": -1}, progress=heard)
    assert report.bytes > 0 and report.seconds > 0
    if s.rank == 0:
        alone(place)
    s.barrier()


def alone(place: Path) -> None:
    """What one process does with stores."""
    copied: ps.CopyReport = ps.copy(
        place / "run.zarr",
        str(place / "thin.zarr"),
        arrays=["u"],
        name="thin",
        chunks=(1, None),
        codec="gzip:1",
        memory=1 << 24,
        overwrite=True,
        ranks=2,
        sync=False,
        progress=heard,
    )
    assert copied.arrays == ("u",) and copied.as_they_are == () and copied.read_bytes > 0
    assert copied.slabs >= copied.slabs_found
    checked: ps.Verified = ps.verify(place / "flow.zarr", progress=heard)
    assert checked.is_well and checked.timesteps == 4, checked.verdict
    (unread,) = [(path, error.kind) for path, error in checked.unread]
    assert unread == ("station", "Unsupported")
    assert not [error.path for error in checked.damages]
    lines: list[str] = ps.repair(place / "flow.zarr")
    assert all(isinstance(line, str) for line in lines)
    nodes: list[ps.Node] = ps.ls(place / "run.zarr")
    (node,) = [node for node in nodes if node.array is not None]
    assert (node.path, node.kind, node.error) == ("u", "array", None) and "float64" in str(node)
    assert "u" in ps.tree(place / "run.zarr")
    assert ps.info(place / "run.zarr")["arrays"][0]["path"] == "u"


def options(place: Path) -> None:
    """Sessions that are set up otherwise than by default."""
    faults = ps.testing.Faults(
        bytes_per_second=1e9,
        faults=[ps.testing.Fault("write", nth=1000, error="ENOSPC")],
        null=False,
    )
    chosen = ps.SessionOptions(
        root=place,
        transport="shared",
        servers=1,
        dedicated=True,
        sync=False,
        block_bytes=1 << 20,
        strategy="two-phase:5",
        background_bytes=1 << 20,
        cache_bytes=1 << 20,
        direct=False,
        faults=faults,
        buffers=ps.testing.Buffers(blocks_per_client=2, staging_bytes=1 << 16),
    )
    u = ps.Array("u", (4,), "i8")
    with ps.Session(options=chosen, strategy="disk-directed") as s:
        assert (s.rank, s.size, s.is_client, s.options.servers) == (0, 1, True, 1)
        s.write("relative.zarr", u, np.arange(4))
    assert ps.Session(servers=2).open(place / "relative.zarr").shape == (4,)
    sums: list[int] = ps.run(lambda s: s.size, ranks=3, options=chosen, dedicated=False)
    assert sums == [3, 3, 3]


def files(place: Path, comm: MPI.Intracomm | None = None) -> None:
    """Parallel files, by one process or by all ranks of `comm`."""
    volume = place / "files.vol"
    if comm is None or comm.rank == 0:
        ps.FileSystem.create(
            volume, servers=2, block_bytes=4096, capacity=1 << 20, disks=()
        ).close()
        (place / "local").write_bytes(bytes(1000))
    if comm is not None:
        comm.barrier()
    with ps.FileSystem(
        volume, comm, servers=2, dedicated=False, cache_bytes=1 << 20, direct=False
    ) as fs:
        rank: int | None = fs.rank
        assert rank is not None and fs.clients >= 1
        view, own = ps.View(vbs=1, vn=1, hbs=1, hn=fs.clients), rank
        assert view.subfiles == fs.clients
        if rank == 0:
            fs.mkdir("/runs", mode=0o700)
            fs.create("/runs/mesh", cells=fs.clients, bsu=8, base=None, mode=0o640)
        moved = fs.import_file(place / "local", "/other", cells=4, bsu=10, comm=comm)
        assert moved == 1000 == fs.export_file("/other", place / "back", comm=comm)
        with fs.attach_all("/runs/mesh", "r+", mode="cautious") as f:
            s: ps.Subfile = f.open(view, own, order="row")
            values, found = np.arange(100.0), np.empty(100)
            assert s.write(values, at=0) == s.write_at(0, values) == 800
            request: ps.Request = s.iwrite_at(0, values)
            request.test()
            assert request.wait() == 800 == s.read_at(0, found)
            assert np.array_equal(found, values)
            assert s.iread_at(0, found).wait() == len(s.read(800, at=0))
            assert f.write_all(view, own, values) == f.read_all(view, own, found, order="row")
            s.prefetch(0, 800)
            s.flush(0, 800)
            s.sync()
            shared: ps.Pointer = s.share()
            assert f.open(view, own, pointer=shared).read(0) == b""
            assert "messages" in s.explain(8, at=8, operation="write")
            if rank == 0:
                f.checkpoint()
                assert f.open(view, 0, version="checkpoint").read(8) == bytes(8)
                f.rollback()
        if rank == 0:
            known: ps.FileStat = fs.stat("/runs/mesh")
            assert (known.cells, known.bsu, known.mode) == (fs.clients, 8, 0o640)
            fs.chmod("/runs/mesh", 0o600)
            fs.resize("/runs/mesh", 16)
            fs.rename("/runs", "/old")
            fs.remove("/old/mesh")
            names: list[str] = fs.list("/")
            assert names == ["old/", "other"]
            fs.quota(77, 1 << 20)
            used: ps.Usage = fs.usage(77)
            assert used.quota == 1 << 20
            fs.sync()


def under_mpi(place: Path) -> None:
    """The same program over MPI."""
    from mpi4py import MPI

    with ps.Session(MPI.COMM_WORLD, sync=False) as s:
        if s.is_client:
            main(s, place)
    files(place, MPI.COMM_WORLD)


if __name__ == "__main__":
    print(f"penstock {ps.__version__}")
    under_mpi(Path(sys.argv[1]))
