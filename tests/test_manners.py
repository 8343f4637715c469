"""Values that behave as Python's do, messages that can be read, and calls that can be stopped."""

from __future__ import annotations

import array as arrays
import copy
import gc
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from crash_kills import descendants, wait_for_end
from helpers import caught, leftovers, opened_with, same_bits, tree

import penstock as ps

MPIEXEC = Path(sys.executable).with_name("mpiexec")
BOXES = [ps.Boxes((0, 0), (2, 3)), ps.Boxes((2, 0), (2, 1), halo=[1, (0, 2)])]
ARRAY = ps.Array(
    "u", (4, 6), ">f8", [BOXES[0]], ps.Chunks([2, 3]), ["y", "x"], {"k": [1]}, fill_value=np.nan
)
GROUP = ps.Group(
    "g",
    [ARRAY, ps.Array("px", (None, 2), "i4")],
    "g.zarr",
    coords={"y": np.arange(4)},
    attrs={"a": 1},
)
FAULTS = ps.testing.Faults(faults=[ps.testing.Fault("open", 1, "EIO")])
VALUES = [
    *BOXES,
    ps.Distribution("BLOCK,*", [2], halo=[1, (0, 1)]),
    ps.Chunks((2, 3), codec="zstd:1"),
    ps.RowMajor("npy"),
    ARRAY,
    GROUP,
    ps.SessionOptions(
        servers=3, faults=ps.testing.Faults(faults=[ps.testing.Fault("open", 1, "EIO")])
    ),
    ps.Report(1, 2.0, 3, 4, 5, 6, 7),
    ps.Node("u", "array", ARRAY),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_are_values(value):
    for other in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value), copy.copy(value)):
        assert other == value and hash(other) == hash(value) and other is not None
        assert repr(other) == repr(value)
    assert value != "another" and len({value, copy.deepcopy(value)}) == 1
    assert " object at 0x" not in repr(value) and len(repr(value)) < 600


def test_public_names_are_those_of_the_package():
    for name in ps.__all__:
        thing = getattr(ps, name)
        if isinstance(thing, type):
            assert repr(thing) == f"<class 'penstock.{name}'>"


def test_what_makes_arrays_differ():
    for change in [
        {"name": "v"},
        {"shape": (4, 7)},
        {"dtype": "f8"},
        {"disk": None},
        {"dims": None},
        {"attrs": {}},
        {"fill_value": 0},
    ]:
        assert ARRAY._with(**change) != ARRAY, change
    with pytest.raises(AttributeError, match="does not change"):
        ARRAY.shape = (1, 1)


def test_a_group_is_of_names():
    assert list(GROUP) == ["u", "px"] and len(GROUP) == 2
    assert "u" in GROUP and "v" not in GROUP and ARRAY not in GROUP
    assert GROUP["u"] is GROUP.arrays[0]
    with pytest.raises(KeyError):
        GROUP["v"]


BUILT_IN = {
    ps.MissingError: FileNotFoundError,
    ps.ReadOnlyError: PermissionError,
    ps.SchemaError: ValueError,
    ps.MismatchError: ValueError,
    ps.OverlapError: ValueError,
    ps.OutOfBoundsError: IndexError,
    ps.FullError: OSError,
    ps.IoError: OSError,
    ps.BusyError: OSError,
    ps.DamagedError: OSError,
    ps.PeerError: ConnectionError,
    ps.UnsupportedError: NotImplementedError,
}


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)
def test_errors_are_built_in_ones_too(kind):
    assert issubclass(kind, BUILT_IN[kind]) and issubclass(kind, ps.Error)


def test_errors_that_come_are_built_in_ones_too(place):
    with ps.Session() as s:
        with pytest.raises(FileNotFoundError):
            s.open(place / "nothing")
        with pytest.raises(ValueError):
            s.write(place / "g", ps.Array("u", (2,), "f8"), np.zeros(3))
    if os.geteuid() != 0:
        (place / "closed").mkdir(mode=0o500)
        with ps.Session() as s, pytest.raises(PermissionError):
            s.write(place / "closed" / "g", ps.Array("u", (2,), "f8"), np.zeros(2))


class Lent:
    """Something with an array inside."""

    def __init__(self, values: np.ndarray) -> None:
        self.__array_interface__ = values.__array_interface__
        self.values = values


GIVERS = {
    "xarray": xr.DataArray,
    "interface": Lent,
    "memoryview": memoryview,
    "subclass": lambda values: values.view(np.recarray),
    "memmap": lambda values: values,
}


