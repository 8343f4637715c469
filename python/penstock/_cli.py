"""``python -m penstock``: becomes the program ``penstock`` that was installed with the package."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig


def program() -> str:
    """The path of the program.

    Raises
    ------
    FileNotFoundError
        When it was not installed: a build of the extension alone has none.
    """
    beside = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    found = shutil.which("penstock", path=os.pathsep.join(beside)) or shutil.which("penstock")
    if found is None:
        raise FileNotFoundError(
            f"the program 'penstock' is neither in {' nor in '.join(dict.fromkeys(beside))} nor on "
            "the path: install the package again (in a checkout: make build)"
        )
    return found


def main() -> None:
    """Become the program, with this process's arguments. It draws plots by this interpreter."""
    os.environ.setdefault("PENSTOCK_PYTHON", sys.executable)
    try:
        path = program()
        os.execv(path, ["penstock", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"penstock: error: {error}")
