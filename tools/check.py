"""What a person runs who has edited one crate or the Python package: `make check`.

It runs the tests of what was edited, and of what stands above it and can break, and lints that. The
tables below say which tests those are. `make test` runs everything.

    python tools/check.py                   what git says has changed since the last commit
    python tools/check.py layout python     these
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STRICT = ("unwrap_used", "expect_used", "panic", "cast_possible_truncation")
"""What production code does not do, as in the Makefile."""

ABOVE = {
    "layout": ["engine", "machines", "sim", "arrays", "files", "mpiio"],
    "engine": ["machines", "sim", "net", "files", "arrays"],
    "machines": ["net", "files", "arrays", "mpiio"],
    "sim": ["predict"],
    "net": ["files"],
    "bucket": ["arrays"],
    "hdf5": ["arrays"],
    "trace": ["cli"],
    "predict": ["calibrate", "cli"],
    "files": ["mount", "mpiio"],
}
"""The crates whose tests find what an edit below them breaks, of all that stand above."""

SLOW = ["crash::", "experiments::", "dickens_thakur::", "vesta::", "panda::", "the_same_study"]
"""Tests that take minutes, of crates that were not edited themselves."""

PYTHON = {
    "layout": ["test_layout.py", "test_lists.py", "test_rectilinear.py"],
    "engine": ["test_strategies.py", "test_errors.py", "test_split.py"],
    "machines": ["test_strategies.py", "test_processes.py"],
    "arrays": ["test_groups.py", "test_open_array.py", "test_select.py", "test_copy.py"],
    "bucket": ["test_buckets.py"],
    "hdf5": ["test_hdf5.py", "test_hdf5_forms.py"],
    "files": ["test_files.py"],
    "net": ["test_serve.py"],
    "mpiio": ["test_mpiio.py"],
    "cli": ["test_command.py", "test_files_command.py"],
    "python": [
        "test_face.py",
        "test_documentation.py",
        "test_typing.py",
        "test_errors.py",
        "test_explain.py",
        "test_groups.py",
        "test_lists.py",
        "test_open_array.py",
        "test_records.py",
        "test_select.py",
        "test_split.py",
        "test_xarray.py",
    ],
}
"""The tests of the package that are worth their time after an edit."""


def main() -> int:
    """Run all steps, and give the exit code of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", help="crates, or python: what was edited")
    edited = parser.parse_args().parts or changed()
    if not edited:
        print("== check: nothing has changed since the last commit (name crates to check them)")
        return 0
    print(f"== check: {', '.join(edited)}")
    for words in steps(edited):
        begun = time.monotonic()
        code = subprocess.run(words, cwd=ROOT, check=False).returncode
        print(f"== {time.monotonic() - begun:.0f} s: {' '.join(words)}", flush=True)
        if code:
            return code
    return 0


def changed() -> list[str]:
    """The crates, and the Python package, that differ from the last commit."""
    told = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all", "--no-renames"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    paths = [Path(line[3:]) for line in told.splitlines()]
    crates = {path.parts[1] for path in paths if path.parts[0] == "crates" and len(path.parts) > 2}
    python = {"python" for path in paths if path.parts[0] in ("python", "tests")}
    return sorted(crates | python)


def packages() -> dict[str, str]:
    """The package of each crate, by the name of its folder."""
    told = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version=1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    known = json.loads(told.stdout)["packages"]
    return {Path(one["manifest_path"]).parent.name: one["name"] for one in known}


def steps(edited: list[str]) -> list[list[str]]:
    """The commands to run."""
    names = packages()
    unknown = [part for part in edited if part not in names]
    if unknown:
        sys.exit(f"no crate is called {', '.join(unknown)}: there are {', '.join(sorted(names))}")
    rust = [part for part in edited if part != "python" or touches_rust("python")]
    above = [crate for part in rust for crate in ABOVE.get(part, [])]
    above = [crate for crate in dict.fromkeys(above) if crate not in edited and crate in names]
    python = [name for part in edited for name in PYTHON.get(part, [])]

    def chosen(crates: list[str]) -> list[str]:
        return [word for crate in crates for word in ("-p", names[crate])]

    found: list[list[str]] = [["cargo", "fmt", "--all", "--check"]]
    if rust:
        linted = chosen(rust)
        strict = [word for lint in STRICT for word in ("-D", f"clippy::{lint}")]
        found += [
            ["cargo", "clippy", *linted, "--all-targets", "--", "-D", "warnings"],
            ["cargo", "clippy", *linted, "--lib", "--bins", "--", "-D", "warnings", *strict],
            ["cargo", "test", *linted],
        ]
    if above:
        skipped = [word for name in SLOW for word in ("--skip", name)]
        found.append(["cargo", "test", *chosen(above), "--", *skipped])
    found.append([sys.executable, "tools/lint.py"])
    if "python" in edited:
        found += [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]]
    if python:
        paths = [f"tests/{name}" for name in dict.fromkeys(python)]
        words = [sys.executable, "-m", "pytest", "-q", "-n", "3", "--dist", "worksteal", *paths]
        found += [["make", "--no-print-directory", "build-tests"], words]
    return found


def touches_rust(crate: str) -> bool:
    """Whether files of a crate have changed."""
    told = subprocess.run(
        ["git", "status", "--porcelain", f"crates/{crate}"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return bool(told.stdout.strip())


if __name__ == "__main__":
    sys.exit(main())
