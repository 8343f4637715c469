"""The program that draws the plots, in this process."""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

PROGRAM = Path(__file__).resolve().parent.parent / "crates" / "cli" / "assets" / "plots.py"


@cache
def program() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("plots_under_test", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def draw_here(figure: dict, stem: Path) -> None:
    """What `penstock_bench.figures.draw` does with a process for each figure."""
    program().draw("figure", str(stem), json.dumps(figure))
