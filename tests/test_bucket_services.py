"""Buckets of moto's server, in Python: what gofakes3 cannot tell, and tests that run there, too."""

from __future__ import annotations

import pytest
from buckets import BUCKET, Service, reached, url
from helpers import same_bits, values
from test_bucket_groups import (  # noqa: F401 - it runs here, too
    test_moments_after_a_restart_are_dropped,
)
from test_buckets import (  # noqa: F401
    array,
    load,
    save,
    test_a_new_array_has_other_keys_and_the_old_ones_go,
    test_a_part_is_written_whole_or_not_at_all,
    test_a_write_that_is_killed_at_any_request,
    test_an_open_array_is_changed_in_place,
    test_another_program_that_replaces_the_array_meanwhile_is_noticed,
    test_only_one_job_writes_an_array,
    test_others_read_it,
    test_unusual_shapes,
    test_what_is_looked_at,
    test_what_is_not_there,
)

import penstock as ps


@pytest.fixture(scope="module")
def bucket():
    with reached() as running:
        yield running


def test_a_large_chunk_goes_by_several_requests(bucket: Service):
    whole = values((3, 1 << 20), "f8", 3)  # 24 MiB
    u = array(ps.Chunks((3, 1 << 20)), shape=whole.shape)
    save(url("large.zarr"), u, whole)
    assert bucket.client.head_object(Bucket=BUCKET, Key="large.zarr/u/c/0/0")["ETag"].endswith(
        '-3"'
    )
    assert same_bits(load(url("large.zarr")), whole)
