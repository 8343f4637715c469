"""Penstock for xarray: the engine that reads, and the accessor that writes.

    import penstock.xarray
    import xarray as xr

    ds = xr.open_dataset("run.zarr", engine="penstock", chunks={})
    ds.penstock.write("other.zarr", comm=MPI.COMM_WORLD, parts={"x": 100 * rank})

xarray finds the engine by itself. The accessor is there once this module is imported, or the engine
has been used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from xarray import Dataset, register_dataset_accessor
from xarray.backends import BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint

from penstock import _core
from penstock._options import Options
from penstock._report import Report
from penstock._schema import Disk
from penstock._types import Path
from penstock._xarray_parts import Ranks
from penstock._xarray_region import RegionOf, write_region
from penstock._xarray_store import Store, groups_of
from penstock._xarray_target import Mode, is_url, target_at
from penstock._xarray_write import ChunkChoice, Settings, write_whole

if TYPE_CHECKING:
    from mpi4py import MPI
    from xarray import DataTree

__all__ = ["Accessor", "Backend"]

WAIT_SECONDS = 600.0
"""How long a region waits for other writers: longer than many tasks before it take."""


class Backend(BackendEntrypoint):
    """Backend is the engine `penstock` of `xarray.open_dataset`.

    It opens Zarr groups of both formats, Penstock's own among them, groups of HDF5 and NetCDF-4
    files, and arrays of any other form as a data set of one variable.

    Raises
    ------
    Error
        Of the kind that fits, by the methods.

    Notes
    -----
    Variables are read when they are used, each part of one by one call, from any thread or process.
    What is not a number, such as strings, is refused unless `drop_variables` leaves it out.
    """

    description = "Zarr, HDF5 and NetCDF-4, read by the servers of Penstock"
    supports_groups = True
    open_dataset_parameters = (
        "filename_or_obj",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
        "group",
    )

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: str | Iterable[str] | None = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: str | None = None,
    ) -> Dataset:
        """Open a group as a data set.

        Parameters
        ----------
        filename_or_obj : path
            As of `penstock.ls`.
        mask_and_scale, decode_times, concat_characters, decode_coords, use_cftime, decode_timedelta
            As of `xarray.open_dataset`, which decodes.
        drop_variables : str or iterable of str, optional
            Variables that are left out, be they readable or not.
        group : str, optional
            The path of a group in the store or file. Default: its root.

        Returns
        -------
        xarray.Dataset
            The variables and attributes of the group. `chunks={}` makes dask's chunks of those that
            are stored.

        Raises
        ------
        MissingError
            When nothing is there.
        UnsupportedError, DamagedError
            When a variable cannot be read.

        Notes
        -----
        Not collective.
        """
        path = _path(filename_or_obj)
        names = drop_variables or ()
        dropped = [names] if isinstance(names, str) else list(names)
        return StoreBackendEntrypoint().open_dataset(
            Store(path, group, dropped),
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=dropped,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, group: str | None = None, **options: Any
    ) -> dict[str, Dataset]:
        """Open a group and all groups in it.

        Parameters
        ----------
        filename_or_obj, group
            As of `open_dataset`.
        **options
            Others of `open_dataset`.

        Returns
        -------
        dict of str to xarray.Dataset
            The data sets by the paths of their groups, such as `/` and `/fields`.

        Raises
        ------
        Error
            As of `open_dataset`.

        Notes
        -----
        Not collective.
        """
        path, parent = _path(filename_or_obj), (group or "").strip("/")
        return {
            f"/{within}": self.open_dataset(path, group=f"{parent}/{within}", **options)
            for within in groups_of(path, parent)
        }

    def open_datatree(
        self, filename_or_obj: Any, *, group: str | None = None, **options: Any
    ) -> DataTree:
        """Open a group and all groups in it as a tree.

        Parameters
        ----------
        filename_or_obj, group
            As of `open_dataset`.
        **options
            Others of `open_dataset`.

        Returns
        -------
        xarray.DataTree
            The tree.

        Raises
        ------
        Error
            As of `open_dataset`.

        Notes
        -----
        Not collective.
        """
        from xarray import DataTree  # of xarray 2024.10

        return DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, group=group, **options))

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Say whether this engine alone can open what is there.

        Parameters
        ----------
        filename_or_obj : object
            What a program has given to `xarray.open_dataset` without an engine.

        Returns
        -------
        bool
            True for parts and row-major files that Penstock has written. What others open, too, is
            theirs: Zarr, HDF5 and NetCDF-4 take `engine="penstock"`.

        Raises
        ------
        OSError
            When it cannot be looked at.

        Notes
        -----
        Not collective.
        """
        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        path = os.fspath(filename_or_obj)
        beside = os.path.join(path, "schema.json") if os.path.isdir(path) else f"{path}.json"
        try:
            with open(beside, encoding="utf-8") as opened:
                described = json.load(opened)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
        return isinstance(described, dict) and "penstock" in described


