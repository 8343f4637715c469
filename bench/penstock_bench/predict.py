"""This benchmark compares what `penstock predict` says with what calls take on this machine.

The machine is a preset that `penstock calibrate` has written, of the directory in which the calls
are measured. Each case is one array, written and read back by every strategy that can; a measured
time is the median of the rounds, from the last rank's beginning to the last's end. Cases are drawn
by a seed: patterns, sizes, chunks or a flat file, 2 to 8 ranks, through the page cache and, where
the file system has direct I/O, around it; ranks are threads, or with ``--mpiexec`` processes of an
MPI job.
"""

from __future__ import annotations

import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock_bench.command import FailedError, Parser, UsageError, complain, counts
from penstock_bench.predict_job import STRATEGIES, Call, on_threads

ROW = 128
"""The elements of a plane's edge: arrays are n x 128 x 128 of float64, 128 KiB a plane."""


@dataclass(frozen=True)
class Pair:
    """A pair is what one strategy is said to take, and what it takes."""

    case: int
    call: Call
    operation: str
    strategy: str
    predicted: float
    measured: float
    by: str

    @property
    def ratio(self) -> float:
        """The predicted time as a multiple of the measured."""
        return self.predicted / self.measured


def patterns(ranks: int) -> list[tuple[str, tuple[int, ...]]]:
    """Give distributions over the ranks."""
    one = ("BLOCK,*,*", "*,BLOCK,*", "*,*,BLOCK", "CYCLIC,*,*")
    drawn: list[tuple[str, tuple[int, ...]]] = [(kind, (ranks,)) for kind in one]
    if ranks % 2 == 0:
        drawn += [(kind, (ranks // 2, 2)) for kind in ("BLOCK,BLOCK,*", "*,BLOCK,BLOCK")]
    return drawn


def draw(chance: random.Random, ranks: list[int], sizes: list[int], ways: list[bool]) -> Call:
    """Draw a case; sizes are MiB."""
    count = chance.choice(ranks)
    memory, mesh = chance.choice(patterns(count))
    planes = chance.choice(sizes) * 8
    chunks = chance.choice(
        [None, (max(1, planes // 4), ROW, ROW), (max(1, planes // 2), 64, 64), (16, 48, 48)]
    )
    return Call((planes, ROW, ROW), memory, mesh, chunks, count, chance.choice(ways))


def predictions(call: Call, operation: str, preset: Path) -> dict[str, tuple[float, str]]:
    """Ask for the seconds of each strategy, and the way in which they were found."""
    options = ["--preset", preset, "--shape", ",".join(map(str, call.shape))]
    options += ["--memory", call.memory, "--mesh", ",".join(map(str, call.mesh))]
    options += ["--ranks", call.ranks, "--no-sync", "--json", "-"]
    options += ["--chunks", ",".join(map(str, call.chunks))] if call.chunks else []
    options += ["--direct"] if call.direct else []
    options += ["--read"] if operation == "read" else []
    command = [sys.executable, "-m", "penstock", "predict", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FailedError(f"penstock predict: {done.stderr.strip()}")
    told = json.loads(done.stdout)["predictions"]
    return {each["strategy"]: (each["seconds"], each["by"]) for each in told}


def measured(call: Call, place: Path, rounds: int, mpiexec: list[str]) -> dict[str, float]:
    """Measure writes and reads of each strategy: ``"disk-directed write": seconds``."""
    if not mpiexec:
        return on_threads(call, place, rounds)
    words = [json.dumps(asdict(call)), str(place), str(rounds)]
    command = [*mpiexec, "-n", str(call.ranks), sys.executable, "-m", "penstock_bench.predict_job"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FailedError(f"a job of {call.ranks} ranks: {done.stderr.strip()[-300:]}")
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def compare(number: int, call: Call, preset: Path, seconds: dict[str, float]) -> list[Pair]:
    """Put predictions beside measurements."""
    pairs = []
    for operation in ("write", "read"):
        said = predictions(call, operation, preset)
        for strategy in STRATEGIES:
            took = seconds.get(f"{strategy} {operation}")
            if took is not None:
                predicted, by = said[strategy]
                pairs.append(Pair(number, call, operation, strategy, predicted, took, by))
    return pairs


def of_call(call: Call, operation: str) -> str:
    """Write a call in the first columns of a line."""
    disk = "flat" if call.chunks is None else "x".join(map(str, call.chunks))
    way = "direct" if call.direct else "cached"
    first = f"{call.memory:<14}{call.shape[0] // 8:>5}{call.ranks:>6}  {disk:<12}{way:<8}"
    return f"{first}{operation:<9}"


def row(pair: Pair) -> str:
    """Write a pair in a line."""
    return (
        f"{of_call(pair.call, pair.operation)}{pair.strategy:<15}{pair.predicted * 1e3:>10.2f}"
        f"{pair.measured * 1e3:>10.2f}{pair.ratio:>7.2f}  {pair.by}"
    )


def called_best(each: list[Pair]) -> Pair:
    """Give the strategy with the shortest prediction."""
    return min(each, key=lambda pair: pair.predicted)


def summary(pairs: list[Pair]) -> str:
    """Say how many predictions are near, and how often the best strategy is called so."""
    if not pairs:
        return "nothing was measured"

    def within(bound: float) -> str:
        near = sum(abs(pair.ratio - 1) <= bound for pair in pairs)
        return f"{near} of {len(pairs)} ({near / len(pairs):.0%})"

    calls: dict[tuple[int, str], list[Pair]] = {}
    for pair in pairs:
        calls.setdefault((pair.case, pair.operation), []).append(pair)

    near = sum(
        called_best(each).measured <= 1.1 * min(pair.measured for pair in each)
        for each in calls.values()
    )

    return (
        f"within 15%: {within(0.15)}; within 35%: {within(0.35)}\n"
        f"the strategy called best is within 10% of the best in {near} of {len(calls)} calls "
        f"({near / len(calls):.0%})"
    )


def main(words: list[str]) -> int:
    """Run the benchmark, and print its table."""
    parser = Parser(prog="python -m penstock_bench predict", description=__doc__)
    parser.add_argument("--preset", type=Path, required=True, help="of penstock calibrate")
    parser.add_argument(
        "--directory", type=Path, default=Path("."), help="where calls are measured"
    )
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", help="2,4,8")
    parser.add_argument("--mebibytes", help="sizes of arrays: 1,4,16,64")
    parser.add_argument("--direct", action="store_true", help="half of the cases by direct I/O")
    parser.add_argument("--mpiexec", help="half of the cases in jobs that this command starts")
    try:
        options = parser.parse_args(words)
        if min(options.cases, options.rounds) < 1:
            raise UsageError("--cases and --rounds are at least 1")
        ranks = counts(options.ranks, "--ranks", [2, 4, 8])
        sizes = counts(options.mebibytes, "--mebibytes", [1, 4, 16, 64])
        if not options.preset.is_file():
            raise UsageError(f"there is no file {options.preset}: penstock calibrate writes one")
    except UsageError as error:
        complain(error)
        return 2
    chance = random.Random(options.seed)
    starters = [[], shlex.split(options.mpiexec)] if options.mpiexec else [[]]
    ways = [False, True] if options.direct else [False]
    print(
        f"{'memory':<14}{'MiB':>5}{'ranks':>6}  {'disk':<12}{'way':<8}{'call':<9}{'strategy':<15}"
        f"{'said, ms':>10}{'took, ms':>10}{'ratio':>7}  by"
    )
    pairs: list[Pair] = []
    for number in range(options.cases):
        call = draw(chance, ranks, sizes, ways)
        place = Path(tempfile.mkdtemp(prefix="penstock-predict-", dir=options.directory))
        try:
            starter = starters[number % len(starters)]
            seconds = measured(call, place, options.rounds, starter)
            found = compare(number, call, options.preset, seconds)
        except FailedError as error:
            complain(error)
            return 1
        finally:
            shutil.rmtree(place)
        pairs += found
        for pair in found:
            print(row(pair), flush=True)
    print(f"\n{summary(pairs)}")
    return 0