@pytest.mark.parametrize("giver", GIVERS)
def test_a_local_array_is_whatever_has_the_memory(place, giver):
    u = ps.Array("u", (3, 4), "f8", disk=ps.Chunks((2, 4)))
    values = np.arange(12.0).reshape(3, 4)
    into = np.zeros((3, 4))
    with ps.Session() as s:
        s.write(place / "g", u, GIVERS[giver](values))
        out = GIVERS[giver](into)
        assert s.read(place / "g", u, out=out) is out
        assert same_bits(into, values)
        group = ps.Group("s", [u], place / "s")
        s.timestep(group, {"u": GIVERS[giver](values)})
        assert same_bits(s.read(place / "s", s.open(place / "s", "u"))[0], values)


@pytest.mark.parametrize(
    "wrong",
    [list(range(1_000_000)), tuple(range(1_000_000)), "x" * 1_000_000, None, {"a": 1}, 3.5],
    ids=lambda wrong: type(wrong).__name__,
)
def test_a_wrong_local_array_is_named_by_its_type(place, wrong):
    u = ps.Array("u", (1_000_000,), "f8")

    def main(s):
        return caught(
            lambda: s.write(place / "g", u, wrong if s.rank == 1 else np.zeros(1_000_000))
        )

    first, second = ps.run(main, 2)
    assert type(first) is type(second) is ps.SchemaError and str(first) == str(second)
    assert type(wrong).__qualname__ in str(first) and len(str(first)) < 300
    with ps.Session() as s, pytest.raises(ps.SchemaError) as error:
        s.timestep(ps.Group("g", [u], place / "s"), {"u": wrong})
    assert len(str(error.value)) < 300


def test_a_mask_is_not_lost_in_silence(place):
    masked = np.ma.masked_less(np.arange(4.0), 2)
    with ps.Session() as s, pytest.raises(ps.SchemaError, match="masked"):
        s.write(place / "g", ps.Array("u", (4,), "f8"), masked)


def test_a_cause_stays_the_cause(place):
    """What a rank did wrong is the exception that it raised, with its own cause."""

    class Odd:
        dims, attrs = ("x",), {}

        @property
        def values(self):
            raise RuntimeError("no values today")

    u = ps.Array("u", (4,), "f8")
    with ps.Session() as s:
        with pytest.raises(ps.SchemaError) as error:
            s.checkpoint(GROUP.with_memory({}), {"u": 1}, step="three")
        assert isinstance(error.value.__cause__, ps.Error | TypeError) or error.value.cause
        with pytest.raises(ps.SchemaError) as error:
            s.checkpoint(ps.Group("g", [u], place / "g"), {"u": np.zeros(4)}, step="three")
        assert isinstance(error.value.__cause__, TypeError)


def test_indices_are_those_of_numpy(place):
    u = ps.Array("u", (4, 6), "f8", disk=ps.Chunks((2, 3)))
    values = np.arange(24.0).reshape(4, 6)
    with ps.Session() as s:
        s.write(place / "g", u, values)
        for index in (0, -1, (slice(None), -2), (slice(-3, None), slice(1, -1)), slice(9, 12)):
            found = s.read(place / "g", u, region=index)
            assert found.ravel().tolist() == values[index].ravel().tolist()
        for index in (4, -5, (0, 6), (0, 0, 0)):
            with pytest.raises(IndexError) as error:
                s.read(place / "g", u, region=index)
            with pytest.raises(IndexError) as numpys:
                values[index]
            assert str(numpys.value) in str(error.value)
            assert isinstance(error.value, ps.SchemaError)


def test_a_mismatch_says_in_what(place):
    def main(s):
        u = ps.Array("u", (4, 6 + s.rank), "f8", ps.Distribution("BLOCK,*", (2,)))
        return caught(lambda: s.write(place / "g", u, np.zeros(u.local_shape(s.rank))))

    for error in ps.run(main, 2):
        assert type(error) is ps.MismatchError
        text = str(error).replace(str(place), "")  # the name is random, and may have "f8" in it
        assert "shape" in text and "[4, 6]" in text and "[4, 7]" in text
        assert "f8" not in text and "Distribution" not in text and "Some(" not in text


