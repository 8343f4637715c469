"""The sources of all crates that a build for Linux needs, as a directory for cargo.

`cargo vendor` brings the crates of all platforms. Of those that no build for Linux compiles, which
are half of the bytes, cargo wants to see the manifest alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")
CONFIG = """# Crates come from this directory, and not over the network.
[source.crates-io]
replace-with = "vendored-sources"

[source.vendored-sources]
"""


def collect(root: Path, vendor: Path) -> None:
    """Put the sources into `vendor`."""
    subprocess.run(
        ["cargo", "vendor", "--quiet", "--locked", "--versioned-dirs", str(vendor)],
        cwd=root,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    wanted = {f"{name}-{version}" for target in TARGETS for name, version in used(root, target)}
    for crate in vendor.iterdir():
        if crate.name not in wanted:
            reduce(crate)


def used(root: Path, target: str) -> set[tuple[str, str]]:
    """The crates, as name and version, that a build for a target compiles, tests included."""
    told = subprocess.run(
        ["cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", target],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
    )
    known = json.loads(told.stdout)
    resolved = {node["id"] for node in known["resolve"]["nodes"]}
    return {(one["name"], one["version"]) for one in known["packages"] if one["id"] in resolved}


def reduce(crate: Path) -> None:
    """Leave of a crate its manifest, and an empty library for it to name."""
    sums = json.loads((crate / ".cargo-checksum.json").read_text("utf-8"))
    manifest = (crate / "Cargo.toml").read_bytes()
    shutil.rmtree(crate)
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_bytes(manifest)
    (crate / "src" / "lib.rs").touch()
    sums["files"] = {}
    (crate / ".cargo-checksum.json").write_text(json.dumps(sums), "utf-8")
