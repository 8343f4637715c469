"""The command ``penstock``."""

from __future__ import annotations

import signal
import sys

from penstock import _core


def main() -> int:
    """Runs the command that the program's arguments say, and returns its exit code."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["bench"]:
        if arguments[1:2] == ["panda"]:
            from penstock._bench_panda import main as bench
        else:
            from penstock._bench_dickens_thakur import main as bench

        return bench(arguments[1:])
    # It runs outside of Python, which would notice Ctrl-C only at its end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_command(["penstock", *arguments], sys.executable or "python3")
