"""``penstock_bench served`` checks what it has read, and prints tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_mount import why_not as why_no_mount

from penstock_bench import served

SIZES = ["--mib", "2", "--reads", "20", "--names", "5", "--ranks", "2", "--no-peers"]
SIZES += ["--shared-mib", "2", "--block-kib", "64"]


@pytest.mark.skipif(why_no_mount() is not None, reason=why_no_mount() or "")
def test_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SIZES, "--rounds", "1", "--directory", str(tmp_path)]
    assert served.main(words) == 0
    said = capsys.readouterr().out
    names = [line.split("  ")[0] for line in said.splitlines()]
    ours = [served.DIRECTORY, served.LIBRARY, served.TCP, served.MOUNT]
    assert names[1 : 1 + len(ours)] == ours
    for mode in ("collective", "each by itself"):
        assert f"write, {mode}" in names
        assert f"read, {mode}" in names
    assert not list(tmp_path.iterdir())


def test_what_makes_no_sense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert served.main(["--rounds", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
