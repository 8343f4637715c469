"""The command ``penstock``."""

from __future__ import annotations

import signal
import sys

from penstock import _core


def main() -> int:
    """Runs the command that the program's arguments say, and returns its exit code."""
    # It runs outside of Python, which would notice Ctrl-C only at its end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _core.run_command(["penstock", *sys.argv[1:]], sys.executable or "python3")
