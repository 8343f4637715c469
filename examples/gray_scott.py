"""A real simulation that writes, stops, restarts on fewer processes and is read by other programs.

    python examples/gray_scott.py            (or: make demo)

Two chemicals, U and V, diffuse through a periodic cube and react: the Gray-Scott model, which
grows spots, worms and sheets. The program has four parts:

1. *simulate* on 8 ranks (MPI): every few steps all ranks hand U and V to Penstock in one collective
   call, straight from arrays with ghost cells, and a Zarr store grows by a timestep; with each, a
   checkpoint is saved;
2. *restart* on 6 ranks from the newest checkpoint: other blocks than those that were written. Run 1
   went on for a few steps after its last output, so the restarted run can be compared: every bit
   must be the same;
3. *check*: `penstock verify` compares every checksum, zarr-python and xarray open what was written,
   and every value of every timestep must be the simulation's own; `penstock copy` puts all of it
   into other chunks, and xarray must find the two identical;
4. *render* slices to a PNG.

The same arrays are also written with collective MPI-IO to flat files, in the same run, and a table
at the end compares the two.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# The model, in units of one cell and one step.
DIFFUSION_U, DIFFUSION_V = 0.12, 0.06
FEED, KILL = 0.037, 0.06
SEEDS_PER_MILLION_CELLS, SEED_RADIUS = 20, 4.5

DTYPE = np.dtype("f4")
CHUNK = 64
MPIIO = {
    "MPI-IO, default hints": {},
    "MPI-IO, best hints": {
        "cb_config_list": "*:*",
        "cb_nodes": "8",
        "cb_buffer_size": "1048576",
        "romio_cb_write": "enable",
    },
}


@dataclass(frozen=True)
class Schedule:
    """When run 1 saves, when it stops, and when the restarted run ends."""

    steps: int
    every: int

    @property
    def last_stored(self) -> int:
        """The last step that run 1 stores: the restart begins there."""
        return self.every * max(1, self.steps // self.every // 2)

    @property
    def stopped(self) -> int:
        """Where run 1 is stopped: some steps later, not stored."""
        return self.last_stored + min(20, self.every - 1)


# ---------------------------------------------------------------------------------------------
# The simulation: NumPy on each rank, ghost cells by MPI
# ---------------------------------------------------------------------------------------------


class GrayScott:
    """One rank's block of the cube, with one layer of ghost cells on every side."""

    def __init__(self, cart, size: int, where: tuple[slice, ...]) -> None:
        self.cart, self.size, self.where = cart, size, where
        extents = [along.stop - along.start for along in where]
        self.u, self.v = (np.ones([n + 2 for n in extents], DTYPE) for _ in range(2))
        self.work = [np.empty(extents, DTYPE) for _ in range(3)]
        self.step = 0

    def seed(self) -> None:
        """Everything is U, but for little balls of V at the same places on any number of ranks."""
        self.u[...], self.v[...] = 1, 0
        random = np.random.default_rng(1)
        count = max(1, round(SEEDS_PER_MILLION_CELLS * self.size**3 / 1e6))
        for centre in random.integers(0, self.size, (count, 3)):
            z, y, x = (
                np.abs(np.arange(along.start, along.stop) - c)
                for along, c in zip(self.where, centre, strict=True)
            )
            z, y, x = (np.minimum(d, self.size - d) ** 2 for d in (z, y, x))
            inside = z[:, None, None] + y[:, None] + x <= SEED_RADIUS**2
            interior(self.u)[inside], interior(self.v)[inside] = 0.5, 0.25

    def advance(self) -> None:
        """One step. Each element is the same operations in the same order, whoever computes it."""
        self.exchange()
        u, v = interior(self.u), interior(self.v)
        change_u, change_v, reaction = self.work
        laplacian(self.u, change_u, reaction)
        laplacian(self.v, change_v, reaction)
        np.multiply(v, v, out=reaction)
        reaction *= u
        change_u *= DTYPE.type(DIFFUSION_U)
        change_u -= reaction
        change_v *= DTYPE.type(DIFFUSION_V)
        change_v += reaction
        np.subtract(DTYPE.type(1), u, out=reaction)
        reaction *= DTYPE.type(FEED)
        change_u += reaction
        np.multiply(v, DTYPE.type(FEED + KILL), out=reaction)
        change_v -= reaction
        u += change_u
        v += change_v
        self.step += 1

    def exchange(self) -> None:
        """Fills the ghost cells from the six neighbours, all at once; the cube is periodic."""
        requests, arrived = [], []
        for dimension in range(3):
            below, above = self.cart.Shift(dimension, 1)
            for neighbour, source, other, ghost, tag in (
                (below, 1, above, -1, 2 * dimension),
                (above, -2, below, 0, 2 * dimension + 1),
            ):
                sent = np.stack([face(self.u, dimension, source), face(self.v, dimension, source)])
                got = np.empty_like(sent)
                requests += [
                    self.cart.Irecv(got, other, tag),
                    self.cart.Isend(sent, neighbour, tag),
                ]
                arrived.append((dimension, ghost, got))
        type(requests[0]).Waitall(requests)
        for dimension, ghost, got in arrived:
            face(self.u, dimension, ghost)[...], face(self.v, dimension, ghost)[...] = got

    def checksums(self) -> dict[str, int]:
        """A sum over all ranks that depends on every bit and its place, not on the ranks."""
        from mpi4py import MPI

        own = np.array([checksum(interior(a), self.where, self.size) for a in (self.u, self.v)])
        self.cart.Allreduce(MPI.IN_PLACE, own, MPI.SUM)
        return {"U": int(own[0]), "V": int(own[1])}


