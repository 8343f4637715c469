"""Everything that the documents tell a user to run is run here, at a small size."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
MPIEXEC = Path(sys.executable).with_name("mpiexec")


def run(*command, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, with this interpreter's directory first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, "PATH": path, **environment},
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def readme_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_readme_has_a_first_program():
    assert len(readme_blocks()) == 1


@pytest.mark.parametrize("ranks", [0, 8])
def test_the_first_program_runs(tmp_path, ranks):
    """As it stands, and as the README says to change it for MPI."""
    program = readme_blocks()[0]
    if ranks:
        program = program[: program.rindex("\nfor rank")] + (
            "\nfrom mpi4py import MPI\n\nwith ps.Session(MPI.COMM_WORLD) as s:\n    main(s)\n"
        )
    (tmp_path / "first.py").write_text(program)
    launcher = [MPIEXEC, "-n", ranks] if ranks else []
    run(*launcher, sys.executable, "first.py", cwd=tmp_path)
    import zarr

    stored = zarr.open_group(str(tmp_path / "first.zarr"))["u"]
    whole = stored[:]
    assert stored.attrs["units"] == "K"
    for rank, corner in enumerate(np.ndindex(2, 2, 2)):
        assert whole[tuple(99 * c for c in corner)] == rank


def test_the_simulation(tmp_path):
    """The main job: it checks its own results with other people's software, and fails if not."""
    demo = [
        *(sys.executable, ROOT / "examples" / "gray_scott.py", "--out", tmp_path / "out"),
        *("--size", 24, "--steps", 12, "--every", 4, "--ranks", 4, "--restart-ranks", 3),
        *("--codec", "zstd:1"),
    ]
    said = run(*demo, cwd=tmp_path).stdout
    assert "finds the two identical" in said and "median" in said
    assert list((tmp_path / "out").glob("*.png"))
    (tmp_path / "out" / "mine.txt").write_text("kept")
    again = subprocess.run(list(map(str, demo)), text=True, capture_output=True, timeout=600)
    assert again.returncode == 1 and "--overwrite" in again.stderr
    shorter = ["--size", 16, "--steps", 4, "--every", 2, "--ranks", 2, "--restart-ranks", 1]
    run(*demo, *shorter, "--overwrite", cwd=tmp_path)
    assert (tmp_path / "out" / "mine.txt").read_text() == "kept"


def test_unaligned_chunks(tmp_path):
    done = run(
        *(sys.executable, ROOT / "examples" / "unaligned.py", "--shape", 64, 64, 32),
        *("--aligned", 16, "--unaligned", 12, "--repeats", 1),
        cwd=tmp_path,
    )
    (penstock,) = [line for line in done.stdout.splitlines() if "Penstock" in line]
    assert penstock.rstrip(" |").endswith(" 0")


@pytest.mark.parametrize("disk", ["row-major", "npy", "chunks:8,8,8:zstd:1", "parts:BLOCK,*,*:2"])
def test_the_benchmark(tmp_path, hurry, disk):
    """It verifies all that it writes and reads; here, that it says what it measured."""
    strategies = "penstock,mpiio" if disk == "row-major" else "penstock"
    run(
        *(MPIEXEC, "-n", 4, sys.executable, "-m", "penstock_bench", "collective"),
        *("--shape", "24,20,16"),
        *("--repeats", 1, "--path", tmp_path, "--disk", disk, "--strategy", strategies),
        *("--json", tmp_path / "figures.json", "--quiet"),
        cwd=tmp_path,
    )
    assert "penstock" in json.dumps(json.loads((tmp_path / "figures.json").read_text()))


def test_the_benchmark_refuses_nonsense_in_one_line(tmp_path):
    command = [sys.executable, "-m", "penstock_bench", "collective", "--shape", "a,b"]
    done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=600)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def commands_of_the_simulation() -> list[str]:
    pages = (
        "docs/simulation.md",
        "docs/simulation-dickens-thakur.md",
        "docs/simulation-panda.md",
        "docs/simulation-vesta.md",
    )
    text = "\n".join((ROOT / page).read_text() for page in pages)
    lines = re.findall(r"^    (penstock sim [^#\n]*)", text, re.MULTILINE)
    return sorted({line.strip() for line in lines})


def test_the_simulation_is_shown_by_commands():
    assert len(commands_of_the_simulation()) >= 9


@cache
def small_preset(name: str) -> str:
    """The machine of a preset with files of 256 KB, smaller than any --file-mb."""
    told = run("penstock", "sim", "preset", name, cwd=ROOT).stdout
    small, count = re.subn(r"^bytes = \d+", f"bytes = {1 << 18}", told, flags=re.MULTILINE)
    assert count == 1
    return small


@pytest.mark.parametrize("command", commands_of_the_simulation())
def test_the_commands_of_the_simulation_run(tmp_path, command):
    """Each of them, with a file so small that it takes no time."""
    smaller = {
        "trace": "--file-mb 1",
        "scale": "--clients 10,20 --servers 1 --file-mb 256",
        "table": "--trials 1 --preset tr94.toml",
        "figure": "--trials 1 --preset tocs97.toml",
        "summary": "--trials 1 --preset tocs97.toml",
        "expand": "--percent 20 --slower 1,16",
        "panda": "--trials 1 --array-mb 16",
        "vesta": "--cell-mb 1",
        "dickens-thakur": "" if "--preset" in command else "--preset sp2-anl --figure 2",
        "preset": "",
    }
    words = command.partition(" > ")[0].split()
    more = smaller.get(words[2], "--trials 1").split()
    for option in {*more} & {*words}:  # in place of the document's: lists would grow
        if option.startswith("--"):
            at = words.index(option)
            del words[at : at + 2]
    words += more
    for name in ("tr94", "tocs97"):
        if f"{name}.toml" in words:
            (tmp_path / f"{name}.toml").write_text(small_preset(name))
    done = run(*words, cwd=tmp_path)
    assert done.stdout
    if "--plot" in words:
        plot = Path(words[words.index("--plot") + 1])
        drawn = [*tmp_path.glob(f"{plot.stem}*{plot.suffix or '.png'}")]
        assert drawn and all(plot.stat().st_size > 10_000 for plot in drawn)
