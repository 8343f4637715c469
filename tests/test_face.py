"""The package as a stranger meets it: names, errors, sessions as values."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest
from helpers import alone, caught

import penstock as ps

PUBLIC = [name for name in ps.__all__ if name not in ("__version__", "testing")]


def test_every_name_in_all_is_there_and_no_other_is_public():
    for name in ps.__all__:
        assert hasattr(ps, name), name
    public = {name for name in vars(ps) if not name.startswith("_")}
    modules = {name for name in public if inspect.ismodule(getattr(ps, name))}
    assert public - modules == set(PUBLIC)


def test_the_names_of_the_issue_are_there():
    for name in ("Session", "Array", "Distribution", "Boxes", "Chunks", "RowMajor", "run", "Error"):
        assert name in ps.__all__
    for name in ("write", "read", "explain", "open", "rank"):
        assert name in dir(ps.Session) or name in ps.Session.__doc__
    assert {"local_shape", "local_slices"} <= set(dir(ps.Array))


def test_the_package_says_that_it_is_typed():
    assert Path(ps.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("name", [name for name in PUBLIC if name.endswith("Error")])
def test_errors_have_one_root(name):
    assert issubclass(getattr(ps, name), ps.Error) and issubclass(ps.Error, Exception)
    assert getattr(ps, name).__name__ == name


def test_errors_of_every_origin_have_the_attributes(place):
    """Those raised by the Python side, too."""
    u = ps.Array("u", (4,), "f8", disk=ps.Chunks((2,)))
    with ps.Session() as s:
        errors = [
            caught(lambda: s.write(place / "a" / "b", u, np.zeros(4))),
            caught(lambda: s.open(place / "nothing")),
            caught(lambda: ps.Session(servers=0)),
            caught(lambda: ps.RowMajor("csv")),
            caught(lambda: ps.Array("u", (-1,), "f8")),
            caught(lambda: s.explain(place, u, "append")),
        ]
    for error in errors:
        assert isinstance(error, ps.Error)
        assert error.kind == type(error).__name__.removesuffix("Error"), repr(error)
        for name in ("rank", "server", "doing", "path", "bytes", "cause"):
            assert hasattr(error, name), f"{error!r} has no {name}"
        assert error.cause in str(error)


def test_errors_can_be_pickled(place):
    """For those who send them to another process."""
    with ps.Session() as s:
        error = caught(lambda: s.open(place / "nothing"))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is ps.MissingError and str(copy) == str(error)
    assert (copy.kind, copy.path, copy.cause) == (error.kind, error.path, error.cause)


def test_the_example_in_the_documentation_runs(place, monkeypatch):
    """The indented program of the module's documentation, as it stands."""
    lines = [line[4:] for line in ps.__doc__.splitlines() if line.startswith("    ")]
    assert "import numpy as np, penstock as ps" in lines[0]
    monkeypatch.chdir(place)
    exec(compile("\n".join(lines), "penstock.__doc__", "exec"), {})
    assert (place / "run.zarr" / "u" / "zarr.json").exists()


def test_the_main_example_of_the_issue_embedded(place):
    """Embedded, with a mesh of one place instead of eight."""
    with ps.Session() as s:
        u = ps.Array("u", shape=(64, 64, 32), dtype="f8",
                     memory=ps.Distribution("BLOCK,BLOCK,BLOCK", mesh=(1, 1, 1), halo=0),
                     disk=ps.Chunks((16, 16, 16), subchunks=None, codec="zstd:3"))  # fmt: skip
        local = np.zeros(u.local_shape(s.rank))
        s.write(place / "run.zarr", u, local, attrs={"units": "K"})
        back = s.read(place / "run.zarr", u)
        assert np.array_equal(back, local)
        assert "blocks" in s.explain(place / "run.zarr", u)


def test_a_session_of_one():
    with ps.Session() as s:
        assert (s.rank, s.size, s.is_client) == (0, 1, True) and s.servers >= 1
        s.barrier()
    s.close()
    s.close()
    with ps.Session(servers=3, dedicated=False) as s:
        assert s.servers == 3
    for dedicated in (True, False, None):
        with ps.Session(dedicated=dedicated) as s:
            s.barrier()


def test_sessions_side_by_side(place):
    """They know nothing of each other."""
    u = ps.Array("u", (4,), "f8", disk=ps.RowMajor())
    with ps.Session() as a, ps.Session(servers=1) as b:
        a.write(place / "a", u, np.ones(4))
        b.write(place / "b", u, np.zeros(4))
        assert a.read(place / "b", u).tolist() == [0] * 4
        assert b.read(place / "a", u).tolist() == [1] * 4


def test_run_returns_what_the_ranks_return():
    assert ps.run(lambda s: (s.rank, s.size), ranks=5) == [(rank, 5) for rank in range(5)]


def test_the_gil_is_released(place):
    """While a rank waits in a collective call, Python goes on in the other threads."""
    import threading
    import time

    ticks = []

    def main(session):
        if session.rank == 0:
            for _ in range(20):
                time.sleep(0.01)
                ticks.append(threading.active_count())
        session.barrier()

    ps.run(main, 3)
    assert len(ticks) == 20


IMPORT_ALONE = """
import sys
sys.modules["mpi4py"] = None
import numpy as np, penstock as ps
u = ps.Array("u", (6, 4), "f8", memory=ps.Distribution("BLOCK,*", (2,)), disk=ps.Chunks((2, 3)))
def main(s):
    local = np.full(u.local_shape(s.rank), s.rank + 1.0)
    s.write(sys.argv[1], u, local)
    assert (s.read(sys.argv[1], u) == local).all()
ps.run(main, ranks=2)
with ps.Session() as s:
    assert s.read(sys.argv[1], s.open(sys.argv[1]))[:, 0].tolist() == [1, 1, 1, 2, 2, 2]
assert not any(name.startswith("mpi4py.") for name in sys.modules)
print("done")
"""


def test_without_mpi4py(place):
    """The package imports and works embedded."""
    assert alone(IMPORT_ALONE, place / "g") == "done\n"


def test_what_is_no_communicator():
    with pytest.raises(ps.SchemaError, match="communicator"):
        ps.Session("world")