def interior(array: np.ndarray) -> np.ndarray:
    """The array without its ghost cells."""
    return array[1:-1, 1:-1, 1:-1]


def face(array: np.ndarray, dimension: int, index: int) -> np.ndarray:
    """One layer of the array, without the ghost cells at its rim."""
    where: list = [slice(1, -1)] * 3
    where[dimension] = index
    return array[tuple(where)]


def laplacian(array: np.ndarray, out: np.ndarray, work: np.ndarray) -> None:
    """The sum of the six neighbours less six times the cell itself."""
    c = slice(1, -1)
    np.add(array[:-2, c, c], array[2:, c, c], out=out)
    out += array[c, :-2, c]
    out += array[c, 2:, c]
    out += array[c, c, :-2]
    out += array[c, c, 2:]
    np.multiply(array[c, c, c], DTYPE.type(6), out=work)
    out -= work


def checksum(block: np.ndarray, where: tuple[slice, ...], size: int) -> np.uint64:
    """The sum, modulo 2^64, of each element's bits times an odd number made of its index."""
    z, y, x = (np.arange(along.start, along.stop, dtype=np.uint64) for along in where)
    plane = (y[:, None] * np.uint64(size) + x) * np.uint64(2) + np.uint64(1)
    layers = np.zeros(len(z), np.uint64)
    for number, index in enumerate(z):
        bits = np.ascontiguousarray(block[number]).view(np.uint32).astype(np.uint64)
        layers[number] = np.sum(bits * (plane + index * np.uint64(2 * size * size)))
    return np.sum(layers)


# ---------------------------------------------------------------------------------------------
# Output: Penstock, and MPI-IO for comparison
# ---------------------------------------------------------------------------------------------


def store_path(out: Path) -> Path:
    """The store of both runs: timesteps and checkpoints."""
    return out / "gray_scott.zarr"


def made_in(out: Path) -> list[Path]:
    """All that this program makes."""
    return [
        store_path(out),
        *(out / name for name in ("copy.zarr", "gray_scott.png", "notes.jsonl")),
    ]


class Output:
    """Writes U and V of one step in every way, and notes bytes and seconds."""

    def __init__(self, session, simulation: GrayScott, group, out: Path) -> None:
        self.session, self.simulation, self.group, self.out = session, simulation, group, out
        self.comm = simulation.cart

    def store(self) -> None:
        """A timestep and a checkpoint, and the same as flat files by MPI-IO, which are removed."""
        step = self.simulation.step
        fields = {"U": self.simulation.u, "V": self.simulation.v}

        def timestep() -> None:
            self.session.timestep(self.group, fields, time=step)

        def checkpoint() -> None:
            self.session.checkpoint(self.group, fields, step=step)

        self._timed("Penstock, timestep", timestep)
        self._timed("Penstock, checkpoint", checkpoint)
        for label, hints in MPIIO.items():
            flat = {name: self.out / f"{name}.raw" for name in fields}

            def mpiio(flat=flat, hints=hints) -> None:
                for name, local in fields.items():
                    write_mpiio(self.comm, self.simulation, flat[name], local, hints)

            self._timed(label, mpiio)
            if self.comm.rank == 0:
                for file in flat.values():
                    file.unlink()
        self.note(step=step, checksums=self.simulation.checksums())

    def _timed(self, label: str, write) -> None:
        """Notes how long the slowest rank took; nobody pays for what another has left to do."""
        from mpi4py import MPI

        if self.comm.rank == 0:
            os.sync()
        self.comm.Barrier()
        start = time.perf_counter()
        write()
        seconds = self.comm.allreduce(time.perf_counter() - start, MPI.MAX)
        total = 2 * self.simulation.size**3 * DTYPE.itemsize
        self.note(writer=label, step=self.simulation.step, bytes=total, seconds=seconds)

    def note(self, **what) -> None:
        """Adds one line to the notes that the last part of this program reads."""
        if self.comm.rank == 0:
            with open(self.out / "notes.jsonl", "a") as notes:
                notes.write(json.dumps({"ranks": self.comm.size, **what}) + "\n")


