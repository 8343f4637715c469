"""This module runs a benchmark in one directory after the other, and prints a table for each."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from penstock_bench.command import MIB, FailedError, Parser, UsageError, check_directory, complain
from penstock_bench.meters import real_time


def run_in_each(
    parser: Parser,
    words: list[str],
    table: Callable[[Path, argparse.Namespace], str],
    *,
    name: str,
    counts: Sequence[str],
) -> int:
    """Run a benchmark named `name` in an empty directory of each place, and return its exit code.

    It needs five times ``--mib``. The options in `counts` are numbers of at least 1.
    """
    parser.add_argument(
        "--real-time", action="store_true", help="keep other programs of the machine out of it"
    )
    parser.add_argument(
        "--directory", type=Path, action="append", help="default: here, and /dev/shm"
    )
    try:
        options = parser.parse_args(words)
        if min(getattr(options, count) for count in counts) < 1:
            *others, last = (f"--{count}" for count in counts)
            raise UsageError(f"{', '.join(others)} and {last} are at least 1")
        directories = options.directory or [Path.cwd(), Path("/dev/shm")]
        for directory in directories:
            check_directory(directory, 5 * options.mib * MIB, "the benchmark")
        for directory in directories:
            # What this program starts has its priority, too.
            priority = real_time() if options.real_time else nullcontext()
            scratch = tempfile.TemporaryDirectory(prefix=f"penstock-{name}-", dir=directory)
            with priority, scratch as made:
                print(table(Path(made), options), flush=True)
    except UsageError as error:
        complain(error)
        return 2
    except FailedError as error:
        complain(error)
        return 1
    return 0
