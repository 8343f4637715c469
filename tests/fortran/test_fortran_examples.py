"""The examples in Fortran and C: Gray-Scott with a restart, and FastMeshSort."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from fortran_programs import ROOT, checked, run, start

import penstock as ps

EXAMPLES = ROOT / "examples"
SIZE, EVERY, UNTIL = 20, 5, 30


def step_line(said: list[str]) -> str:
    """The line with the checksums."""
    (line,) = [line for line in said if line.startswith("step ")]
    return line


@pytest.fixture(scope="module")
def whole_run(build, tmp_path_factory):
    """A run on one rank that nobody stops: its store, and what it printed."""
    store = tmp_path_factory.mktemp("whole") / "whole.zarr"
    said = run(build.program(EXAMPLES / "gray_scott.f90"), store, SIZE, EVERY, UNTIL, ranks=1)
    return zarr.open_group(store, mode="r"), step_line(said)


def model(steps: int) -> dict[int, dict[str, np.ndarray]]:
    """What NumPy makes of the model, at each step that is stored; close to the program's values."""
    u, v = np.ones((SIZE,) * 3), np.zeros((SIZE,) * 3)
    random, found = 1, {}
    cells = np.indices((SIZE,) * 3)[::-1]  # x, y, z
    for _ in range(6):
        centre = []
        for _ in range(3):
            random = random * 48271 % 2147483647
            centre.append(random % SIZE)
        apart = [abs(cells[d] - centre[d]) for d in range(3)]
        inside = sum(np.minimum(d, SIZE - d) ** 2 for d in apart) <= 4.5**2
        u[inside], v[inside] = 0.5, 0.25
    for step in range(1, steps + 1):
        rounds = [
            sum(np.roll(a, by, axis) for axis in range(3) for by in (1, -1)) - 6 * a for a in (u, v)
        ]
        reaction = u * v * v
        u = u + 0.12 * rounds[0] - reaction + 0.037 * (1 - u)
        v = v + 0.06 * rounds[1] + reaction - 0.097 * v
        if step % EVERY == 0:
            found[step] = {"U": u, "V": v}
    return found


def test_gray_scott_is_the_model(whole_run):
    group, _ = whole_run
    steps = list(range(EVERY, UNTIL + 1, EVERY))
    np.testing.assert_array_equal(group["time"][...], steps)
    for number, (step, fields) in enumerate(model(UNTIL).items()):
        assert step == steps[number]
        for name, values in fields.items():
            np.testing.assert_allclose(group[name][number], values, atol=1e-5)
    assert group["U"].metadata.dimension_names == ("time", "z", "y", "x")
    assert group["U"].attrs["long_name"] == "concentration of U"
    np.testing.assert_array_equal(group["x"][...], np.arange(SIZE) + 0.5)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (8, 6)])
def test_gray_scott_goes_on_with_other_ranks(build, tmp_path, whole_run, before, after):
    program, store = build.program(EXAMPLES / "gray_scott.f90"), tmp_path / "gs.zarr"
    run(program, store, SIZE, EVERY, 17, ranks=before)
    said = run(program, store, SIZE, EVERY, UNTIL, ranks=after)
    group, line = whole_run
    assert step_line(said) == line
    again = zarr.open_group(store, mode="r")
    for name in ("U", "V", "time"):
        there, here = group[name][...], again[name][...]
        assert there.dtype == here.dtype and there.tobytes() == here.tobytes(), name
    verdict = ps.verify(store)
    assert not verdict.damages and verdict.timesteps == UNTIL // EVERY


def made(seed: int, rank: int, records: int) -> np.ndarray:
    """The random records of a rank: splitmix64."""
    state = (seed * 1000003 + rank) % 2**64
    found = []
    for _ in range(records):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        bits = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
        found.append(bits ^ bits >> 31)
    return np.array(found, np.uint64)


@pytest.fixture(scope="module")
def sort(build, tmp_path_factory):
    """The compiled FastMeshSort."""
    program = tmp_path_factory.mktemp("sort") / "fast_mesh_sort"
    checked(
        ["mpicc.mpich", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror",
         f"-I{build.tree.include}", str(EXAMPLES / "fast_mesh_sort.c"), "-o", str(program),
         f"-L{build.tree.library}", "-lpenstock", f"-Wl,-rpath,{build.tree.library}"]
    )  # fmt: skip
    return program


@pytest.mark.parametrize("way", [[], ["-a"]], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("ranks", "records", "block"), [(1, 700, 64), (2, 501, 1000), (4, 333, 50)]
)
def test_fast_mesh_sort(sort, tmp_path, ranks, records, block, way):
    volume = tmp_path / "volume"
    words = ["-r", records, "-b", block, "-e", 5, *way, volume]
    assert any(line.startswith("sorted:") for line in run(sort, *words, ranks=ranks))
    given = np.concatenate([made(5, rank, records) for rank in range(ranks)])
    with ps.FileSystem(volume) as fs, fs.attach("/datafile") as file:
        cells = [file.open(ps.View(hn=ranks), number).read(8 * records) for number in range(ranks)]
    found = np.frombuffer(b"".join(cells), "<u8")
    np.testing.assert_array_equal(found, np.sort(given))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "power of two"),
        (["-r", "many"], "an option needs a number"),
        (["-x"], "no such option"),
        (["-b", 0], "usage: "),
    ],
    ids=["ranks", "number", "option", "zero"],
)
def test_fast_mesh_sort_refuses(sort, tmp_path, words, said):
    done = start(sort, *words, tmp_path / "volume", ranks=3)
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 1 and said in done.stderr, done.stderr
    assert not (tmp_path / "volume").exists()