def test_no_message_is_of_rust(place):
    """Options, structures and quotes as Rust's debug text has them."""
    u = ps.Array("u", (4, 6), "f8", disk=ps.Chunks((2, 3)))
    calls = [
        lambda s: s.write(place / "g", u.with_memory(ps.Boxes((3, 0), (2, 6))), np.zeros((2, 6))),
        lambda s: s.write(
            place / "g", u.with_memory(ps.Distribution("BLOCK,*", (9,))), np.zeros((4, 6))
        ),
        lambda s: s.write(place / "g", u.with_disk(ps.Chunks((2,))), np.zeros((4, 6))),
        lambda s: s.write(
            place / "g", u.with_disk(ps.Chunks((2, 3), codec="lzo")), np.zeros((4, 6))
        ),
        lambda s: s.read(place / "none", u),
        lambda s: s.write(place / "g", u, np.zeros((4, 6), "f4")),
        lambda s: ps.Array("u", (4,), "O"),
        lambda s: ps.copy(place / "none", place / "x"),
    ]
    with ps.Session() as s:
        for call in calls:
            text = str(caught(lambda call=call: call(s)))
            for word in ("Some(", "None)", "Region {", "Kind::", "Err(", "Disk::", "Boxes {"):
                assert word not in text, text


def test_attributes_of_numpy(place):
    attrs = {
        "count": np.int64(3),
        "mean": np.float32(1.5),
        "missing": float("nan"),
        "limits": np.array([-np.inf, np.inf]),
        "flag": np.bool_(True),
        "word": np.str_("K"),
    }
    u = ps.Array("u", (2,), "f8", disk=ps.Chunks((2,)), attrs=attrs)
    with ps.Session() as s:
        s.write(place / "g", u, np.zeros(2))
        found = dict(s.open(place / "g").attrs)
    with xr.open_zarr(place / "g") as opened:
        for there in (found, opened.u.attrs):
            assert np.isnan(there.pop("missing"))
            assert there == {
                "count": 3, "mean": 1.5, "limits": [-np.inf, np.inf], "flag": True, "word": "K"
            }  # fmt: skip


def test_the_same_error_also_where_it_ends_the_session(place):
    """A rank that leaves by the error of a call tells no other rank anything else."""
    u = ps.Array("u", (4, 2), "f8", ps.Distribution("BLOCK,*", (4,)), ps.Chunks((1, 2)))
    for _ in range(40):
        errors: list[BaseException | None] = [None] * 4

        def main(s, errors=errors):
            try:
                with s:
                    s.write(place / "no" / "g", u, np.zeros((1, 2)))
            except ps.Error as met:
                errors[s.rank] = met

        ps.run(main, 4)
        assert {type(error) for error in errors} == {ps.MissingError}
        assert len({str(error) for error in errors}) == 1


def test_a_lost_split_is_ended(place, monkeypatch):
    opened_with(monkeypatch, faults=ps.testing.Faults(bytes_per_second=1e6))
    u = ps.Array("u", (1000,), "f8", disk=ps.RowMajor())
    with ps.Session() as s:
        s.begin_write(place / "u", u, np.ones(1000)).end()
        with pytest.warns(ResourceWarning, match="never ended"):
            s.begin_write(place / "u", u, np.full(1000, 2.0))
            gc.collect()
        s.barrier()
    assert (np.fromfile(place / "u") == 2).all() and not leftovers(place)
    with warnings.catch_warnings(action="error"):
        split = None
        with pytest.raises(ps.SchemaError, match="never ended"), ps.Session() as s:
            split = s.begin_write(place / "u", u, np.full(1000, 3.0))
        del split
        gc.collect()
    assert (np.fromfile(place / "u") == 3).all()


def test_a_store_that_was_deleted_is_no_other_job(place):
    group = ps.Group("g", [ps.Array("u", (4,), "f8")], place / "g")
    with ps.Session() as s:
        for turn in range(3):
            for step in range(turn + 1):
                s.timestep(group, {"u": np.full(4, float(step))})
            assert xr.open_zarr(group.path).sizes["time"] == turn + 1
            shutil.rmtree(group.path)


HANG_SECONDS = 600
STOP_SECONDS = 30
"""For a program to end when Ctrl-C is pressed: it takes a second, more on a busy machine."""

