"""Icechunk repositories as stores: states that are committed, and drafts of the next ones.

The Rust side calls `state`, `fork`, `begin`, `merge`, `commit` and `discard`; see
`crates/bucket/src/draft.rs`.

A draft has two Icechunk forks. Everything is written to the first, `whole`; the second, `nodes`,
has nothing but the metadata of arrays and groups, and goes to servers of other processes. These put
chunks, and give the changes back. Icechunk's merge takes the last word on each chunk, and a removal
is a word, too: so servers must not have the removals of chunks that others put.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import io
import itertools
import json
import operator
import os
import pickle
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

from penstock._errors import (
    BusyError,
    Error,
    IoError,
    MissingError,
    ReadOnlyError,
    SchemaError,
    UnsupportedError,
    schema_error,
    type_name,
)

if TYPE_CHECKING:
    import icechunk

P = ParamSpec("P")
T = TypeVar("T")

OPEN_TRIES_MAX = 20
OPEN_PAUSE_SECONDS = 0.1
"""How often, and after which pauses, a rank opens a repository that others may be making."""

SCHEME = "icechunk://"
"""What the URLs of stores begin with, and of places in them."""

_NODE = "zarr.json"
_CHUNK = re.compile(r"(?:(.+)/)?c((?:/\d+)*)")
"""The key of a chunk: its array, and the numbers of the chunk."""


class Icechunk:
    """A branch, tag or snapshot of an Icechunk repository, as a store.

    Parameters
    ----------
    repo : icechunk.Repository or icechunk.Storage
        The repository, or where it is: it is made if it is not there. Every rank opens its own.
    branch : str
        The branch whose last snapshot is read, and to which writes are committed.
    tag, snapshot : str, optional
        What is read instead of a branch; it is never written to.

    Raises
    ------
    UnsupportedError
        Without the package `icechunk` (`pip install penstock[icechunk]`).
    SchemaError, MissingError
        For something else than a repository; when the branch, tag or snapshot is not there.

    Notes
    -----
    Not collective. `store / "fields"` is the path of a group in it, and `store` that of its root:
    `Session.write`, `Session.read`, `penstock.ls`, `penstock.copy` and others take both as any
    path. Each collective write is one commit, with what it did as the message; `Session.commit`
    makes one commit of several calls. All ranks give a store of the same repository; where a call
    reads or writes, rank 0's alone is asked which snapshot is the last. A repository in memory is
    of one process.
    """

    def __init__(
        self,
        repo: icechunk.Repository | icechunk.Storage,
        *,
        branch: str = "main",
        tag: str | None = None,
        snapshot: str | None = None,
    ) -> None:
        self._repository = _repository(repo, branch, tag, snapshot)

    @property
    def url(self) -> str:
        """What Penstock and its errors call the store in this process."""
        return f"{SCHEME}{self._repository.name}"

    def __truediv__(self, name: str | os.PathLike[str]) -> IcechunkPath:
        return IcechunkPath(self, "") / name

    def __fspath__(self) -> str:
        self._repository.look()
        return self.url

    def __repr__(self) -> str:
        return f"<penstock.Icechunk {self.url}>"


class IcechunkPath:
    """The path of a group or array in an Icechunk repository: `store / "fields" / "u"`.

    Attributes
    ----------
    store : Icechunk
        The store.
    key : str
        The path in it, without slashes at its ends.
    """

    def __init__(self, store: Icechunk, key: str) -> None:
        self.store = store
        self.key = key

    def __truediv__(self, name: str | os.PathLike[str]) -> IcechunkPath:
        return IcechunkPath(self.store, f"{self.key}/{os.fspath(name)}".strip("/"))

    def __fspath__(self) -> str:
        return f"{os.fspath(self.store)}/{self.key}"

    def __str__(self) -> str:
        return f"{self.store.url}/{self.key}"

    def __repr__(self) -> str:
        return f"<penstock.IcechunkPath {self}>"

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, IcechunkPath) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


# ---------------------------------------------------------------------------------------------
# What the Rust side calls
# ---------------------------------------------------------------------------------------------


def state(name: str) -> _State:
    """The last state of a repository, or a draft."""
    repository, draft = _named(name)
    return repository.readable() if draft is None else draft


def fork(data: bytes) -> _State:
    """The copy of another process's state."""
    try:
        sessions = _SessionUnpickler(io.BytesIO(data)).load()
        if isinstance(sessions, tuple):
            nodes, whole = sessions
            return _Fork(nodes, whole)
        return _Committed(sessions)
    except (pickle.UnpicklingError, ValueError, TypeError, AttributeError, EOFError) as error:
        cause = f"another process has given no state of a repository: {error}"
        raise _error(IoError, cause) from error


