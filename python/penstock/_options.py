"""Options of sessions."""

from __future__ import annotations

import dataclasses
import os
from typing import TypedDict, get_args

from penstock import _core
from penstock._errors import schema_error, shown, type_name
from penstock._types import Path, Strategy, Transport
from penstock.testing import Buffers, Faults


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """Session options say how a session is set up. They are the same on all ranks.

    Parameters
    ----------
    transport : {"shared", "messages"}
        How ranks of one host reach each other over MPI: by shared memory, or by MPI messages as
        ranks of different hosts do. Threads of one process always share their memory.
    root : path, optional
        The directory in which relative paths are. With `{server}` in it, such as
        `/nvme{server}/out`, each server has a directory of its own, with its number in that place,
        and keeps the chunks or parts that it writes there; server 0 keeps the metadata. `read` and
        `restart` find them where they are, and `penstock gather` makes one store of them.
        Row-major files cannot be spread like that.
    servers : int or str, optional
        Number of I/O servers. Default: one for each processor of a host, but not more than it has
        ranks (embedded: at most two for a single rank). Or the URL of servers that stand, of
        `penstock serve --arrays DIR`: `"penstock://host:7433,host2:7433"` or
        `"unix:///run/penstock.sock"`. Every rank is then a client of them. Paths are below their
        directory, files are read and written with the rights of this program's user, and calls are
        disk-directed. What has been handed over the servers finish, even if the program ends.
    keys : path, optional
        The keys for standing servers of other hosts, as `penstock keys` makes them: a directory and
        the name of a holder in it. Default: what the environment variable PENSTOCK_KEYS says.
    dedicated : bool, optional
        Whether servers do nothing else. By default some ranks also serve during each call; in an
        embedded session of a single rank, threads beside it serve. Under MPI a dedicated server's
        constructor returns only when the clients have closed the session: `is_client` is then
        False, and there is nothing left to do for that rank.
    sync : bool
        Whether a write returns only when the data are on stable storage. Without it only the
        records of groups, the metadata that other arrays of a group need, and files of HDF5 are
        forced out.
    block_bytes : int
        The most bytes that a server moves at once where the store leaves it a choice. It has two
        buffers of that size.
    strategy : {"disk-directed", "two-phase", "caching", "independent"}, optional
        How servers and ranks carry out calls; each call may name another. All strategies store
        the same bytes. Default: `disk-directed`.

        - `disk-directed`: servers pull and push the pieces of one block after the other (Kotz).
        - `two-phase`: ranks exchange elements by messages, and move large parts of the file
          themselves (del Rosario, Bordawekar and Choudhary). A rank needs up to 16 MiB, or one
          block, and send buffers. `two-phase:1` to `two-phase:5` are the steps of Dickens and
          Thakur (section 3.3): 1 one message after the other, copied byte for byte; 2 the same,
          copied fast; 3 all at once, sends first; 4 receives first; 5, the default, receives first,
          and one send at a time.
        - `caching`: ranks ask for one contiguous chunk after the other, servers cache: up to eight
          blocks for each rank.
        - `independent`: every rank moves its own contiguous runs, without servers. It cannot write
          where several ranks hold elements of one chunk that has a codec or sub-chunks.

    background_bytes : int
        The most memory that a server, or a rank that moves blocks itself, fills while disks work in
        the background: see `Session.begin_write`. It is reserved until the session ends.
    cache_bytes : int
        The most bytes of each server's cache, for arrays that stay open: see `Session.open`. A
        block with more is alone in it.
    direct : bool, optional
        Whether the elements of flat files, and of chunks without codec, go around the page cache
        (O_DIRECT). By default, `read` and `restart` go around it where it has less than half of a
        large block, on a local disk (ext4 or XFS, Linux 6.5), and leave nothing in it. False: all
        go through it, which is better for data that are soon read again. True: all go around it,
        reads and writes; `UnsupportedError` where the file system has no direct I/O. Blocks of 512
        KiB and more lie in huge pages for it.
    faults : penstock.testing.Faults, optional
        For tests and benchmarks: what is wrong with the disks.
    buffers : penstock.testing.Buffers, optional
        For tests: how much memory the rivals of disk-directed I/O take.

    Raises
    ------
    SchemaError
        When an option is not what it should be.
    """

    transport: Transport = "shared"
    root: Path | None = None
    servers: int | str | None = None
    keys: Path | None = None
    dedicated: bool | None = None
    sync: bool = True
    block_bytes: int = _core.BLOCK_BYTES
    strategy: Strategy | None = None
    background_bytes: int = _core.BACKGROUND_BYTES
    cache_bytes: int = _core.CACHE_BYTES
    direct: bool | None = None
    faults: Faults | None = None
    buffers: Buffers | None = None

    def __post_init__(self) -> None:
        if self.transport not in get_args(Transport):
            raise schema_error(
                f'{shown(self.transport)} is no transport: use "shared" or "messages"'
            )
        if self.root is not None:
            if not isinstance(self.root, str | os.PathLike):
                raise schema_error(f"root is a path, not {type_name(self.root)}")
            object.__setattr__(self, "root", os.fspath(self.root))
        if self.keys is not None:
            object.__setattr__(self, "keys", os.fspath(self.keys))
        if self.servers is not None and not isinstance(self.servers, str):
            check_count("servers", self.servers)
        check_count("block_bytes", self.block_bytes)
        check_count("background_bytes", self.background_bytes)
        check_count("cache_bytes", self.cache_bytes)
        for name, type_ in [("faults", Faults), ("buffers", Buffers)]:
            value = getattr(self, name)
            if not isinstance(value, type_ | None):
                raise schema_error(
                    f"{name} are penstock.testing.{type_.__name__}, not {type_name(value)}"
                )

    def _standing(self) -> tuple[str, str | None] | None:
        """The URL of standing servers, and the keys for them."""
        if not isinstance(self.servers, str):
            return None
        return self.servers, None if self.keys is None else os.fspath(self.keys)

    def _argument(self, *, dedicated: bool) -> _core._SessionArgument:
        """The options as the Rust side takes them, with a default for `dedicated`."""
        faults, buffers = self.faults, self.buffers
        return {
            "servers": None if isinstance(self.servers, str) else self.servers,
            "standing": self._standing(),
            "dedicated": dedicated if self.dedicated is None else bool(self.dedicated),
            "sync": bool(self.sync),
            "block_bytes": self.block_bytes,
            "background_bytes": self.background_bytes,
            "cache_bytes": self.cache_bytes,
            "direct": None if self.direct is None else bool(self.direct),
            "strategy": None if self.strategy is None else str(self.strategy),
            "buffers": None
            if buffers is None
            else (buffers.blocks_per_client, buffers.staging_bytes),
            "faults": None if faults is None else faults._json(),
        }


