"""The program by which `make lint` checks types is one that works, and options agree with types."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path

import penstock as ps
from penstock._options import Options

USER_PROGRAM = Path(__file__).parent / "typing" / "user_program.py"


def test_the_user_program_runs_on_threads(place):
    program = runpy.run_path(str(USER_PROGRAM))
    assert ps.run(lambda s: program["main"](s, place), ranks=4) == [0, 1, 2, 3]


def test_its_options_are_accepted(place):
    runpy.run_path(str(USER_PROGRAM))["options"](place)


def test_its_files_are_made(place):
    runpy.run_path(str(USER_PROGRAM))["files"](place)


def test_keywords_of_a_session_are_the_fields_of_its_options():
    fields = {field.name: field.type for field in dataclasses.fields(ps.SessionOptions)}
    keywords = {name: kind.__forward_arg__ for name, kind in Options.__annotations__.items()}
    assert keywords == fields