def begin(name: str, is_aside: bool) -> str:
    """Begin a draft, or one that is never committed."""
    repository, _ = _named(name)
    return repository.begin(is_aside)


def merge(name: str, changes: Sequence[bytes]) -> None:
    """Merge the changes of forks into a draft."""
    _draft(name).merge(changes)


def commit(name: str, words: str) -> bool:
    """Commit a draft, unless its block of calls goes on; whether it is committed."""
    draft = _draft(name)
    return draft.repository.commit(draft, words)


def discard(name: str) -> None:
    """Give up a draft."""
    repository, draft = _named(name)
    if draft is not None:
        repository.discard(draft)


# ---------------------------------------------------------------------------------------------
# Errors, and coroutines
# ---------------------------------------------------------------------------------------------


def _error(class_: type[Error], cause: str) -> Error:
    error = class_(cause)
    error.cause = cause
    return error


def _words(error: BaseException) -> str:
    """What an error of Icechunk says, without the places in its code."""
    lines = str(error).split("context:")[0].split("\n")
    said = " ".join(filter(None, (line.strip(" |x") for line in lines)))
    return said or type(error).__name__


def _translated(function: Callable[P, T]) -> Callable[P, T]:
    """The function, with errors of Icechunk as Penstock's."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Error:
            raise
        except Exception as error:
            raise _error(IoError, f"Icechunk: {_words(error)}") from error

    return called


class _Loop:
    """The thread of this process that runs Icechunk's coroutines, of all threads that wait."""

    _lock = threading.Lock()
    _running: tuple[int, asyncio.AbstractEventLoop] | None = None

    @classmethod
    def get(cls) -> asyncio.AbstractEventLoop:
        with cls._lock:
            if cls._running is None or cls._running[0] != os.getpid():
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="icechunk", daemon=True).start()
                cls._running = (os.getpid(), loop)
            return cls._running[1]


