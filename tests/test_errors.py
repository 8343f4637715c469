"""Every mistake is an error of the right kind, with the same words on every rank, after which the
session goes on."""

from __future__ import annotations

import shutil
import threading
import time

import numpy as np
import pytest
from helpers import assert_alike, caught, fails, mounted_tmpfs, ramp

import penstock as ps

BLOCKS = ps.Distribution("BLOCK,*", (3,))
SHAPE = (6, 4)


def array(name="u", shape=SHAPE, dtype="f8", memory=BLOCKS, disk=None, **more) -> ps.Array:
    disk = ps.Chunks(tuple(2 for _ in shape)) if disk is None else disk
    return ps.Array(name, shape, dtype, memory=memory, disk=disk, **more)


def zeros(u: ps.Array, rank: int) -> np.ndarray:
    return np.zeros(u.local_shape(rank), u.dtype)


def writes(path, u, local=None, **more):
    """A write of `u`, which may depend on the rank, and so may its local array."""

    def main(session):
        mine = u(session.rank) if callable(u) else u
        part = zeros(mine, session.rank) if local is None else local(mine, session.rank)
        return session.write(path, mine, part, **more)

    return main


def reads(path, u, out=None):
    def main(session):
        mine = u(session.rank) if callable(u) else u
        return session.read(path, mine, out=None if out is None else out(mine, session.rank))

    return main


# ---------------------------------------------------------------------------------------------
# Local arrays
# ---------------------------------------------------------------------------------------------

WRONG_LOCALS = {
    "one row too many": (lambda good: np.zeros((3, 4)), "[3, 4]"),
    "another number of dimensions": (lambda good: good.ravel(), "[8]"),
    "another type": (lambda good: good.astype("f4"), "float32"),
    "an integer type of the same width": (lambda good: good.astype("i8"), "int64"),
    "a list": (lambda good: good.tolist(), ""),
    "nothing": (lambda good: None, ""),
    "the other byte order": (lambda good: good.astype(">f8"), "byte order"),
    "objects": (lambda good: good.astype(object), ""),
    "records": (lambda good: np.zeros((2, 4), [("a", "f4"), ("b", "f4")]), ""),
    "text": (lambda good: np.zeros((2, 4), "U2"), ""),
}


@pytest.mark.parametrize("wrong", WRONG_LOCALS)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_wrong_local_array_on_one_rank(place, wrong, rank):
    make, words = WRONG_LOCALS[wrong]

    def local(u, mine):
        good = zeros(u, mine)
        return make(good) if mine == rank else good

    error = fails(ps.SchemaError, writes(place / "g", array(), local), f"rank {rank}", words)
    assert error.rank == rank and not list(place.iterdir())


@pytest.mark.parametrize("wrong", [name for name in WRONG_LOCALS if name != "nothing"])
def test_a_wrong_array_to_read_into(place, wrong):
    make, words = WRONG_LOCALS[wrong]
    ps.run(writes(place / "g", array()), 3)

    def out(u, mine):
        good = zeros(u, mine)
        return make(good) if mine == 2 else good

    assert fails(ps.SchemaError, reads(place / "g", array(), out), "rank 2", words).rank == 2


def test_a_read_only_array_to_read_into(place):
    ps.run(writes(place / "g", array()), 3)

    def out(u, mine):
        good = zeros(u, mine)
        good.flags.writeable = mine != 1
        return good

    fails(ps.SchemaError, reads(place / "g", array(), out), "rank 1", "read-only")
    # To write from it is another matter.
    ps.run(writes(place / "g", array(), out), 3)


def test_what_is_no_array_schema(place):
    def main(session):
        return session.write(place / "g", "u" if session.rank == 1 else array(), np.zeros((2, 4)))

    fails(ps.SchemaError, main, "rank 1")


# ---------------------------------------------------------------------------------------------
# Schemas
# ---------------------------------------------------------------------------------------------


def test_a_mesh_of_more_places_than_ranks(place):
    u = array(memory=ps.Distribution("BLOCK,BLOCK", (2, 2)))
    fails(ps.SchemaError, writes(place / "g", u), "4 places", "3 ranks")
    with ps.Session() as s:
        text = str(caught(lambda: s.explain(place / "g", u)))
    assert "4 places" in text


