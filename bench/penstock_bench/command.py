"""This module has what all commands need: options, errors of one line, and a progress bar."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

MIB = 1 << 20


class UsageError(Exception):
    """The options make no sense together; the message is one line for the user."""


class FailedError(Exception):
    """Something could not be measured; the message is one line for the user."""


class Parser(argparse.ArgumentParser):
    """This parser raises an error where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(message)


def complain(message: object) -> None:
    """Say on the standard error what is wrong."""
    print(f"penstock-bench: error: {message}", file=sys.stderr, flush=True)


def parse_dims(text: str, option: str) -> tuple[int, ...]:
    """Read extents such as ``512x512x256`` or ``512,512,256``."""
    words = text.replace("x", ",").split(",")
    if not all(word.strip().isdigit() and int(word) > 0 for word in words):
        raise UsageError(f"{option} {text!r}: expected positive integers such as 512x512x256")
    return tuple(int(word) for word in words)


def dims_text(dims: Sequence[int]) -> str:
    """Write ``(2, 2, 2)`` as ``2x2x2``."""
    return "x".join(str(extent) for extent in dims)


def counts(text: str | None, option: str, default: Sequence[int]) -> list[int]:
    """Read ``2,4,8``, and sort it."""
    if text is None:
        return list(default)
    words = text.split(",")
    if not all(word.isdigit() and 0 < int(word) < 2**20 for word in words):
        raise UsageError(f"{option} {text!r}: expected positive integers such as 2,4,8")
    return sorted({int(word) for word in words})


def listed(values: Sequence[int]) -> str:
    """Write numbers as an option has them: ``2,4,8``."""
    return ",".join(map(str, values))


def check_directory(path: Path, bytes_: float, what: str) -> None:
    """Refuse a directory that is missing, not writable, or too small for `what`."""
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise UsageError(f"{path} is not a directory that can be written to")
    free = shutil.disk_usage(path).free
    if free < bytes_:
        raise UsageError(f"{path} has {free / 1e6:.0f} MB free, {what} needs {bytes_ / 1e6:.0f} MB")


def check_output(name: str) -> None:
    """Refuse a file whose directory cannot be written to."""
    if not os.access(Path(name).absolute().parent, os.W_OK):
        raise UsageError(f"cannot write {name}: its directory cannot be written to")


def progress_bar(steps: int, shown: bool) -> tqdm[NoReturn]:
    """Make a bar on the standard error, which goes away at its end."""
    tqdm.monitor_interval = 0  # no thread beside what is measured
    return tqdm(
        total=steps,
        disable=not shown,
        leave=False,
        mininterval=0,
        ncols=100,
        bar_format="[{bar:24}] {n_fmt}/{total_fmt}{postfix}",
    )


def show_step(bar: tqdm[NoReturn], text: str) -> None:
    """Count a step that begins now."""
    bar.set_postfix_str(text, refresh=False)
    bar.update()