def _wait(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(coroutine, _Loop.get()).result()


async def _collected(names: AsyncIterator[str]) -> list[str]:
    return [name async for name in names]


class _SessionUnpickler(pickle.Unpickler):
    """Takes nothing but sessions out of bytes."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in [
            ("icechunk.session", "ForkSession"),
            ("icechunk.session", "Session"),
        ]:
            raise pickle.UnpicklingError(f"{module}.{name} is no session")
        return super().find_class(module, name)


# ---------------------------------------------------------------------------------------------
# States
# ---------------------------------------------------------------------------------------------


class _State(Protocol):
    """What the Rust side sees of a state."""

    id: str
    is_shared: bool

    def get(self, key: str, extent: tuple[int, int] | None) -> bytes | None: ...
    def length(self, key: str) -> int | None: ...
    def put(self, key: str, data: bytes) -> None: ...
    def remove(self, key: str) -> None: ...
    def remove_below(self, key: str) -> None: ...
    def keys_below(self, key: str) -> list[str]: ...
    def directories(self, key: str) -> list[str]: ...
    def copied(self) -> bytes: ...


def _is_node(key: str) -> bool:
    return key == _NODE or key.endswith(f"/{_NODE}")


def _is_key(key: str) -> bool:
    """Whether Icechunk can have an object of this key."""
    return _is_node(key) or _CHUNK.fullmatch(key) is not None


def _below(key: str, name: str) -> str:
    return f"{key}/{name}" if key else name


def _chunk_counts(metadata: bytes) -> list[int]:
    """How many chunks an array has in each dimension; none where they are not regular, or for a
    group."""
    node = json.loads(metadata)
    grid = node.get("chunk_grid", {})
    if grid.get("name") != "regular":
        return []
    chunks = grid["configuration"]["chunk_shape"]
    return [-(-extent // chunk) for extent, chunk in zip(node["shape"], chunks, strict=True)]


class _Objects:
    """The objects of a session: the metadata of nodes, and chunks."""

    def __init__(self, session: icechunk.Session) -> None:
        self.session = session
        self.store = session.store

    @_translated
    def get(self, key: str, extent: tuple[int, int] | None) -> bytes | None:
        from zarr.abc.store import RangeByteRequest
        from zarr.buffer import default_buffer_prototype

        if not _is_key(key):
            return None
        part = None if extent is None else RangeByteRequest(*extent)
        try:
            found = _wait(self.store.get(key, default_buffer_prototype(), part))
        except Exception:
            if _wait(self.store.exists(key)):
                raise
            return None  # some versions say so where the array is missing, too
        return None if found is None else found.to_bytes()

    @_translated
    def length(self, key: str) -> int | None:
        if not _is_key(key) or not _wait(self.store.exists(key)):
            return None
        size: int = _wait(self.store.getsize(key))
        return size

    @_translated
    def put(self, key: str, data: bytes) -> None:
        from zarr.buffer import default_buffer_prototype

        if not _is_key(key):
            raise _error(UnsupportedError, f"Icechunk has no place for an object {key!r}")
        _wait(self.store.set(key, default_buffer_prototype().buffer.from_bytes(data)))

    @_translated
    def remove(self, key: str) -> None:
        if self.length(key) is not None:
            _wait(self.store.delete(key))

    @_translated
    def remove_below(self, key: str) -> None:
        _wait(self.store.delete_dir(key))

    @_translated
    def keys_below(self, key: str) -> list[str]:
        node = key
        while node and not _wait(self.store.exists(_below(node, _NODE))):
            node = node.rpartition("/")[0]
        keys = _wait(_collected(self.store.list_prefix(node)))
        return [each for each in keys if not key or each.startswith(f"{key}/")]

    @_translated
    def directories(self, key: str) -> list[str]:
        names = _wait(_collected(self.store.list_dir(key)))
        return sorted({name.strip("/") for name in names} - {_NODE})


class _Committed(_Objects):
    """A snapshot."""

    def __init__(self, session: icechunk.Session, is_shared: bool = True) -> None:
        super().__init__(session)
        self.id = session.snapshot_id
        self.is_shared = is_shared

    @_translated
    def copied(self) -> bytes:
        return pickle.dumps(self.session) if self.is_shared else b""


class _Listed:
    """What looks for keys in all that was written to a draft."""

    _whole: _Objects

    def keys_below(self, key: str) -> list[str]:
        return self._whole.keys_below(key)

    def directories(self, key: str) -> list[str]:
        return self._whole.directories(key)


class _Fork(_Listed):
    """The copy of a draft that one server of another process writes."""

    id = "fork"
    is_shared = True

    def __init__(self, nodes: icechunk.Session, whole: icechunk.Session) -> None:
        self._nodes = _Objects(nodes)
        self._whole = _Objects(whole)
        self._put: set[str] = set()

    def _of(self, key: str) -> _Objects:
        return self._nodes if key in self._put else self._whole

    def get(self, key: str, extent: tuple[int, int] | None) -> bytes | None:
        return self._of(key).get(key, extent)

    def length(self, key: str) -> int | None:
        return self._of(key).length(key)

    def put(self, key: str, data: bytes) -> None:
        self._nodes.put(key, data)
        self._put.add(key)

    def remove(self, key: str) -> None:
        raise _error(UnsupportedError, f"a server removes nothing of a draft: {key!r}")

    remove_below = remove

    @_translated
    def copied(self) -> bytes:
        return pickle.dumps(self._nodes.session)


class _Draft(_Listed):
    """The next state of a branch, with what a call has written so far."""

    def __init__(self, repository: _Repository, name: str) -> None:
        self.repository = repository
        self.name = self.id = name
        self.is_shared = repository.is_shared
        self.base = repository.repo.writable_session(repository.branch)
        self.snapshot: str = self.base.snapshot_id
        if self.is_shared:
            self._whole = _Objects(self.base.fork())
            self._nodes = _Objects(self.base.fork())
        else:
            self._whole = self._nodes = _Objects(self.base)

    def get(self, key: str, extent: tuple[int, int] | None) -> bytes | None:
        return self._whole.get(key, extent)

    def length(self, key: str) -> int | None:
        return self._whole.length(key)

    @_translated
    def put(self, key: str, data: bytes) -> None:
        if not _is_node(key):
            self._whole.put(key, data)
            return
        former = self._whole.get(key, None)
        if former is not None:
            self._remove_beyond(key.rpartition("/")[0], _chunk_counts(former), _chunk_counts(data))
        if self._nodes is self._whole:
            self._whole.put(key, data)
            return
        self._nodes.put(key, data)
        if former is None:
            # A node has an identity, which both must know.
            self._whole.session.merge(self._nodes.session)
        else:
            self._whole.put(key, data)

    def _remove_beyond(self, array: str, former: Sequence[int], new: Sequence[int]) -> None:
        """Remove the chunks of an array that becomes shorter: it may grow again in this draft."""
        if len(former) != len(new) or all(map(operator.ge, new, former)):
            return
        for key in self.keys_below(array):
            chunk = _CHUNK.fullmatch(key)
            if chunk is None or chunk[1] != (array or None):
                continue
            numbers = [int(number) for number in chunk[2].split("/")[1:]]
            if any(map(operator.ge, numbers, new)):
                self.remove(key)

    def remove(self, key: str) -> None:
        self._whole.remove(key)

    def remove_below(self, key: str) -> None:
        self._whole.remove_below(key)

    @_translated
    def copied(self) -> bytes:
        if not self.is_shared:
            return b""
        return pickle.dumps((self._nodes.session, self._whole.session))

    @_translated
    def merge(self, changes: Sequence[bytes]) -> None:
        for each in changes:
            self._whole.session.merge(_SessionUnpickler(io.BytesIO(each)).load())

    @_translated
    def commit(self, message: str) -> str:
        """Give the identity of the new snapshot, or of the old one if nothing has changed."""
        import icechunk

        if self.is_shared:
            self.base.merge(self._whole.session)
        if not self.base.has_uncommitted_changes:
            return self.snapshot
        try:
            snapshot: str = self.base.commit(message)
        except icechunk.ConflictError as error:
            cause = (
                f"another program has committed to branch {self.repository.branch!r} meanwhile: "
                "nothing of this is there; make the calls again"
            )
            raise _error(BusyError, cause) from error
        return snapshot


class _Block:
    """Calls that are committed together."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.draft: _Draft | None = None
        self.has_failed = False
        self.is_ending = False


class _Repository:
    """A branch, tag or snapshot of a repository, as this process has it."""

    def __init__(
        self,
        name_and_place: tuple[str, str],
        repo: icechunk.Repository,
        branch: str,
        version: dict[str, str],
    ) -> None:
        self.name, self.place = name_and_place
        self.repo = repo
        self.branch = branch
        self.version = version
        self.is_shared = _is_shared(repo.storage)
        self.drafts: dict[str, _Draft] = {}
        self.block: _Block | None = None
        self._lock = threading.RLock()
        self._begun = 0
        self._last = self._opened(version or {"branch": branch})

    def _opened(self, version: dict[str, str]) -> _Committed:
        try:
            return _Committed(self.repo.readonly_session(**version), self.is_shared)
        except Exception as error:
            words = " ".join(f"{kind} {value!r}" for kind, value in version.items())
            raise _error(MissingError, f"the repository has no {words}: {_words(error)}") from error

    def look(self) -> None:
        """Look whether there is a new snapshot."""
        if self.version:
            return
        with self._lock:
            if _wait(self.repo.lookup_branch_async(self.branch)) != self._last.id:
                self._last = self._opened({"branch": self.branch})

    def readable(self) -> _State:
        """The last snapshot, or what calls that are committed together have written so far."""
        with self._lock:
            block = self.block
            return block.draft if block and block.draft and not block.has_failed else self._last

    @_translated
    def begin(self, is_aside: bool) -> str:
        if self.version:
            (kind,) = self.version
            raise _error(ReadOnlyError, f"a {kind} stays as it is: write to a branch")
        with self._lock:
            block = None if is_aside else self.block
            if block and block.has_failed:
                cause = "a former call of the same commit has failed: nothing of it will be there"
                raise _error(SchemaError, cause)
            if block and block.draft:
                return block.draft.name
            self._begun += 1
            draft = _Draft(self, f"{self.name}+{self._begun}")
            self.drafts[draft.name] = draft
            if block:
                block.draft = draft
            return draft.name

    def commit(self, draft: _Draft, words: str) -> bool:
        with self._lock:
            block = self.block
            message = words
            if block and block.draft is draft:
                if not block.is_ending:
                    return False
                message = block.message
            self.drafts.pop(draft.name, None)
            snapshot = draft.commit(message)
            self._last = self._opened({"snapshot_id": snapshot})
            return True

    def discard(self, draft: _Draft) -> None:
        with self._lock:
            self.drafts.pop(draft.name, None)
            if self.block and self.block.draft is draft:
                self.block.has_failed = True


_known: WeakValueDictionary[str, _Repository] = WeakValueDictionary()
_knowing = threading.Lock()
_numbers = itertools.count()
"""Of repositories in memory."""


def _is_shared(storage: icechunk.Storage) -> bool:
    """Whether other processes reach the storage: all but those in memory."""
    return re.search("in-?memory", repr(storage), re.IGNORECASE) is None


def _repository(repo: object, branch: str, tag: str | None, snapshot: str | None) -> _Repository:
    """The repository of a store: the one that this process has, if it has it."""
    try:
        import icechunk
    except ImportError as error:
        cause = "it needs the package icechunk: pip install penstock[icechunk]"
        raise _error(UnsupportedError, cause) from error
    if tag is not None and snapshot is not None:
        raise schema_error("a store is of a tag or of a snapshot: give one of them")
    version = {}
    if tag is not None:
        version = {"tag": tag}
    if snapshot is not None:
        version = {"snapshot_id": snapshot}
    if isinstance(repo, icechunk.Storage):
        repo = _opened(repo)
    if not isinstance(repo, icechunk.Repository):
        raise schema_error(
            f"a store is of an icechunk.Repository or Storage, not of a {type_name(repo)}"
        )
    label = re.sub(r"[^A-Za-z0-9_.]", "-", tag or snapshot or branch)
    with _knowing:
        place = _place(repo)
        digest = hashlib.sha256(repr((place, branch, version)).encode()).hexdigest()[:12]
        name = f"{label}-{digest}"
        known = _known.get(name)
        if known is None:
            known = _known[name] = _Repository((name, place), repo, branch, version)
    return known


def _place(repo: icechunk.Repository) -> str:
    """What tells a repository from others, in words that all ranks have."""
    if _is_shared(repo.storage):
        return repr(repo.storage)
    same = [known.place for known in _known.values() if known.repo is repo]
    return same[0] if same else f"memory {next(_numbers)}"


@_translated
def _opened(storage: icechunk.Storage) -> icechunk.Repository:
    """The repository at a place. Several ranks may make it at once: then one of them does, and
    others may meet it half made."""
    import icechunk

    for _ in range(OPEN_TRIES_MAX - 1):
        try:
            return icechunk.Repository.open_or_create(storage)
        except icechunk.IcechunkError:
            time.sleep(OPEN_PAUSE_SECONDS)
    return icechunk.Repository.open_or_create(storage)


def _named(name: str) -> tuple[_Repository, _Draft | None]:
    own, _, number = name.partition("+")
    repository = _known.get(own)
    draft = repository.drafts.get(name) if repository and number else None
    if repository is None or (number and draft is None):
        cause = "the process has no such repository: open it by penstock.Icechunk, and keep that"
        raise _error(MissingError, cause)
    return repository, draft


def store_at(url: str) -> Icechunk:
    """The store of a URL that this process has given."""
    repository, _ = _named(url.removeprefix(SCHEME).partition("/")[0])
    store = Icechunk.__new__(Icechunk)
    store._repository = repository
    return store


def _draft(name: str) -> _Draft:
    _, draft = _named(name)
    assert draft is not None, "it has a number"
    return draft


@contextlib.contextmanager
def block(store: Icechunk, message: str, directs: bool) -> Iterator[_Block]:
    """Keep the commits of calls back, until the block that this gives is ending.

    `directs` is whether this rank directs calls. On other ranks, nothing is kept back.
    """
    if not directs:
        yield _Block(message)
        return
    repository = store._repository
    if repository.block is not None:
        raise schema_error("calls to the store are being committed together already")
    made = repository.block = _Block(message)
    try:
        yield made
    finally:
        repository.block = None
        if made.draft is not None:
            repository.discard(made.draft)