class Options(TypedDict, total=False):
    """The fields of `SessionOptions` as keywords: a type checker cannot derive them from it, and
    `tests/test_typing.py` compares the two."""

    transport: Transport
    root: Path | None
    servers: int | str | None
    keys: Path | None
    dedicated: bool | None
    sync: bool
    block_bytes: int
    strategy: Strategy | None
    background_bytes: int
    cache_bytes: int
    direct: bool | None
    faults: Faults | None
    buffers: Buffers | None


def session_options(options: SessionOptions | None, changes: Options) -> SessionOptions:
    """`options`, or the defaults, with changes.

    Raises
    ------
    SchemaError
        When an option is not what it should be.
    TypeError
        When there is no such option.
    """
    if not isinstance(options, SessionOptions | None):
        raise schema_error(f"options are SessionOptions, not {type_name(options)}")
    unknown = set(changes) - {field.name for field in dataclasses.fields(SessionOptions)}
    if unknown:
        raise TypeError(f"a session has no option {sorted(unknown)[0]!r}")
    return dataclasses.replace(options or SessionOptions(), **changes)


def check_count(name: str, count: object) -> None:
    """Refuse what is no positive integer."""
    if not isinstance(count, int) or isinstance(count, bool) or not 0 < count < 2**48:
        raise schema_error(f"{name} must be an integer of at least 1, not {shown(count)}")
