"""The examples in C run, and do what they say."""

from __future__ import annotations

from pathlib import Path

import c_programs
import numpy as np
import pytest
from c_programs import ROOT, compiled, run

pytestmark = pytest.mark.skipif(
    c_programs.missing_mpi() is not None, reason=c_programs.missing_mpi() or ""
)
SIZE = 20


@pytest.fixture(scope="module")
def panda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("examples") / "panda_figure2"
    return compiled(ROOT / "examples/panda_figure2.c", target, with_mpi=True)


def first_values(length: int, period: int) -> np.ndarray:
    i, j, k = np.indices((length, length, length))
    return (31 * i + 17 * j + k) % period


def expected(steps: int) -> dict[str, list[np.ndarray]]:
    """The values at each timestep, computed without ranks."""
    temperature = first_values(SIZE, 1000)
    pressure = first_values(SIZE, 100).astype("f8")
    density = first_values(SIZE // 2, 10).astype("f8")
    found: dict[str, list[np.ndarray]] = {"temperature": [], "pressure": [], "density": []}
    for _ in range(steps):
        temperature = (temperature * 7 + 3) % 1000
        pressure, density = pressure * 0.75 + 1, density * 0.5 + 2
        for name, values in zip(found, (temperature, pressure, density), strict=True):
            found[name].append(values)
    return found


def check(path: Path, steps: int) -> None:
    import zarr

    store = zarr.open_group(str(path))
    assert np.array_equal(store["time"][:], np.arange(steps))
    for name, values in expected(steps).items():
        stored = store[name]
        assert stored.dtype == {"temperature": "i4"}.get(name, "f8")
        rows = -(-values[0].shape[0] // 8)
        assert stored.chunks[1:] == (rows, *values[0].shape[1:])  # traditional order
        assert np.array_equal(stored[:], values)


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_figure_of_the_panda_paper(place: Path, panda: Path, ranks: int) -> None:
    """A run without interruption."""
    path = place / "sim2.zarr"
    run(panda, "--path", path, "--size", SIZE, "--until", 60, ranks=ranks).fine()
    check(path, 60)
    assert (path / "checkpoints" / "50").is_dir()


def test_the_figure_goes_on_from_its_checkpoint(place: Path, panda: Path) -> None:
    """Stopped behind a checkpoint, and gone on with on other ranks, it is the same."""
    straight, stopped = place / "straight.zarr", place / "stopped.zarr"
    size = ("--size", SIZE, "--every", 10)
    whole = run(panda, "--path", straight, *size, "--until", 30, ranks=2).fine()
    run(panda, "--path", stopped, *size, "--steps", 15, ranks=3).fine()
    check(stopped, 15)
    said = run(panda, "--path", stopped, *size, "--until", 30, ranks=4).fine()
    assert said.splitlines() == ["restarts behind timestep 10", *whole.splitlines()]
    check(stopped, 30)


def test_the_figure_tells_an_error_once(place: Path, panda: Path) -> None:
    (place / "file").write_text("no group")
    ended = run(panda, "--path", place / "file", "--size", SIZE, ranks=2)
    assert ended.code != 0
    assert ended.said.count("panda_figure2: ") == 1 and "file" in ended.said
    ended = run(panda, "--size", "none")
    assert ended.code == 2 and "usage" in ended.said