BAD_SCHEMAS = {
    "an unknown word": lambda: array(memory=ps.Distribution("BLOCK,BLOB", (2, 1))),
    "a cyclic width of zero": lambda: array(memory=ps.Distribution("CYCLIC(0),*", (2,))),
    "a negative cyclic width": lambda: array(memory=ps.Distribution("CYCLIC(-2),*", (2,))),
    "a word that is no number": lambda: array(memory=ps.Distribution("CYCLIC(x),*", (2,))),
    "an empty word": lambda: array(memory=ps.Distribution("BLOCK,", (2, 1))),
    "too few words": lambda: array(memory=ps.Distribution("BLOCK", (2,))),
    "too many words": lambda: array(memory=ps.Distribution("BLOCK,*,*", (2,))),
    "too few mesh extents": lambda: array(memory=ps.Distribution("BLOCK,BLOCK", (2,))),
    "too many mesh extents": lambda: array(memory=ps.Distribution("BLOCK,*", (2, 1))),
    "a mesh extent of zero": lambda: array(memory=ps.Distribution("BLOCK,*", (0,))),
    "a negative mesh extent": lambda: array(memory=ps.Distribution("BLOCK,*", (-1,))),
    "a mesh of floats": lambda: array(memory=ps.Distribution("BLOCK,*", (1.5,))),
    "words that are no string": lambda: array(memory=ps.Distribution(["BLOCK"], (1,))),
    "a negative halo": lambda: array(memory=ps.Distribution("BLOCK,*", (1,), halo=-1)),
    "a halo of too few widths": lambda: array(memory=ps.Distribution("BLOCK,*", (1,), halo=(1,))),
    "a halo of text": lambda: array(memory=ps.Distribution("BLOCK,*", (1,), halo="12")),
    "a halo of floats": lambda: array(memory=ps.Distribution("BLOCK,*", (1,), halo=(0.5, 1))),
    "a negative extent": lambda: array(shape=(-1, 2)),
    "an extent that is no integer": lambda: array(shape=(2.5, 2)),
    "an extent beyond 64 bits": lambda: array(shape=(2**70, 2)),
    "a dtype of text": lambda: array(dtype="U3"),
    "an unknown dtype": lambda: array(dtype="float7"),
    "a dtype of records of text": lambda: array(dtype=[("a", "U3")]),
    "quadruple precision": lambda: array(dtype="f16"),
    "memory that is no schema": lambda: array(memory="BLOCK,*"),
    "a disk that is no schema": lambda: array(disk="zarr"),
    "an unknown format": lambda: ps.RowMajor("csv"),
    "a halo on disk": lambda: array(disk=ps.Distribution("BLOCK,*", (2,), halo=1)),
    "attributes that JSON cannot hold": lambda: array(attrs={"a": object()}),
    "a name that is no string": lambda: array(name=3),
    "dimension names of a number": lambda: array(dims=3),
    "no servers": lambda: ps.Session(servers=0),
    "minus one server": lambda: ps.Session(servers=-1),
    "blocks of nothing": lambda: ps.Session(block_bytes=0),
    "no ranks": lambda: ps.run(lambda s: None, ranks=0),
    "no servers on threads": lambda: ps.run(lambda s: None, ranks=2, servers=0),
    "blocks of nothing on threads": lambda: ps.run(lambda s: None, ranks=2, block_bytes=0),
}


@pytest.mark.parametrize("wrong", BAD_SCHEMAS)
def test_what_does_not_fit_is_a_schema_error(wrong):
    """At once, or when it is used: never anything but an error of ours."""

    def use():
        made = BAD_SCHEMAS[wrong]()
        made.local_shape(0)
        made._spec.check(8)

    with pytest.raises(ps.SchemaError) as met:
        use()
    assert len(str(met.value)) > 10


