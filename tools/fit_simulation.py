"""Fits the free parameters of the preset tr94 to the visible cells of the report's Tables 3 and 4.

Free are eight numbers that no paper publishes. Two prices share one number where nothing published
tells them apart: sending and receiving a message, and starting a thread and looking a block up.

| parameter | sets | fitted to |
|---|---|---|
| rotation  | start.rotation_ms        | contiguous 8 KB cells bound by the disks' first rotation |
| index 1-d | costs.index_1d_us        | disk-directed contiguous 8-byte rc |
| index 2-d | costs.index_2d_us        | disk-directed contiguous 8-byte rbc |
| reply     | costs.memget_reply_us    | disk-directed contiguous 8-byte wc, wcc |
| message   | costs.send_us, receive_us | caching, 8-byte cyclic cells |
| thread    | costs.thread_us, lookup_us | the same |
| request   | costs.request_us         | the same |
| copy      | costs.copy_us            | the same, writes |

The disks are not touched. The three groups are fitted one after the other, each by coordinate
descent on the mean squared logarithm of measured over published. Run it as

    python tools/fit_simulation.py [--write]

which prints every step, and with --write changes the numbers marked "fitted: see fit" in
crates/sim/presets/tr94.toml and tocs97.toml. The article's batched transfers have prices of their
own, which tocs97.toml explains. It takes about a quarter of an hour, and needs `penstock` on the
path.
"""

import argparse
import concurrent.futures
import csv
import json
import math
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRESETS = ROOT / "crates/sim/presets"
CELLS = ROOT / "crates/experiments/data/tr94_cells.csv"

KEYS = {
    "rotation": ["rotation_ms"],
    "index 1-d": ["index_1d_us"],
    "index 2-d": ["index_2d_us"],
    "reply": ["memget_reply_us"],
    "message": ["send_us", "receive_us"],
    "thread": ["thread_us", "lookup_us"],
    "request": ["request_us"],
    "copy": ["copy_us"],
}
# Group by group: parameters, with their steps, and the cells (table, pattern, record, method).
GROUPS = [
    (
        {"rotation": 0.2},
        [("4", p, "8192", m) for p in ("rn", "rc", "wc") for m in ("ddio", "caching")],
    ),
    (
        {"index 1-d": 0.1, "index 2-d": 0.1, "reply": 0.1},
        [("4", p, "8", "ddio") for p in ("rc", "rbc", "wc", "wcc")],
    ),
    (
        {"message": 0.5, "thread": 0.5, "request": 1.0, "copy": 2.0},
        [("4", p, "8", "caching") for p in ("rc", "rbc", "wc", "wcc")]
        + [("3", p, "8", "caching") for p in ("rc", "rcc", "wbc")],
    ),
]
LAYOUTS = {"3": "random-blocks", "4": "contiguous"}


def published():
    """The visible cells, MB/s, by table, pattern, record and method."""
    with CELLS.open() as file:
        return {
            (row["table"], row["pattern"], row["record"], row["method"]): float(row["MBps"])
            for row in csv.DictReader(file)
        }


def with_values(text, values):
    """The text of a preset with the parameters set."""
    for name, value in values.items():
        for key in KEYS[name]:
            text = re.sub(rf"(?m)^{key} = [0-9.]+", f"{key} = {value:.2f}", text)
    return text


def measure(preset, cell):
    """One trial of a cell, MB/s."""
    table, pattern, record, method = cell
    command = ["penstock", "sim", "run", "--preset", preset, "--pattern", pattern]
    command += ["--record", record, "--layout", LAYOUTS[table], "--method", method]
    run = subprocess.run(
        [*command, "--trials", "1", "--json", "-"], capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)["throughput_mb_s"]


def evaluate(values, cells, targets, pool):
    """Mean squared log ratio over the cells, and the ratios."""
    text = with_values((PRESETS / "tr94.toml").read_text(), values)
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(text)
        file.flush()
        measured = pool.map(lambda cell: measure(file.name, cell), cells)
        ratios = [got / targets[cell] for got, cell in zip(measured, cells, strict=True)]
    return sum(math.log(ratio) ** 2 for ratio in ratios) / len(ratios), ratios


def descend(values, steps, cells, targets, pool):
    """Changes one parameter after the other while that makes things better."""
    best, ratios = evaluate(values, cells, targets, pool)
    report(values, steps, best, ratios)
    for scale in (1.0, 0.5):
        improved = True
        while improved:
            improved = False
            for name, step in steps.items():
                for change in (step * scale, -step * scale):
                    trial = values | {name: max(0.0, values[name] + change)}
                    error, ratios = evaluate(trial, cells, targets, pool)
                    if error < best - 1e-6:
                        values, best, improved = trial, error, True
                        report(values, steps, best, ratios)
                        break
    return values


def report(values, steps, error, ratios):
    """One line for a step that is kept."""
    numbers = ", ".join(f"{name} {values[name]:.2f}" for name in steps)
    shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"{math.sqrt(error):.4f}  {numbers}  [{shown}]", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="change the presets")
    arguments = parser.parse_args()
    targets = published()
    text = (PRESETS / "tr94.toml").read_text()
    values = {
        name: float(re.search(rf"(?m)^{keys[0]} = ([0-9.]+)", text)[1])
        for name, keys in KEYS.items()
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for steps, cells in GROUPS:
            values = descend(values, steps, cells, targets, pool)
    if arguments.write:
        for name in ("tr94", "tocs97"):
            path = PRESETS / f"{name}.toml"
            own = () if name == "tr94" else ("rotation", "index 1-d", "index 2-d")
            kept = {key: value for key, value in values.items() if key not in own}
            path.write_text(with_values(path.read_text(), kept))


if __name__ == "__main__":
    main()
