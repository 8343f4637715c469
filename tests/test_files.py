"""Parallel files in one process: views, pointers, checkpoints, space and errors, beside a model."""

from __future__ import annotations

import array
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps

BLOCK = 4096
CAPACITY = 1 << 20
ORDERS = ("block", "row", "column")


@pytest.fixture(params=[1, 3], ids=["1 server", "3 servers"])
def servers(request: pytest.FixtureRequest) -> int:
    return request.param


def make(path: Path, servers: int) -> ps.FileSystem:
    return ps.FileSystem.create(path, servers=servers, block_bytes=BLOCK, capacity=CAPACITY)


@pytest.fixture
def fs(place: Path, servers: int) -> Iterator[ps.FileSystem]:
    with make(place / "v", servers) as fs:
        yield fs


class Model:
    """A file by the equations of section 3.2 of the paper, BSU by BSU."""

    def __init__(self, cells: int, bsu: int) -> None:
        self.count, self.bsu = cells, bsu
        self.cells = [bytearray() for _ in range(cells)]
        self.kept: list[bytearray] | None = None

    def numbers(self, view: ps.View, order: str, i: int, j: int) -> tuple[int, int]:
        """The subfile of BSU `j` of cell `i`, and its number there."""
        width, height = view.hbs * view.hn, view.vbs * view.vn
        groups = -(-self.count // width)
        subfile = i % width // view.hbs + j % height // view.vbs * view.hn
        if order == "row":
            row = j // height * view.vbs + j % view.vbs
            column = i // width * view.hbs + i % view.hbs
            return subfile, row * groups * view.hbs + column
        block = j // height * groups + i // width
        within = i % view.hbs * view.vbs + j % view.vbs
        return subfile, block * view.vbs * view.hbs + within

    def places(
        self, view: ps.View, subfile: int, order: str, offset: int, count: int
    ) -> list[tuple[int, int]]:
        """The cell and the offset in it of each byte of an access."""
        width, height = view.hbs * view.hn, view.vbs * view.vn
        rows = ((offset + count) // self.bsu + 1) * height
        found: dict[int, tuple[int, int]] = {}
        for i in range(-(-self.count // width) * width):
            for j in range(rows):
                owner, number = self.numbers(view, order, i, j)
                if owner == subfile:
                    found[number] = (i, j)
        places = []
        for byte in range(offset, offset + count):
            i, j = found[byte // self.bsu]
            places.append((i, j * self.bsu + byte % self.bsu))
        return sorted(places) if order == "column" else places

    def write(self, places: list[tuple[int, int]], data: bytes) -> int:
        moved = 0
        for (cell, at), byte in zip(places, data, strict=True):
            if cell < self.count:
                content = self.cells[cell]
                content.extend(bytes(max(0, at + 1 - len(content))))
                content[at] = byte
                moved += 1
        return moved

    def read(self, places: list[tuple[int, int]], out: bytearray) -> int:
        moved = 0
        for n, (cell, at) in enumerate(places):
            if cell < self.count and at < len(self.cells[cell]):
                out[n] = self.cells[cell][at]
                moved += 1
        return moved


small = st.integers(1, 3)
accesses = st.lists(
    st.tuples(
        st.sampled_from(["write", "read", "checkpoint", "rollback", "resize"]),
        st.builds(ps.View, small, small, small, small),
        st.integers(0, 8),
        st.sampled_from(ORDERS),
        st.integers(0, 60),
        st.integers(0, 60),
    ),
    max_size=12,
)


@given(cells=st.integers(1, 5), bsu=st.integers(1, 9), steps=accesses)
def test_any_program_does_what_the_model_does(
    shared_volumes: list[ps.FileSystem], cells: int, bsu: int, steps: list[tuple]
) -> None:
    for fs in shared_volumes:
        model = Model(cells, bsu)
        fs.create("/f", cells=cells, bsu=bsu)
        with fs.attach("/f", "r+") as f:
            for nth, (what, view, subfile, order, offset, count) in enumerate(steps):
                if what == "checkpoint":
                    f.checkpoint()
                    model.kept = [bytearray(cell) for cell in model.cells]
                elif what == "rollback" and model.kept is not None:
                    f.rollback()
                    model.cells = [bytearray(cell) for cell in model.kept]
                elif what == "resize":
                    fs.resize("/f", count)
                    model.cells = [cell[:count].ljust(count, b"\0") for cell in model.cells]
                elif what in ("write", "read"):
                    subfile %= view.subfiles
                    s = f.open(view, subfile, order=order)
                    places = model.places(view, subfile, order, offset, count)
                    if what == "write":
                        data = bytes((nth * 40 + n) % 256 for n in range(count))
                        assert s.write_at(offset, data) == model.write(places, data)
                    out, expected = bytearray(b"\xee" * count), bytearray(b"\xee" * count)
                    assert s.read_at(offset, out) == model.read(places, expected)
                    assert out == expected
            assert fs.stat("/f").bytes == sum(map(len, model.cells))
        fs.remove("/f")


@pytest.fixture(scope="module")
def shared_volumes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ps.FileSystem]]:
    """Volumes of 1 and of 3 servers, which tests leave empty."""
    directory = tmp_path_factory.mktemp("volumes")
    volumes = [make(directory / f"v{servers}", servers) for servers in (1, 3)]
    yield volumes
    for fs in volumes:
        assert fs.list() == []
        assert fs.usage().used == 0
        fs.close()


@pytest.mark.parametrize("order", ORDERS)
def test_subfiles_are_disjoint_and_are_the_file(fs: ps.FileSystem, order: str) -> None:
    """What every subfile of a view has written, the whole file has."""
    fs.create("/f", cells=7, bsu=10)
    view, rows = ps.View(vbs=2, vn=2, hbs=1, hn=3), 8
    model = Model(7, 10)
    with fs.attach("/f", "r+") as f:
        for subfile in range(view.subfiles):
            count = rows // view.vn * 10 * 3  # 7 cells are 3 groups of 3, ghosts among them
            data = np.full(count, subfile + 1, np.uint8)
            places = model.places(view, subfile, order, 0, count)
            moved = f.open(view, subfile, order=order).write_at(0, data)
            assert moved == model.write(places, bytes(data))
        assert fs.stat("/f").cell_bytes == dict.fromkeys(range(7), rows * 10)
        for cell in range(7):
            column = f.open(ps.View(hn=7), cell).read(rows * 10)
            assert column == bytes(model.cells[cell])


def test_ghost_cells_move_nothing(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=3, bsu=4)
    view = ps.View(hbs=2, hn=2)
    with fs.attach("/f", "r+") as f:
        s = f.open(view, 1)  # cell 2, and a ghost
        assert s.write(b"abcdefgh") == 4
        out = bytearray(b"........")
        assert s.read_at(0, out) == 4
        assert out == b"abcd...."
        assert fs.stat("/f").cell_bytes == {2: 4}


def test_holes_are_zero_before_the_end_of_a_cell_and_nothing_behind_it(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=2, bsu=4)
    with fs.attach("/f", "r+") as f:
        first = f.open(ps.View(hn=2), 0)
        assert first.write_at(3 * BLOCK, b"end") == 3
        out = bytearray(b"\xee" * (3 * BLOCK + 10))
        assert first.read_at(0, out) == 3 * BLOCK + 3
        assert out[: 3 * BLOCK] == bytes(3 * BLOCK)
        assert out[3 * BLOCK :] == b"end" + b"\xee" * 7
        assert first.read(20, at=3 * BLOCK) == b"end"
        assert f.open(ps.View(hn=2), 1).read(5, at=0) == b""


def test_pointers(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=2, bsu=3)
    with fs.attach("/f", "r+") as f:
        s = f.open()
        assert s.write(b"0123456789") == 10
        assert s.read(4) == b""  # behind the end
        assert s.read(0, at=2) == b""
        assert s.read(3) == b"234"
        assert s.read(2, by=-1) == b"45"
        assert s.write(b"XY", by=1) == 2
        assert s.read(20, at=0) == b"0123456XY9"[:7] + b"XY9"
        with pytest.raises(ps.SchemaError):
            s.read(1, by=-100)


def test_threads_share_a_pointer(fs: ps.FileSystem) -> None:
    """Each record is written and read once, by whoever comes."""
    fs.create("/f", cells=4, bsu=16)
    records = 40
    with fs.attach("/f", "r+") as f:
        token = f.open().share()

        def writes(me: int) -> None:
            s = f.open(pointer=token)
            for _ in range(records):
                assert s.write(bytes([me]) * 16) == 16

        run([lambda me=me: writes(me) for me in range(4)])
        data = np.frombuffer(f.open().read(4 * records * 16), np.uint8).reshape(-1, 16)
        assert (data == data[:, :1]).all(), "no record is torn"
        assert np.bincount(data[:, 0]).tolist() == [records] * 4
        reading = f.open().share()
        assert reading != token
        seen: list[bytes] = []

        def reads() -> None:
            s = f.open(pointer=reading)
            for _ in range(records):
                seen.append(s.read(16))

        run([reads] * 4)
        assert sorted(seen) == sorted(bytes(row) for row in data)


def run(jobs: list) -> None:
    """Runs functions on threads, and raises what they raise."""
    raised: list[BaseException] = []

    def guarded(job) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_threads_write_disjoint_subfiles(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=8, bsu=100)
    view = ps.View(hn=8)
    with fs.attach("/f", "r+") as f:
        run(
            [
                lambda cell=cell: f.open(view, cell).write(np.full(20_000, cell, np.uint8))
                for cell in range(8)
            ]
        )
        data = np.frombuffer(f.open().read(160_000), np.uint8).reshape(200, 8, 100)
        assert (data == np.arange(8)[:, None]).all()


def test_requests_under_way(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=4, bsu=64)
    with fs.attach("/f", "r+") as f:
        s = f.open()
        pieces = [np.full(1000, n, np.uint8) for n in range(10)]
        writes = [s.iwrite_at(n * 1000, piece) for n, piece in enumerate(pieces)]
        outs = [np.zeros(1000, np.uint8) for _ in pieces]
        reads = [s.iread_at(n * 1000, out) for n, out in enumerate(outs)]
        assert [write.wait() for write in writes] == [1000] * 10
        assert [read.wait() for read in reads] == [1000] * 10
        for piece, out in zip(pieces, outs, strict=True):
            assert (piece == out).all(), "a read sees the writes before it"
        assert reads[0].test()
        with pytest.raises(ps.SchemaError):
            reads[0].wait()


def test_checkpoint_and_rollback(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=3, bsu=BLOCK)
    old, new = b"old" * BLOCK, b"new" * BLOCK
    with fs.attach("/f", "r+") as f:
        with pytest.raises(ps.MissingError, match="no checkpoint"):
            f.rollback()
        f.open().write(old)
        f.checkpoint()
        used = fs.usage().used
        assert fs.stat("/f").checkpoints == 1
        f.open().write(new)
        f.open().write_at(5 * BLOCK, b"more")
        f.sync()
        assert fs.usage().used > used
        assert f.open(version="checkpoint").read(len(old)) == old
        assert f.open().read(len(new)) == new
        f.rollback()
        assert f.open().read(len(old)) == old
        assert fs.stat("/f").bytes == len(old)
        assert fs.usage().used == used


def test_a_volume_is_as_it_was_when_it_is_opened_again(place: Path, servers: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)
    with make(place / "v", servers) as fs:
        fs.mkdir("/runs", 0o700)
        fs.create("/runs/f", cells=5, bsu=1000, base=servers - 1, mode=0o640)
        with fs.attach("/runs/f", "w") as f:
            f.open().write(data)
            f.checkpoint()
            f.open().write_at(0, b"new")
        fs.quota(12345, 3 * BLOCK)
        before = fs.stat("/runs/f")
    with pytest.raises(ps.SchemaError, match="closed"):
        fs.list()
    with ps.FileSystem(place / "v", servers=servers) as fs:
        assert (fs.servers, fs.block_bytes) == (servers, BLOCK)
        assert fs.list() == ["runs/"]
        assert fs.list("/runs") == ["f"]
        found = fs.stat("/runs/f")
        assert found.cell_bytes == before.cell_bytes
        assert (found.cells, found.bsu, found.base, found.mode) == (5, 1000, servers - 1, 0o640)
        assert fs.stat("/runs").is_directory
        assert fs.usage(12345).quota == 3 * BLOCK
        with fs.attach("/runs/f") as f:
            assert f.open(version="checkpoint").read(data.size) == data.tobytes()
            assert f.open().read(5) == b"new" + data[3:5].tobytes()
    with pytest.raises(ps.SchemaError, match="servers"):
        ps.FileSystem(place / "v", servers=servers + 1)


def test_an_exception_of_a_program_saves_what_it_has_written(place: Path, servers: int) -> None:
    with pytest.raises(ZeroDivisionError), make(place / "v", servers) as fs:
        fs.create("/f", cells=3, bsu=1000)
        with fs.attach("/f", "w") as f:
            f.open().write(bytes(range(250)) * 30)
        raise ZeroDivisionError
    with ps.FileSystem(place / "v") as fs, fs.attach("/f") as f:
        assert f.open().read(10_000) == bytes(range(250)) * 30


def test_a_new_volume_is_opened_as_is_asked(place: Path) -> None:
    create = ps.FileSystem.create
    with create(place / "v", block_bytes=BLOCK, cache_bytes=0, direct=True) as fs:
        fs.create("/f", cells=1)
        with fs.attach("/f", "r+") as f:
            f.open().write(bytes(3 * BLOCK))
            assert f.open().read(5 * BLOCK) == bytes(3 * BLOCK)


def test_names(fs: ps.FileSystem) -> None:
    fs.mkdir("/a")
    fs.mkdir("/a/b")
    fs.create("/a/b/f", cells=2)
    with fs.attach("/a/b/f", "w") as f:
        f.open().write(b"data")
    fs.rename("/a", "/c")
    assert fs.list() == ["c/"]
    assert fs.list("/c/b") == ["f"]
    with fs.attach("/c/b/f") as f:
        assert f.open().read(9) == b"data"
        assert f.path == "/c/b/f"
        [attached] = fs.stat("/c/b/f").attached
        assert (attached["reads"], attached["writes"]) == (True, False)
    assert fs.stat("/c/b/f").attached == []
    fs.remove("/c/b/f")
    fs.remove("/c/b")
    assert fs.list("/c") == []
    assert fs.usage().used == 0


@pytest.mark.parametrize(
    "data",
    [
        b"0123456789abcdef",
        bytearray(b"0123456789abcdef"),
        memoryview(b"0123456789abcdef"),
        memoryview(bytearray(b"0123456789abcdef")).cast("i"),
        array.array("d", [1.5, -2.5]),
        array.array("b", range(16)),
        np.arange(16, dtype=np.uint8),
        np.arange(4, dtype=">i4"),
        np.arange(2, dtype=np.float64),
        np.arange(4, dtype=np.complex64)[:2],
        np.arange(8, dtype=np.float16).reshape(2, 4),
        np.array([True, False] * 8),
        np.zeros(2, [("a", "u4"), ("b", "f4")]),
        np.float64(3.5),
        b"",
        np.empty((0, 3)),
    ],
    ids=lambda data: f"{type(data).__name__}-{getattr(data, 'dtype', '')}",
)
def test_anything_with_a_buffer_is_written(fs: ps.FileSystem, data) -> None:
    fs.create("/f", cells=3, bsu=5)
    expected = memoryview(data).tobytes()
    with fs.attach("/f", "r+") as f:
        s = f.open()
        assert s.write(data) == len(expected)
        assert s.write_at(50, data) == len(expected)
        assert s.iwrite_at(100, data).wait() == len(expected)
        for at in (0, 50, 100):
            assert s.read(len(expected), at=at) == expected


@pytest.mark.parametrize(
    "out",
    [
        bytearray(16),
        memoryview(bytearray(16)),
        memoryview(bytearray(16)).cast("d"),
        array.array("d", [0.0, 0.0]),
        np.zeros(16, np.uint8),
        np.zeros(2, ">f8"),
        np.zeros((2, 2), np.int32),
        np.zeros(16, bool),
    ],
    ids=lambda out: f"{type(out).__name__}-{getattr(out, 'dtype', '')}",
)
def test_anything_writable_is_read_into(fs: ps.FileSystem, out) -> None:
    fs.create("/f", cells=3, bsu=5)
    data = bytes([0, 1] * 8)
    with fs.attach("/f", "r+") as f:
        s = f.open()
        s.write(data)
        assert s.read_at(0, out) == 16
        assert memoryview(out).tobytes() == data
        assert s.iread_at(0, out).wait() == 16


def read_only() -> np.ndarray:
    data = np.zeros(16, np.uint8)
    data.setflags(write=False)
    return data


@pytest.mark.parametrize("out", [b"0" * 16, memoryview(b"0" * 16), read_only()])
def test_a_read_into_read_only_memory_is_refused(fs: ps.FileSystem, out) -> None:
    fs.create("/f", cells=1)
    before = bytes(out)
    with fs.attach("/f", "r+") as f:
        s = f.open()
        s.write(b"x" * 16)
        for read in (s.read_at, s.iread_at):
            with pytest.raises(ps.SchemaError, match="read-only"):
                read(0, out)
        assert bytes(out) == before
        assert s.write_at(0, out) == 16, "but it is written"


@pytest.mark.parametrize(
    "data",
    [
        np.zeros((4, 4), np.uint8)[:, :2],
        np.zeros(8)[::2],
        np.zeros((3, 4)).T,
        memoryview(b"abcd")[::2],
    ],
)
def test_memory_that_is_not_contiguous_is_refused(fs: ps.FileSystem, data) -> None:
    fs.create("/f", cells=1)
    with fs.attach("/f", "r+") as f:
        s = f.open()
        for access in (s.write, lambda data: s.write_at(0, data), lambda data: s.read_at(0, data)):
            with pytest.raises(ps.SchemaError, match="not contiguous"):
                access(data)
        assert s.read(100, at=0) == b"", "nothing was written"


@pytest.mark.parametrize("data", [None, 5, "text", [1, 2], object()])
def test_what_has_no_buffer_is_refused(fs: ps.FileSystem, data) -> None:
    fs.create("/f", cells=1)
    with fs.attach("/f", "r+") as f, pytest.raises(TypeError):
        f.open().write(data)


def test_errors_have_types_and_say_where(fs: ps.FileSystem) -> None:
    fs.mkdir("/d")
    fs.create("/d/f", cells=2, bsu=4)
    cases = [
        (lambda: fs.stat("/none"), ps.MissingError, "/none"),
        (lambda: fs.attach("/none"), ps.MissingError, "/none"),
        (lambda: fs.create("/no/f", cells=1), ps.MissingError, "/no"),
        (lambda: fs.mkdir("/d"), ps.ExistsError, "/d"),
        # The server of the file refuses it, or that of its directory, whichever is asked first.
        (lambda: fs.create("/d/f", cells=1), ps.ExistsError, ("/d/f", "/d")),
        (lambda: fs.mkdir("/d/f/g"), ps.SchemaError, "/d/f"),
        (lambda: fs.remove("/d"), ps.ExistsError, "/d"),
        (lambda: fs.rename("/d", "/d/e"), ps.SchemaError, "/d"),
        (lambda: fs.rename("/none", "/e"), ps.MissingError, "/none"),
        (lambda: fs.list("/d/f"), ps.SchemaError, "/d/f"),
        (lambda: fs.attach("/d"), ps.SchemaError, "/d"),
        (lambda: fs.resize("/d", 1), ps.SchemaError, "/d"),
        (lambda: fs.create("f", cells=1), ps.SchemaError, "f"),
        (lambda: fs.create("/a/../f", cells=1), ps.SchemaError, "/a/../f"),
        (lambda: fs.create("/g", cells=0), ps.SchemaError, None),
        (lambda: fs.create("/g", cells=1, bsu=0), ps.SchemaError, None),
        (lambda: fs.create("/g", cells=1, base=fs.servers), ps.SchemaError, None),
        (lambda: fs.attach("/d/f", "rw"), ps.SchemaError, None),
        (lambda: fs.attach("/d/f", mode="wild"), ps.SchemaError, None),
        (lambda: fs.remove("/"), ps.SchemaError, "/"),
        (lambda: fs.mkdir("/"), ps.ExistsError, "/"),
    ]
    for call, kind, path in cases:
        with pytest.raises(ps.Error) as raised:
            call()
        assert type(raised.value) is kind, raised.value
        assert raised.value.kind == kind.kind
        if path is not None:
            assert raised.value.path in np.atleast_1d(path), raised.value
    assert fs.list() == ["d/"]
    assert fs.list("/d") == ["f"]
    with fs.attach("/d/f") as f:
        for wrong in (
            lambda: f.open(ps.View(vn=0)),
            lambda: f.open(ps.View(hn=2), 2),
            lambda: f.open(order="diagonal"),
            lambda: f.open(version="newest"),
        ):
            with pytest.raises(ps.SchemaError):
                wrong()
        with pytest.raises(ps.ReadOnlyError):
            f.open().write(b"x")
    with fs.attach("/d/f", "w") as f, pytest.raises(ps.ReadOnlyError):
        f.open().read(1)


def test_a_volume_is_one_process_own(place: Path, servers: int) -> None:
    with make(place / "v", servers):
        with pytest.raises(ps.BusyError):
            ps.FileSystem(place / "v")
        with pytest.raises(ps.ExistsError):
            ps.FileSystem.create(place / "v")
    with pytest.raises(ps.MissingError):
        ps.FileSystem(place / "w")
    with pytest.raises(ps.SchemaError):
        ps.FileSystem.create(place / "w", servers=0)


def test_a_full_volume_and_a_quota(fs: ps.FileSystem) -> None:
    assert fs.usage().of_user == 0
    fs.create("/f", cells=1, bsu=BLOCK)
    owner = fs.stat("/f").owner
    fs.quota(owner, 4 * BLOCK)
    assert fs.usage().quota == 4 * BLOCK
    with fs.attach("/f", "r+") as f:
        s = f.open()
        assert s.write(bytes(4 * BLOCK)) == 4 * BLOCK
        f.sync()
        with pytest.raises(ps.FullError, match="4 blocks"):
            s.write(b"more")
        assert s.write_at(0, b"again") == 5, "what is there may be changed"
        fs.quota(owner, None)
        assert fs.usage().quota is None
        with pytest.raises(ps.FullError, match="in use"):
            s.write_at(4 * BLOCK, bytes(2 * CAPACITY))
        f.sync()
        fs.resize("/f", BLOCK)
        assert fs.usage().of_user == BLOCK
        assert s.read(5, at=0) == b"again"
    fs.remove("/f")
    assert fs.usage().used == 0


def test_chmod_and_chown(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=1)
    fs.chmod("/f", 0o604)
    fs.chown("/f", group=77)
    found = fs.stat("/f")
    assert (found.mode, found.group) == (0o604, 77)
    created, _, changed = found.times
    assert changed >= created > 0
    with pytest.raises(ps.MissingError):
        fs.chmod("/none", 0o600)


def test_prefetch_and_flush_change_nothing(fs: ps.FileSystem) -> None:
    fs.create("/f", cells=2, bsu=100)
    data = bytes(range(256)) * 100
    with fs.attach("/f", "r+", mode="reckless") as f:
        s = f.open()
        s.write(data)
        s.flush(0, 10_000)
        s.prefetch(5_000, 1 << 20)
        s.sync()
        assert s.read(len(data), at=0) == data


def test_the_example_of_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "files.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout == "b'\\x00\\x01\\x02'\nb'\\x00\\x00\\x00\\x00' 98304\n"


def test_import_export_and_plans(fs: ps.FileSystem, place: Path) -> None:
    """S6: a view decides the order of the bytes outside; A2: what an access will do."""
    data = bytes(range(256)) * 100
    (place / "local").write_bytes(data)
    view = ps.View(1, 2, 2, 1)
    assert fs.import_file(place / "local", "/f", view=view, subfile=1, cells=3, bsu=64) < len(data)
    with fs.attach_all("/f", "r+") as f:
        s = f.open(view, 1)
        expected = np.zeros(len(data), np.uint8)
        assert s.read_at(0, expected) < len(data)  # a ghost cell has a quarter of them
        assert fs.export_file("/f", place / "back", view=view, subfile=1) < len(data)
        found = (place / "back").read_bytes()
        assert found == expected.tobytes()[: len(found)]
        f.checkpoint()
        s.write(b"new" * 100, at=0)
        fs.export_file(
            "/f", place / "back", view=view, subfile=1, version="checkpoint", overwrite=True
        )
        assert (place / "back").read_bytes() == found
        plan = s.explain(64, operation="write")
        assert plan.startswith("write of 64 bytes from byte 0 on: 64 bytes of cells on 1 servers")
        assert plan.endswith("1 requests, 1 answers, 0 of the token, 0 after it: 2 in all")
        assert "block by block" in f.open().explain(8 << 20)
        with pytest.raises(ps.SchemaError, match="operation"):
            s.explain(1, operation="move")  # type: ignore[arg-type]
    with pytest.raises(ps.ExistsError, match="overwrite"):
        fs.export_file("/f", place / "back")
    with pytest.raises(ps.MissingError):
        fs.export_file("/none", place / "other")
    with pytest.raises(ps.SchemaError, match="version"):
        fs.export_file("/f", place / "other", version="new")  # type: ignore[arg-type]
    assert sorted(one.name for one in place.iterdir()) == ["back", "local", "v"]