BAD_DISKS = {
    "too few chunk extents": (ps.Chunks((2,)), "chunk"),
    "a chunk extent of zero": (ps.Chunks((2, 0)), "0"),
    "subchunks that do not divide": (ps.Chunks((4, 4), subchunks=(3, 4)), "[3, 4]"),
    "too many subchunk extents": (ps.Chunks((4, 4), subchunks=(2, 2, 2)), "[2, 2, 2]"),
    "a subchunk extent of zero": (ps.Chunks((4, 4), subchunks=(0, 2)), "0"),
    "an unknown codec": (ps.Chunks((2, 2), codec="lzma"), "lzma"),
    "an empty codec": (ps.Chunks((2, 2), codec=""), "zstd"),
    "a level that is none": (ps.Chunks((2, 2), codec="zstd:fast"), "zstd:fast"),
    "a level out of range": (ps.Chunks((2, 2), codec="zstd:99"), "22"),
    "an unknown blosc": (ps.Chunks((2, 2), codec="blosc:brotli"), "brotli"),
    "a blosc level out of range": (ps.Chunks((2, 2), codec="blosc:lz4:10"), "9"),
    "an unknown shuffle": (ps.Chunks((2, 2), codec="blosc:lz4:5:riffle"), "bitshuffle"),
    "a checksum twice": (ps.Chunks((2, 2), codec="crc32c+crc32c"), "crc32c"),
    "too few part words": (ps.Distribution("BLOCK", (2,)), ""),
    "too many part mesh extents": (ps.Distribution("BLOCK,*", (2, 2)), "mesh"),
    "no parts": (ps.Distribution("BLOCK,*", (0,)), "mesh"),
    "more bytes than there are": (ps.Chunks((2**62, 2**62)), ""),
}


@pytest.mark.parametrize("wrong", BAD_DISKS)
def test_a_disk_schema_that_does_not_fit(place, wrong):
    disk, word = BAD_DISKS[wrong]
    fails(ps.SchemaError, writes(place / "g", array(disk=disk)), word)
    assert not list(place.iterdir())


@pytest.mark.parametrize("words", ["CYCLIC,*", "*,CYCLIC(2)", "BLOCK,CYCLIC"])
def test_cyclic_parts_are_not_supported(place, words):
    mesh = (2,) * (2 - words.count("*"))
    u = array(disk=ps.Distribution(words, mesh))
    fails(ps.UnsupportedError, writes(place / "d", u), "CYCLIC", "BLOCK")
    assert not list(place.iterdir())


def test_attributes_with_npy_are_not_supported(place):
    u = array(disk=ps.RowMajor("npy"))
    fails(ps.UnsupportedError, writes(place / "u.npy", u, attrs={"a": 1}), ".npy")
    assert not list(place.iterdir())


@pytest.mark.parametrize("value", [object(), 1 + 2j, {1, 2}, b"bytes", np.datetime64(1, "s")])
def test_attributes_that_json_cannot_hold(place, value):
    fails(ps.SchemaError, writes(place / "g", array(), attrs={"a": value}), "rank 0")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "__meta", "zarr.json", "nul\0"])
@pytest.mark.parametrize("disk", [ps.Chunks((2, 2)), ps.Distribution("BLOCK,*", (2,))])
def test_names_that_are_no_file_names(place, name, disk):
    fails(ps.SchemaError, writes(place / "g", array(name=name, disk=disk)))
    assert not list(place.iterdir())


@pytest.mark.parametrize("name", ["u v", "größe", "a.b", ".hidden", "-x", "c", "%41", "u" * 200])
def test_names_that_are_unusual(place, name):
    u = array(name=name)
    ps.run(writes(place / "g", u), 3)
    ps.run(reads(place / "g", u), 3)
    import zarr

    assert zarr.open_array(store=place / "g", path=name, mode="r").shape == SHAPE


def test_dimension_names_that_do_not_fit(place):
    fails(ps.SchemaError, writes(place / "g", array(dims=("x",))), "1 dimension name")


# ---------------------------------------------------------------------------------------------
# Boxes
# ---------------------------------------------------------------------------------------------


def boxed(*boxes):
    return lambda rank: array(memory=ps.Boxes(*boxes[rank]))


def test_overlapping_boxes(place):
    u = boxed(((0, 0), (2, 4)), ((2, 0), (3, 4)), ((4, 3), (2, 1)))
    error = fails(ps.OverlapError, writes(place / "g", u), "1", "2")
    assert "ranks 1 and 2" in str(error) or ("rank 1" in str(error) and "rank 2" in str(error))
    assert not list(place.iterdir())


def test_equal_boxes(place):
    fails(ps.OverlapError, writes(place / "g", boxed(*[((0, 0), (6, 4))] * 3)))