def write_mpiio(
    comm, simulation: GrayScott, path: Path, local: np.ndarray, hints: dict[str, str]
) -> None:
    """Collective MPI-IO: a subarray of the file from a subarray of memory."""
    from mpi4py import MPI

    info = MPI.Info.Create()
    for key, value in hints.items():
        info.Set(key, value)
    extents = interior(local).shape
    starts = [along.start for along in simulation.where]
    view = MPI.FLOAT.Create_subarray([simulation.size] * 3, extents, starts).Commit()
    memory = MPI.FLOAT.Create_subarray(local.shape, extents, [1, 1, 1]).Commit()
    file = MPI.File.Open(comm, str(path), MPI.MODE_CREATE | MPI.MODE_WRONLY, info)
    file.Set_view(0, MPI.FLOAT, view, "native", info)
    file.Write_all([local, 1, memory])
    file.Sync()
    file.Close()
    for datatype in (view, memory):
        datatype.Free()
    info.Free()


# ---------------------------------------------------------------------------------------------
# Runs 1 and 2, under mpiexec
# ---------------------------------------------------------------------------------------------


def simulate(options) -> None:
    """Runs from the beginning to where it is stopped, or from the newest checkpoint to the end."""
    from mpi4py import MPI

    import penstock as ps

    comm = MPI.COMM_WORLD
    mesh = tuple(MPI.Compute_dims(comm.size, 3))
    cart = comm.Create_cart(mesh, periods=[True] * 3, reorder=False)
    memory = ps.Distribution("BLOCK,BLOCK,BLOCK", mesh=mesh, halo=1)

    with ps.Session(comm) as session:
        shape = (options.size,) * 3
        disk = ps.Chunks((CHUNK,) * 3, codec=options.codec)
        arrays = [
            ps.Array(
                name, shape, DTYPE, memory=memory, disk=disk, dims=("z", "y", "x"),
                attrs={"long_name": f"concentration of {name}", "units": "1"},
            )
            for name in ("U", "V")
        ]  # fmt: skip
        edge = np.arange(options.size) + 0.5
        group = ps.Group(
            "Gray-Scott",
            arrays,
            store_path(options.out),
            attrs={"title": "Gray-Scott, spots and worms", "F": FEED, "k": KILL},
            coords={axis: (axis, edge, {"units": "cell"}) for axis in "zyx"},
            time_attrs={"long_name": "step"},
        )
        simulation = GrayScott(cart, options.size, arrays[0].local_slices(session.rank))
        output = Output(session, simulation, group, options.out)
        if options.restart:
            state = session.restart(group)
            simulation.step = state.step
            simulation.u[...], simulation.v[...] = state["U"], state["V"]
            run(simulation, output, options.steps, options)
            compare_with_files(simulation, options.out)
        else:
            simulation.seed()
            run(simulation, output, Schedule(options.steps, options.every).stopped, options)


def run(simulation: GrayScott, output: Output, until: int, options) -> None:
    """Steps, stores every few steps, and notes where a restarted run can be compared."""
    from tqdm import tqdm

    comm, schedule = simulation.cart, Schedule(options.steps, options.every)
    mesh = "x".join(str(extent) for extent in comm.Get_topo()[0])
    bar = tqdm(
        desc=f"{'restart' if options.restart else 'simulate'} on {comm.size} ranks ({mesh})",
        total=until,
        initial=simulation.step,
        unit=" steps",
        disable=comm.rank != 0,
        mininterval=0.2 if options.terminal else 10,
        ncols=96,
    )
    while simulation.step < until:
        simulation.advance()
        bar.update()
        if simulation.step % schedule.every == 0:
            output.store()
        if simulation.step == schedule.stopped:
            output.note(step=simulation.step, compared=simulation.checksums())
    bar.close()


