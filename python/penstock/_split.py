"""Split collectives: writes and reads that go on while the ranks compute."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock import _core
from penstock._errors import Error
from penstock._report import Report, report_of

if TYPE_CHECKING:
    from penstock._session import Session

T_co = TypeVar("T_co", covariant=True)


class Split(Generic[T_co]):
    """A split collective is a write or read that `begin_write` or `begin_read` has begun.

    The program must call `end`. If it drops the object without doing so, the session ends the call
    when it is closed, and a `ResourceWarning` says so.

    The type of `end` is the parameter: `Split[Report]` for a write, `Split[numpy.ndarray]` for a
    read.
    """

    def __init__(
        self,
        session: Session,
        begun: _core.PyOutstanding,
        about: str,
        result: Callable[[Report], T_co],
    ) -> None:
        self._session, self._begun, self._about, self._result = session, begun, about, result
        self._is_over = False

    def test(self) -> bool:
        """Say whether `end` would return at once. This call never waits.

        Returns
        -------
        bool
            True when the call has ended.

        Raises
        ------
        SchemaError
            When another thread is using the session.

        Notes
        -----
        Not collective. A call that was begun with `background="disk"` or "none" makes a little
        progress at each `test`, and may need one on every rank.
        """
        return self._begun.has_ended(self._session._session)

    def end(self) -> T_co:
        """Wait until the call has ended.

        Returns
        -------
        Report or numpy.ndarray
            For a write its report, with the seconds since it was begun. For a read the local array
            (or list of arrays), of the shape that `Session.read` gives.

        Raises
        ------
        Error
            As `Session.write` and `Session.read` raise it; the same on all ranks. `SchemaError`
            when the call was ended before.

        Notes
        -----
        Collective. Calls may be ended in another order than they were begun.
        """
        self._is_over = True
        return self._result(report_of(self._begun.end(self._session._session)))

    def __repr__(self) -> str:
        return f"<penstock.Split: {self._about}>"

    def __del__(self) -> None:
        if getattr(self, "_is_over", True) or self._session._is_over:
            return
        about = f"{self._about} was begun and never ended"
        warnings.warn(about, ResourceWarning, stacklevel=2, source=self)
        with contextlib.suppress(Error):  # the session ends it when it is closed
            self._begun.abandon(self._session._session)
