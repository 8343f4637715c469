"""Each pair of a writer and a reader, over all cases that they have: see `pairs.py`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
from helpers import fast_directory, same_bits
from pairs import (
    CASES,
    HDF5,
    NAME,
    NETCDF,
    READERS,
    WRITERS,
    ZARR2,
    Case,
    Reader,
    Writer,
    documented,
    metadata_of,
)

PAGE = Path(__file__).parent.parent / "docs" / "formats.md"
PAIRS = [(w, r) for w in WRITERS for r in READERS if w.form in r.forms]

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs", "ignore::UserWarning")


@pytest.fixture(scope="module")
def written():
    """What a writer has made of all its cases, which it does once."""
    with TemporaryDirectory(prefix="penstock-test-", dir=fast_directory()) as directory:

        @cache
        def stores(number: int) -> list[tuple[Case, Path]]:
            made = []
            for case in WRITERS[number].cases():
                place = Path(directory) / f"{number}" / case.name.replace(" ", "-")
                place.mkdir(parents=True)
                made.append((case, WRITERS[number].write(place, case)))
            return made

        yield lambda writer: stores(WRITERS.index(writer))


@pytest.mark.parametrize("writer", WRITERS, ids=lambda w: f"{w.name}, {w.form}")
def test_stores_are_what_the_cases_say(written, writer: Writer):
    """The byte order, the extents of chunks and the codecs, by the metadata."""
    for case, path in written(writer):
        swapped = np.dtype(case.dtype).str[0] == ">"
        if writer.form in (HDF5, NETCDF):
            with h5py.File(path) as file:
                stored = file[NAME]
                parts = stored.dtype if stored.dtype.names is None else stored.dtype[0]
                assert (np.dtype(parts).str[0] == ">") == swapped, case.name
                assert stored.shape == case.shape, case.name
                if 0 not in case.shape and case.chunks:
                    assert stored.chunks == case.chunks, case.name
                has_filters = stored.id.get_create_plist().get_nfilters() > 0
                assert has_filters == (case.codec != "none"), case.name
            continue
        about = metadata_of(path, writer.form)
        text = json.dumps(about)
        assert tuple(about["shape"]) == case.shape, case.name
        if writer.form == ZARR2:
            assert (about["dtype"][0] == ">") == swapped and about["order"] == case.order
            continue
        assert ('"big"' in text) == swapped, case.name
        assert ("transpose" in text) == (case.order == "F"), case.name
        word = {"sharding": "sharding_indexed"}.get(case.codec, case.codec)
        assert case.codec == "none" or word in text, case.name


@pytest.mark.parametrize(
    ("writer", "reader"), PAIRS, ids=[f"{w.name}, {w.form} to {r.name}" for w, r in PAIRS]
)
def test_a_pair(written, writer: Writer, reader: Reader):
    wrong = []
    for case, path in written(writer):
        if reader.may_crash(writer.form, case):
            continue
        try:
            found = reader.read(path, writer.form)
        except Exception as error:  # noqa: BLE001 - each reader has errors of its own
            came, met = False, repr(error)
        else:
            found = found.astype(found.dtype.newbyteorder("="), copy=False)
            came, met = same_bits(found, case.data), f"{found.dtype} of {found.shape}"
        excuse = reader.excuse(writer.form, case)
        if came == (excuse is not None):
            wrong.append(f"{case.name}: {met}, excuse: {excuse}")
    assert not wrong, "\n".join(wrong)


def test_every_excuse_is_of_a_case():
    for excuses in (each.lacks for each in WRITERS):
        for key in excuses:
            assert any(set(key.split()) <= set(case.name.split()) for case in CASES), key


def test_the_table_is_that_of_the_page():
    page = PAGE.read_text()
    assert page == documented(page), "python tools/pairs.py writes it"