SLOW_WRITE = """
import signal, sys, time
import numpy as np, penstock as ps
slow = ps.testing.Faults(bytes_per_second=2e6)
rows = ps.Distribution("BLOCK,*", (int(sys.argv[2]),))
u = ps.Array("u", (4, 10_000_000), "f8", rows, ps.Chunks((1, 100_000)))
def main(s):
    local = np.ones(u.local_shape(s.rank))
    print("begins", flush=True)
    s.write(sys.argv[1], u, local)
    print("is done", flush=True)
try:
    if sys.argv[3] == "mpi":
        from mpi4py import MPI
        with ps.Session(MPI.COMM_WORLD, faults=slow, transport=sys.argv[4]) as s:
            main(s)
    elif sys.argv[3] == "threads":
        ps.run(main, int(sys.argv[2]), faults=slow)
    else:
        with ps.Session(faults=slow) as s:
            main(s)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def stopped(place: Path, command: list, ranks: int, text: str = SLOW_WRITE) -> tuple[str, float]:
    """Starts a slow program, presses Ctrl-C; what it prints, and how long it then takes to end.

    Open MPI's mpiexec may end before its ranks have, and a rank that ends keeps its locks a while.
    """
    program = place / "program.py"
    program.write_text(text)
    job = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    begun = 0
    assert job.stdout is not None
    while begun < ranks:
        line = job.stdout.readline()
        assert line, "it has ended by itself"
        begun += line.count("begins")
    time.sleep(0.3)
    everybody = descendants(job.pid)
    os.killpg(job.pid, signal.SIGINT)
    pressed = time.monotonic()
    said, _ = job.communicate(timeout=HANG_SECONDS)
    wait_for_end(everybody, HANG_SECONDS, "interrupted")
    return said, time.monotonic() - pressed


@pytest.mark.parametrize("way", ["alone", "threads"])
def test_ctrl_c(place, way):
    """The write would take 160 s; its target stays as it was."""
    ranks = 4 if way == "threads" else 1
    with ps.Session() as s:
        s.write(place / "g.zarr", ps.Array("u", (3,), "f8"), np.ones(3))
    before = tree(place / "g.zarr")
    command = [sys.executable, place / "program.py", place / "g.zarr", ranks, way]
    said, seconds = stopped(place, command, ranks)
    assert "interrupted" in said and "is done" not in said
    assert seconds < STOP_SECONDS
    assert tree(place / "g.zarr") == before and leftovers(place) == []


def test_ctrl_c_ends_no_rank_in_the_middle(place):
    """`run` waits for ranks that take their time, whichever of them it was waiting for."""
    program = """
import sys, time
import penstock as ps
def main(s):
    print("begins", flush=True)
    try:
        s.write(sys.argv[1], u, slow_rows) if s.rank else time.sleep(2)
    finally:
        time.sleep(1)
        print("has ended", flush=True)
import numpy as np
u = ps.Array("u", (4,), "f8", ps.Distribution("BLOCK", (4,)))
slow_rows = np.ones(1)
try:
    ps.run(main, 4)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    command = [sys.executable, place / "program.py", place / "g.zarr"]
    said, _ = stopped(place, command, 4, program)
    assert said.count("has ended") == 4 and said.endswith("interrupted\n"), said


@pytest.mark.parametrize("transport", ["shared", "messages"])
def test_ctrl_c_under_mpiexec(place, transport):
    with ps.Session() as s:
        s.write(place / "g.zarr", ps.Array("u", (3,), "f8"), np.ones(3))
    before = tree(place / "g.zarr")
    job = [MPIEXEC, "-n", 4, sys.executable]
    command = [*job, place / "program.py", place / "g.zarr", 4, "mpi", transport]
    said, seconds = stopped(place, command, 4)
    assert "is done" not in said and seconds < STOP_SECONDS
    assert tree(place / "g.zarr") == before
    with ps.Session() as s:  # whatever is left of it is no other job
        s.write(place / "g.zarr", ps.Array("u", (3,), "f8"), np.full(3, 2.0))
    assert leftovers(place) == []


def test_ctrl_c_in_a_thread_that_only_waits(place):
    """A session that another rank does not join is left within a second."""
    done: list[float] = []

    def press() -> None:
        time.sleep(0.5)
        done.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def main(s):
        if s.rank == 0:
            s.barrier()  # nobody else comes
        else:
            while not done:
                time.sleep(0.01)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        ps.run(main, 2)
    assert time.monotonic() - done[0] < STOP_SECONDS


def test_arrays_of_the_standard_library_are_lent(place):
    lent = arrays.array("d", [1.0, 2.0, 3.0])
    with ps.Session() as s:
        s.write(place / "u", ps.Array("u", (3,), "f8", disk=ps.RowMajor()), lent)
    assert np.fromfile(place / "u").tolist() == [1, 2, 3]