def _path(given: Any) -> str:
    """An absolute path: a process with another directory may read what this one has opened. A URL
    is as it is."""
    path: str = os.fspath(given)
    return path if is_url(path) else os.path.abspath(os.path.expanduser(path))


@register_dataset_accessor("penstock")  # type: ignore[no-untyped-call]
class Accessor:
    """Accessor is what a data set has as `ds.penstock`.

    Parameters
    ----------
    dataset : xarray.Dataset
        The data set.

    Raises
    ------
    Error
        Of the kind that fits, by the methods.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def write(
        self,
        path: Path,
        *,
        comm: MPI.Intracomm | None = None,
        parts: Mapping[Any, int] | None = None,
        region: RegionOf | None = None,
        mode: Mode = "w-",
        chunks: ChunkChoice = None,
        codec: str | None = None,
        disk: Mapping[Any, Disk] | None = None,
        memory: int = _core.COPY_MEMORY_BYTES,
        compute: bool = True,
        wait: float = WAIT_SECONDS,
        **options: Unpack[Options],
    ) -> Report:
        """Write the data set, or the parts of one that ranks hold, as one store.

        Parameters
        ----------
        path : path
            The store, the same on all ranks: a NetCDF-4 file if it ends in `.nc`, `.nc4` or `.cdf`,
            an HDF5 file if it ends in `.h5`, `.hdf5` or `.he5`, and otherwise a Zarr group.
        comm : mpi4py.MPI.Intracomm, optional
            The ranks, each with a data set of the same variables. Default: this process alone.
        parts : mapping of dimension to int, optional
            Where this rank's part begins, in the whole, for each dimension of which ranks have
            parts; of all others each rank has all. Default: as the index coordinates of the
            dimensions say, whose pieces must follow each other in the order of their values.
        region : mapping of dimension to slice, or "auto", optional
            Write into the variables of a store that is there, this part of them. "auto" finds it by
            the index coordinates, for one dimension or for all; these are not written then. Only
            `comm`, `memory`, `wait` and options of the session go with it.
        mode : {"w-", "w", "a"}
            Whether nothing may be there, or what is there is replaced, or added to.
        chunks : mapping, optional
            Extents of chunks by dimension, of all variables, or by variable, as a tuple or a
            mapping by dimension; None or -1 is all of a dimension. Default: as the variable's
            encoding says, or dask's chunks, or as large as the largest part, up to 64 MiB. HDF5
            files then have no chunks.
        codec : str, optional
            As of `Chunks`, or the filters of `HDF5`. Default: `zstd` in Zarr, none in HDF5.
        disk : mapping of variable to Chunks, HDF5 or NetCDF, optional
            Disk schemas of single variables, as of `Array`, in place of `chunks` and `codec`.
        memory : int
            The most bytes of a variable that a rank computes at once, where it is not in memory.
        compute : bool
            If False, variables that are not in memory are made, and hold the fill value until
            regions of them are written.
        wait : float
            How long a region waits for other writers, seconds.
        **options
            Fields of `SessionOptions`, such as `sync=False`.

        Returns
        -------
        Report
            One for all variables together.

        Raises
        ------
        SchemaError, MismatchError
            When the data sets of the ranks do not fit together, when nothing tells where their
            parts lie, or when the region does not fit the store.
        ExistsError
            When something is there, by mode "w-".
        UnsupportedError
            When a variable is of text, or of another type that Penstock does not store.
        Error
            Of the kind that fits. The same on all ranks; what stood at `path` is as it was, but for
            a region, some of which may have been written.

        Notes
        -----
        Collective over `comm`. xarray encodes: times, `scale_factor`, `_FillValue` and the rest of
        `encoding`. Ranks that have the same part of a variable, or all of it, must have the same
        bytes; one of them writes. Pieces of a variable that is not in memory meet the edges of the
        chunks that are written; what dask computes for a piece is its own affair.
        """
        dataset = self._dataset
        ranks = Ranks(comm)
        place = _path(path)
        settings = Settings(chunks, codec, disk or {}, memory, compute, options)
        ranks.each("looking at the options", lambda: settings.check(dataset))
        if region is not None:
            return write_region(dataset, place, ranks, region, wait, settings)
        sync = bool(options.get("sync", True))
        target = ranks.each("looking at the target", lambda: target_at(place, mode, sync))
        return write_whole(dataset, target, ranks, parts, settings)