def test_boxes_that_overlap_may_not_be_read_either(place):
    """Or may they? A read of the same elements by two ranks harms nobody: it is refused alike on
    all ranks, or all of them get what is there."""
    ps.run(writes(place / "g", array()), 3)
    main = reads(place / "g", boxed(*[((0, 0), (6, 4))] * 3))
    met = ps.run(lambda s: caught(lambda: main(s)), 3)
    if any(isinstance(one, ps.Error) for one in met):
        assert_alike(met, ps.OverlapError)
    else:
        assert all(np.array_equal(one, np.zeros(SHAPE)) for one in met)


@pytest.mark.parametrize(
    "box", [((5, 0), (2, 4)), ((0, 5), (1, 1)), ((2**62, 0), (2**62, 1)), ((6, 0), (1, 1))]
)
def test_a_box_out_of_bounds(place, box):
    u = boxed(((0, 0), (1, 1)), box, ((1, 0), (1, 1)))

    def local(mine, rank):
        return np.zeros(mine.local_shape(rank)) if rank != 1 or box[1][0] < 9 else np.zeros((1, 1))

    error = fails(ps.SchemaError, writes(place / "g", u, local))
    assert "rank 1" in str(error)


def test_a_box_of_another_number_of_dimensions(place):
    u = boxed(((0, 0), (1, 1)), ((0,), (1,)), ((1, 0), (1, 1)))

    def local(mine, rank):
        return np.zeros((1,)) if rank == 1 else zeros(mine, rank)

    fails(ps.SchemaError, writes(place / "g", u, local))


def test_a_box_whose_start_and_shape_differ_in_length():
    with pytest.raises(ps.SchemaError):
        array(memory=ps.Boxes((0, 0), (1,)))


# ---------------------------------------------------------------------------------------------
# Ranks that do not agree
# ---------------------------------------------------------------------------------------------

