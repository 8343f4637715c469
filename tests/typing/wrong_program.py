"""A program with mistakes that `mypy --strict` must find. It is never run.

Each mistake is marked with the code of the error that it must be: mypy complains of a mark without
an error, so that `make lint` fails when a mistake becomes acceptable.
"""

import numpy as np

import penstock as ps

u = ps.Array("u", (4, 4), "f8")
values = np.zeros((4, 4))

# Names that there are not.
ps.Sesion()  # type: ignore[attr-defined]
ps.Session(server=2)  # type: ignore[call-arg]
ps.SessionOptions(blocks=4096)  # type: ignore[call-arg]
ps.run(lambda s: s.rank, rank=2)  # type: ignore[call-arg]
ps.copy("a.zarr", "b.zarr", chunk=4)  # type: ignore[call-arg]
ps.Chunks((2, 2), compressor="zstd")  # type: ignore[call-arg]
ps.testing.Faults(slow=True)  # type: ignore[call-arg]

# Strings with fixed values.
ps.Session(strategy="two-faze")  # type: ignore[arg-type]
ps.Session(transport="pigeon")  # type: ignore[arg-type]
ps.RowMajor("csv")  # type: ignore[arg-type]
ps.testing.Fault("seek", 1, "EIO")  # type: ignore[arg-type]

# Values of another type.
ps.Array("u", (4.5, 4), "f8")  # type: ignore[arg-type]
ps.Array("u", "4", "f8")  # type: ignore[arg-type]
ps.Array("u", (4,), 8)  # type: ignore[arg-type]
ps.Array("u", (4,), "f8", memory="BLOCK")  # type: ignore[arg-type]
ps.Array("u", (4,), "f8", disk="zstd")  # type: ignore[arg-type]
ps.Array("u", (4,), "f8", fill_value="nothing")  # type: ignore[arg-type]
ps.Distribution(["BLOCK", "*"])  # type: ignore[arg-type]
ps.Boxes((0, 0), None)  # type: ignore[arg-type]
ps.Group("g", ["u"], "g.zarr")  # type: ignore[list-item]
ps.Report(bytes=1)  # type: ignore[call-arg]

with ps.Session() as s:
    s.write("a.zarr", "u", values)  # type: ignore[arg-type]
    s.write("a.zarr", u, 3.5)  # type: ignore[arg-type]
    s.write("a.zarr", u, [[1.0, 2.0]])  # type: ignore[list-item]
    s.write("a.zarr", u, values, {1: "K"})  # type: ignore[dict-item]
    s.write("a.zarr", u, values, region="rows")  # type: ignore[arg-type]
    s.read("a.zarr", u, strategy="fast")  # type: ignore[call-overload]
    s.explain("a.zarr", u, "append")  # type: ignore[arg-type]
    s.begin_write("a.zarr", u, values, background="later")  # type: ignore[arg-type]
    shape = s.begin_write("a.zarr", u, values).end().shape  # type: ignore[attr-defined]
    rank: str = s.rank  # type: ignore[assignment]
    one: np.ndarray = s.read("a.zarr", u, region=[slice(2)])  # type: ignore[assignment]
    s.restart(ps.Group("g", [u], "g.zarr"))["u"]  # type: ignore[index]
    s.options.sync = False  # type: ignore[misc]
    damages = ps.verify("a.zarr", progress=print).damage  # type: ignore[attr-defined]