def compare_with_files(simulation: GrayScott, out: Path) -> None:
    """Every rank opens the store with zarr-python and compares its block of the last timestep."""
    import zarr

    store = zarr.open_group(store_path(out), mode="r")
    same = all(
        np.array_equal(store[name][(-1, *simulation.where)], interior(local))
        for name, local in (("U", simulation.u), ("V", simulation.v))
    )
    if not simulation.cart.allreduce(int(same)) == simulation.cart.size:
        raise SystemExit("the last timestep is not what the ranks hold")


# ---------------------------------------------------------------------------------------------
# Afterwards, one ordinary Python process: check, render, report
# ---------------------------------------------------------------------------------------------


def check(out: Path, size: int) -> list[str]:
    """Opens every timestep with zarr-python and xarray; what was found, or an error."""
    import xarray
    import zarr

    import penstock as ps

    notes = read_notes(out)
    checksums = {note["step"]: note["checksums"] for note in notes if "checksums" in note}
    group = zarr.open_group(store_path(out), mode="r")
    with warnings.catch_warnings(action="error"):
        data = xarray.open_zarr(store_path(out))
    if sorted(checksums) != data.time.values.tolist():
        raise SystemExit(f"stored {data.time.values}, but the runs wrote {sorted(checksums)}")
    everywhere = (slice(0, size),) * 3
    for number, (step, truth) in enumerate(sorted(checksums.items())):
        for name in ("U", "V"):
            values = group[name][number]
            if int(checksum(values, everywhere, size)) != truth[name]:
                raise SystemExit(f"step {step}: {name} is not what the simulation computed")
            if data[name].dims != ("time", "z", "y", "x") or data.attrs["F"] != FEED:
                raise SystemExit(f"{name} has lost its dimension names or attributes")
            if not np.array_equal(data[name].sel(time=step).values, values):
                raise SystemExit(f"step {step}: xarray and zarr-python disagree about {name}")
    verified = ps.verify(store_path(out))
    if verified.damages or verified.compared == 0:
        raise SystemExit(verified.verdict)
    ps.copy(store_path(out), out / "copy.zarr", chunks={"time": 4, "z": 32, "y": -1, "x": -1})
    with warnings.catch_warnings(action="error"), xarray.open_zarr(out / "copy.zarr") as copy:
        xarray.testing.assert_identical(copy, data)
    found = [
        f"all values of {len(checksums)} timesteps are the simulation's own, to the bit",
        f"ps.verify: {verified.verdict.splitlines()[-1]}",
        "ps.copy in other chunks: xarray finds the two identical",
    ]
    compared = [note for note in notes if "compared" in note]
    if len(compared) != 2 or compared[0]["compared"] != compared[1]["compared"]:
        raise SystemExit("the restarted run is not the run that was stopped")
    first, second = (note["ranks"] for note in compared)
    step = compared[0]["step"]
    found.append(f"restarted on {second} ranks, step {step} is the same to the bit as on {first}")
    return found