DIFFERENT = {
    "name": lambda rank: array(name="uv"[rank == 1]),
    "shape": lambda rank: array(shape=(6, 4 + (rank == 1))),
    "dtype": lambda rank: array(dtype="f4" if rank == 1 else "f8"),
    "distribution": lambda rank: array(
        memory=ps.Distribution("CYCLIC,*" if rank == 1 else "BLOCK,*", (3,))
    ),
    "chunks": lambda rank: array(disk=ps.Chunks((2, 2 + (rank == 1)))),
    "codec": lambda rank: array(disk=ps.Chunks((2, 2), codec="zstd" if rank == 1 else "none")),
    "form": lambda rank: array(disk=ps.RowMajor() if rank == 1 else ps.RowMajor("npy")),
    "attributes": lambda rank: array(attrs={"rank": rank}),
    "dimension names": lambda rank: array(dims=("x", f"y{rank}")),
    "boxes or not": lambda rank: array(memory=ps.Boxes((2, 0), (2, 4)) if rank == 1 else BLOCKS),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_ranks_that_ask_for_different_arrays(place, what):
    error = fails(ps.MismatchError, writes(place / "g", DIFFERENT[what]), "rank 0", "rank 1")
    assert not list(place.iterdir()) and error.cause


def test_ranks_that_name_different_paths(place):
    def main(session):
        return session.write(place / f"g{session.rank == 2}", array(), np.zeros((2, 4)))

    fails(ps.MismatchError, main, "gTrue", "gFalse")


def test_ranks_that_do_different_things(place):
    ps.run(writes(place / "g", array()), 3)

    def main(session):
        if session.rank == 1:
            return session.read(place / "g", array())
        if session.rank == 2:
            return session.barrier()
        return session.write(place / "g", array(), np.zeros((2, 4)))

    fails(ps.MismatchError, main, "read", "write")


def test_halos_may_differ(place):
    """How wide its ghost zone is concerns a rank alone."""
    u = lambda rank: array(memory=ps.Distribution("BLOCK,*", (3,), halo=rank))  # noqa: E731
    ps.run(writes(place / "g", u), 3)
    ps.run(reads(place / "g", u), 3)


# ---------------------------------------------------------------------------------------------
# Paths
# ---------------------------------------------------------------------------------------------

DISKS = {
    "chunks": ps.Chunks((2, 2)),
    "raw": ps.RowMajor(),
    "npy": ps.RowMajor("npy"),
    "parts": ps.Distribution("BLOCK,*", (2,)),
}


@pytest.mark.parametrize("form", DISKS)
def test_a_store_that_is_not_there(place, form):
    error = fails(ps.MissingError, reads(place / "no", array(disk=DISKS[form])), str(place / "no"))
    assert error.path == str(place / "no")


def test_an_array_that_is_not_in_the_group(place):
    ps.run(writes(place / "g", array("u")), 3)
    fails(ps.MissingError, reads(place / "g", array("v")), '"v"', "u")
    with ps.Session() as s, pytest.raises(ps.MissingError):
        s.open(place / "g", "v")


@pytest.mark.parametrize("form", DISKS)
def test_a_parent_directory_that_is_not_there(place, form):
    u = array(disk=DISKS[form])
    fails(ps.MissingError, writes(place / "no" / "g", u), str(place / "no"), "parent")


@pytest.mark.parametrize("form", DISKS)
def test_a_parent_that_is_a_file(place, form):
    (place / "file").write_text("")
    met = ps.run(
        lambda s: caught(lambda: writes(place / "file" / "g", array(disk=DISKS[form]))(s)), 3
    )
    assert isinstance(met[0], ps.Error) and str(place / "file") in str(met[0])
    assert_alike(met, type(met[0]))


@pytest.mark.parametrize("form", DISKS)
def test_something_else_in_the_way_is_not_destroyed(place, form):
    (place / "dir").mkdir()
    (place / "dir" / "precious").write_text("data")
    (place / "file").write_text("data")
    wrong = ["dir"] if form in ("raw", "npy") else ["dir", "file"]
    for name in wrong:
        fails(ps.SchemaError, writes(place / name, array(disk=DISKS[form])), str(place / name))
    assert (place / "dir" / "precious").read_text() == (place / "file").read_text() == "data"
    assert sorted(entry.name for entry in place.iterdir()) == ["dir", "file"]


def test_an_array_in_the_way_of_a_group(place):
    import zarr

    zarr.create_array(place / "g", data=np.ones(3))
    fails(ps.SchemaError, writes(place / "g", array()), "group")
    assert zarr.open_array(place / "g", mode="r")[...].tolist() == [1] * 3


def test_a_group_of_format_2_is_not_written_to(place):
    import zarr

    zarr.create_group(place / "g", zarr_format=2).create_array("u", data=np.ones(3))
    fails(ps.SchemaError, writes(place / "g", array()), "format 2")
    assert zarr.open_group(place / "g", mode="r")["u"][...].tolist() == [1] * 3


@pytest.mark.parametrize("form", DISKS)
def test_what_is_stored_has_another_shape_or_type(place, form):
    ps.run(writes(place / "g", array(disk=DISKS[form])), 3)
    for other in (array(shape=(7, 4), disk=DISKS[form]), array(dtype="f4", disk=DISKS[form])):
        met = ps.run(lambda s, u=other: caught(lambda: reads(place / "g", u)(s)), 3)
        # A raw file is what the reader says, if it has that length.
        kind = ps.DamagedError if form == "raw" else ps.SchemaError
        assert_alike(met, kind, str(place / "g"))


def test_open_a_group_of_several(place):
    ps.run(writes(place / "g", array("u")), 3)
    ps.run(writes(place / "g", array("v")), 3)
    with ps.Session() as s:
        with pytest.raises(ps.SchemaError, match="u, v"):
            s.open(place / "g")
        assert s.open(place / "g", "v").name == "v"


def test_a_read_only_file_system():
    with mounted_tmpfs("size=256k") as mounted:
        if mounted is None:
            pytest.skip("needs the right to mount a tmpfs")
        import subprocess

        arrays = {form: array(disk=disk) for form, disk in DISKS.items()}
        for form, u in arrays.items():
            ps.run(writes(mounted / form, u), 3)
        subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
        for form, u in arrays.items():
            error = fails(ps.ReadOnlyError, writes(mounted / form, u), str(mounted))
            assert error.path.startswith(str(mounted))
            fails(ps.ReadOnlyError, writes(mounted / "new", u), str(mounted))
            ps.run(reads(mounted / form, u), 3)


# ---------------------------------------------------------------------------------------------
# Sessions
# ---------------------------------------------------------------------------------------------


def test_a_closed_session(place):
    session = ps.Session()
    session.close()
    for call in (
        lambda: session.write(place / "g", array(memory=None), ramp(SHAPE)),
        lambda: session.read(place / "g", array(memory=None)),
        lambda: session.barrier(),
    ):
        with pytest.raises(ps.SchemaError, match="closed"):
            call()
    session.close()


class Own(Exception):
    """Of no kind that Penstock knows."""


@pytest.mark.parametrize("raiser", [0, 1, 3])
@pytest.mark.parametrize("dedicated", [False, True])
@pytest.mark.parametrize("what", ["write", "barrier", "the end"])
def test_a_rank_that_raises_while_others_wait(place, raiser, dedicated, what):
    """They get PeerError, with its words; `run` raises the original."""
    met: list = [None] * 4
    u = array(memory=ps.Distribution("BLOCK,*", (4,)))

    def main(session):
        if session.rank == raiser:
            raise Own("of my own")
        if what == "the end":
            return
        try:
            if what == "write":
                session.write(place / "g", u, zeros(u, session.rank))
            else:
                session.barrier()
        except ps.PeerError as error:
            met[session.rank] = error
            raise

    with pytest.raises(Own, match="of my own"):
        ps.run(main, 4, servers=2, dedicated=dedicated)
    if what != "the end":
        others = [error for rank, error in enumerate(met) if rank != raiser]
        assert_alike(others, ps.PeerError, f"rank {raiser}", "Own: of my own")
        assert others[0].rank == raiser
    assert not list(place.iterdir())


def test_a_session_after_a_peer_is_lost(place):
    """Every further call fails at once: nothing waits for what cannot come."""

    def main(session):
        if session.rank == 1:
            raise Own
        for _ in range(3):
            assert isinstance(caught(session.barrier), ps.PeerError)

    with pytest.raises(Own):
        ps.run(main, 3)
    ps.run(writes(place / "g", array()), 3)


def test_a_rank_that_leaves_without_a_word():
    """It returns early: what the others then call does not match its closing."""

    def main(session):
        if session.rank != 1:
            session.barrier()

    with pytest.raises((ps.MismatchError, ps.PeerError)):
        ps.run(main, 3)


def test_an_interrupt_in_one_rank_ends_all():
    def main(session):
        if session.rank == 0:
            raise KeyboardInterrupt
        session.barrier()

    with pytest.raises(KeyboardInterrupt):
        ps.run(main, 3)


def test_a_session_that_is_dropped():
    """Without `with` or `close`: the others are told."""

    def main(session):
        if session.rank == 1:
            session._session = None  # as when the last reference goes
            raise Own
        return caught(session.barrier)

    with pytest.raises((Own, AttributeError)):
        ps.run(main, 2)


def test_two_threads_in_one_session(place):
    """One of them is told; nothing is broken."""
    with ps.Session() as session:
        u = array(memory=None)
        met = []

        def use():
            for _ in range(20):
                met.append(caught(lambda: session.write(place / "g", u, ramp(SHAPE))))

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        errors = [error for error in met if isinstance(error, ps.Error)]
        assert all(isinstance(error, ps.SchemaError) for error in errors)
        assert all("thread" in str(error) for error in errors) and len(errors) < len(met)
        assert np.array_equal(session.read(place / "g", u), ramp(SHAPE))


def test_a_second_session_on_one_seat():
    def main(session):
        return caught(ps.Session)

    assert_alike(ps.run(main, 2), ps.SchemaError, "already")


@pytest.mark.parametrize("attrs", [None, {"units": "K"}])
def test_a_wrong_region_is_said_to_be_wrong_with_attributes_too(tmp_path, attrs):
    array = ps.Array("u", shape=(4,), dtype="f8", disk=ps.Chunks((2,)))
    with ps.Session() as s, pytest.raises(ps.SchemaError, match="have no steps"):
        s.write(tmp_path / "run.zarr", array, np.zeros(2), attrs, region=slice(0, 4, 2))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", ["M8[ns]", "f16", [("a", "f16")]])
def test_elements_that_there_are_not_are_named(tmp_path, dtype):
    array = ps.Array("u", shape=(4,), dtype="f8", disk=ps.Chunks((2,)))
    local = np.zeros(4, dtype)
    with ps.Session() as s, pytest.raises(ps.SchemaError, match="no such element type") as error:
        s.write(tmp_path / "run.zarr", array, local)
    assert f"reading the dtype {local.dtype}" in str(error.value)


# ---------------------------------------------------------------------------------------------
# What a rank does before it comes
# ---------------------------------------------------------------------------------------------


def in_turn(place, u, late):
    """Rank 0 comes to write `u`; `late` is what rank 1 does after that, and before it comes itself.
    Nothing has changed by then. Gives what both met."""
    target = place / "g"
    comes = threading.Event()

    def main(session):
        if session.rank == 0:
            comes.set()
        else:
            before = names_in(place)
            comes.wait(60)
            time.sleep(0.05)  # time for rank 0 to do what it must not do yet
            assert names_in(place) == before
            late(target)
        return caught(lambda: session.write(target, u, zeros(u, session.rank) + 7))

    return ps.run(main, 2)


def names_in(place):
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else None


HALVES = ps.Distribution("BLOCK,*", (2,))


def without(target):
    shutil.rmtree(target) if target.is_dir() else target.unlink()


def without_all(target):
    shutil.rmtree(target.parent)
    target.parent.mkdir()


def with_file(target):
    target.write_text("")


def with_group(target):
    def write():
        with ps.Session() as session:
            session.write(target, array("v", memory=None), ramp(SHAPE))

    another = threading.Thread(target=write)  # which has no seat in this job
    another.start()
    another.join()


def with_link(target):
    elsewhere = target.parent / "elsewhere"
    elsewhere.mkdir()
    target.symlink_to(elsewhere)


@pytest.mark.parametrize("disk", [None, "natural", ps.RowMajor(), HALVES])
@pytest.mark.parametrize("change", [without, without_all, with_link])
def test_what_a_rank_does_before_it_comes_is_seen(tmp_path, disk, change):
    u = ps.Array("u", SHAPE, "f8", memory=HALVES) if disk == "natural" else None
    u = u or array(memory=HALVES, disk=disk)
    place = tmp_path / "place"
    place.mkdir()
    if change is with_link and isinstance(disk, ps.RowMajor):
        pytest.skip("a file does not go to a directory")
    if change is not with_link:
        ps.run(writes(place / "g", u), 2)
    assert not any(isinstance(met, ps.Error) for met in in_turn(place, u, change))
    with ps.Session() as session:
        whole = array(memory=None)
        assert np.array_equal(session.read(place / "g", whole), np.full(SHAPE, 7.0))
    assert [path.name for path in place.iterdir() if path.name.startswith(".")] == []


def test_a_directory_that_another_rank_makes_before_it_comes(tmp_path):
    u = array(memory=HALVES)
    place = tmp_path / "place"
    met = in_turn(place, u, lambda target: target.parent.mkdir())
    assert not any(isinstance(one, ps.Error) for one in met)


def test_an_array_that_another_rank_writes_before_it_comes_stays(tmp_path):
    u = array(memory=HALVES)
    met = in_turn(tmp_path, u, with_group)
    assert not any(isinstance(one, ps.Error) for one in met)
    with ps.Session() as session:
        assert np.array_equal(session.read(tmp_path / "g", array("v", memory=None)), ramp(SHAPE))
        assert np.all(session.read(tmp_path / "g", array(memory=None)) == 7)


def test_a_file_that_another_rank_makes_before_it_comes_is_in_the_way(tmp_path):
    met = in_turn(tmp_path, array(memory=HALVES), with_file)
    assert_alike(met, ps.SchemaError, "it is a file")
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_ranks_that_differ_make_nothing(tmp_path):
    def main(session):
        u = array(memory=HALVES, dtype="f8" if session.rank == 0 else "f4")
        return caught(lambda: session.write(tmp_path / "g", u, zeros(u, session.rank)))

    assert_alike(ps.run(main, 2), ps.MismatchError, "float32")
    assert not any(tmp_path.iterdir())


def test_an_exception_that_leaves_the_session_takes_no_verdict_from_others(tmp_path):
    """The first rank to hear the verdict leaves at once, while others have yet to hear it."""
    for attempt in range(40):
        met = [None] * 12

        def main(session, met=met):
            u = array(memory=HALVES, dtype="f8" if session.rank else "f4")
            try:
                session.write(tmp_path / "g", u, zeros(u, session.rank))
            except ps.Error as error:
                met[session.rank] = error
                raise

        with pytest.raises(ps.MismatchError):
            ps.run(main, 12)
        assert_alike(met, ps.MismatchError, "float32")
        assert not any(tmp_path.iterdir()), attempt
