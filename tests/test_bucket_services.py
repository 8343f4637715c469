"""Buckets of another service than moto's, gofakes3 in Go: tests of `test_buckets` again."""

from __future__ import annotations

import pytest
from buckets import gofakes3, reached
from test_buckets import (  # noqa: F401 - they run here, too
    test_a_part_is_written_whole_or_not_at_all,
    test_a_write_that_is_killed_at_any_request,
    test_an_open_array_is_changed_in_place,
    test_only_one_job_writes_an_array,
    test_others_read_it,
    test_unusual_shapes,
    test_what_is_not_there,
)


@pytest.fixture(scope="module")
def bucket():
    program = gofakes3()
    if program is None:
        pytest.skip("needs gofakes3, or Go to build it")
    with reached(program) as running:
        yield running