def render(out: Path, size: int) -> Path:
    """V in slices: through time in the middle plane, and the last step along the three axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import xarray

    data, middle = xarray.open_zarr(store_path(out)).V, size // 2

    def slice_of(step: int, **where: int) -> np.ndarray:
        return data.sel(time=step).isel(where).values

    steps = data.time.values.astype(int).tolist()
    shown = [
        steps[i] for i in np.linspace(0, len(steps) - 1, min(4, len(steps))).round().astype(int)
    ]
    top = float(slice_of(steps[-1], z=middle).max())
    look = {"cmap": "magma", "vmin": 0, "vmax": top, "origin": "lower", "interpolation": "bilinear"}

    figure = plt.figure(figsize=(12, 7.8), layout="constrained", facecolor="white")
    above, below = figure.subfigures(2, 1, height_ratios=[3, 4])
    above.suptitle(f"V in the plane z = {middle}", fontsize=12, fontweight="bold")
    for axes, step in zip(np.atleast_1d(above.subplots(1, len(shown))), shown, strict=True):
        image = axes.imshow(slice_of(step, z=middle), **look)
        axes.set(title=f"step {step}", xticks=[], yticks=[])
    below.suptitle(
        f"step {steps[-1]}, three planes through the centre", fontsize=12, fontweight="bold"
    )
    panels = below.subplots(1, 3)
    for axes, (across, down, right) in zip(panels, ("zyx", "yzx", "xzy"), strict=True):
        axes.imshow(slice_of(steps[-1], **{across: middle}), **look)
        axes.set(title=f"{across} = {middle}", xlabel=right, ylabel=down)
    below.colorbar(image, ax=panels, label="concentration of V", shrink=0.85)
    path = out / "gray_scott.png"
    figure.savefig(path, dpi=120)
    return path


def read_notes(out: Path) -> list[dict]:
    """What the two runs noted."""
    return [json.loads(line) for line in (out / "notes.jsonl").read_text().splitlines()]


def table(out: Path, size: int) -> str:
    """MB/s of each way of writing: median, slowest and fastest of all steps."""
    rates: dict[str, list[float]] = {}
    for note in read_notes(out):
        if "writer" in note:
            rates.setdefault(note["writer"], []).append(note["bytes"] / note["seconds"] / 1e6)
    steps = len({note["step"] for note in read_notes(out) if "checksums" in note})
    total = 2 * size**3 * DTYPE.itemsize / 1e6
    lines = [
        f"U and V, {size}^3 {DTYPE.name}, {total:.0f} MB, at {steps} steps, each synced:",
        "",
        f"{'MB/s, written with':<24}{'median':>8}{'slowest':>10}{'fastest':>10}",
    ]
    for writer, found in rates.items():
        line = f"{writer:<24}{statistics.median(found):>8.0f}{min(found):>10.0f}{max(found):>10.0f}"
        lines.append(line)
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------
# The command
# ---------------------------------------------------------------------------------------------


def launch(options, ranks: int, *more: str) -> None:
    """Runs this file under the mpiexec that belongs to this Python, and waits for it."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        raise SystemExit("no mpiexec beside this Python or on the path: pip install mpich mpi4py")
    # Run as a module, mpi4py ends all ranks when one of them raises.
    command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpi4py", __file__, "--simulate"]
    command += ["--size", str(options.size), "--steps", str(options.steps)]
    command += ["--every", str(options.every), "--codec", options.codec]
    command += ["--out", str(options.out), *more]
    if sys.stderr.isatty():
        command.append("--terminal")
    code = subprocess.run(command).returncode
    if code != 0:
        raise SystemExit(f"the run on {ranks} ranks failed with exit code {code}")


def demo(options) -> None:
    """All four parts."""
    schedule = Schedule(options.steps, options.every)
    there = [path for path in made_in(options.out) if path.exists()]
    if there and not options.overwrite:
        raise SystemExit(f"{there[0]} is there already: say --overwrite, or another --out")
    for path in there:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    options.out.mkdir(parents=True, exist_ok=True)
    launch(options, options.ranks)
    print(f"stopped at step {schedule.stopped}; the newest checkpoint is of {schedule.last_stored}")
    launch(options, options.restart_ranks, "--restart")
    for line in check(options.out, options.size):
        print(f"checked: {line}")
    print(f"rendered: {render(options.out, options.size)}", end="\n\n")
    print(table(options.out, options.size))


def main() -> None:
    """Reads the options."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--size", type=int, default=192, help="cells along each edge (default: %(default)s)")
    add("--steps", type=int, default=600, help="steps to compute (default: %(default)s)")
    add("--every", type=int, default=60, help="steps from output to output (default: %(default)s)")
    add("--ranks", type=int, default=8, help="ranks of the first run (default: %(default)s)")
    add("--restart-ranks", type=int, default=6, help="ranks of the second (default: %(default)s)")
    add("--codec", default="none", help="Zarr codec, such as zstd:3 (default: %(default)s)")
    add("--out", type=Path, default=Path("out/gray_scott"), help="directory (default: %(default)s)")
    add("--overwrite", action="store_true", help="replace what a former run has made there")
    # How the program starts itself under mpiexec:
    for internal in ("--simulate", "--restart", "--terminal"):
        add(internal, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.every < 2 or options.steps < 2 * options.every:
        parser.error("--every must be at least 2, --steps at least twice that")
    if options.steps % options.every:
        parser.error("--steps must be a multiple of --every")
    if options.simulate:
        simulate(options)
    else:
        demo(options)


if __name__ == "__main__":
    main()
