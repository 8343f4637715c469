"""SPMD programs on the threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, Unpack, cast

from penstock._errors import PeerError
from penstock._options import Options, SessionOptions, check_count, session_options
from penstock._seats import seated, seats
from penstock._session import Session

T = TypeVar("T")


def run(
    main: Callable[[Session], T],
    ranks: int = 1,
    *,
    options: SessionOptions | None = None,
    **changes: Unpack[Options],
) -> list[T]:
    """Run `main(session)` on threads that play the ranks, for tests and notebooks.

    Parameters
    ----------
    main : callable
        The program of one rank. It takes the rank's open `Session`.
    ranks : int
        Number of threads.
    options : SessionOptions, optional
        How the sessions are set up.
    **changes
        Fields of `SessionOptions` that differ from `options`, as for `Session`.

    Returns
    -------
    list
        What `main` returned on each rank, in the order of the ranks.

    Raises
    ------
    SchemaError
        When the options or the number of ranks do not fit.
    Exception
        What a rank raised, after all ranks have ended: the lowest rank's, except that `PeerError`,
        by which the others' calls fail meanwhile, comes last.

    Notes
    -----
    Not collective: one thread calls it, and waits for the ranks.
    """
    check_count("ranks", ranks)
    chosen = session_options(options, changes)
    places = seats(ranks, chosen)
    results: list[T | None] = [None] * ranks
    errors: list[BaseException | None] = [None] * ranks

    def rank_main(rank: int) -> None:
        try:
            with seated(places[rank]), Session(options=chosen) as session:
                results[rank] = main(session)
        except BaseException as error:  # noqa: BLE001 - the caller's thread raises it again
            errors[rank] = error

    _run_to_the_end(rank_main, ranks, on_interrupt=places[0].interrupt)
    _raise_first(errors)
    return cast("list[T]", results)  # without an error each rank has its result


def _run_to_the_end(
    rank_main: Callable[[int], None], ranks: int, on_interrupt: Callable[[], None]
) -> None:
    """Run all ranks on threads and wait for their ends, also when Ctrl-C interrupts the waiting."""
    # Python takes a thread for ended whose join Ctrl-C has interrupted (bpo-45274), so that it is
    # these that are waited for.
    ended = [threading.Event() for _ in range(ranks)]

    def run(rank: int) -> None:
        try:
            rank_main(rank)
        finally:
            ended[rank].set()

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank-{rank}") for rank in range(ranks)
    ]
    try:
        for thread in threads:
            thread.start()
        for end in ended:
            end.wait()
    except BaseException:
        on_interrupt()
        for thread, end in zip(threads, ended, strict=True):
            if thread.ident is not None:  # it was started
                end.wait()
        raise
    for thread in threads:
        thread.join()


def _raise_first(errors: Sequence[BaseException | None]) -> None:
    """Raise the lowest rank's error. What a rank did wrong tells more than that others lost it."""
    raised = [error for error in errors if error is not None]
    causes = [error for error in raised if not isinstance(error, PeerError)]
    for error in causes or raised:
        raise error
