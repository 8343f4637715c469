"""The licences of all crates that are linked into Penstock, with those of the C libraries in them.

Run it to see the list; it ends with an error if a crate has no licence that is known here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

FILES = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)
"""The names of files that hold licences."""
OWN = {"MIT": "LICENSE-MIT", "Apache-2.0": "LICENSE-APACHE"}
"""Texts for crates that name a licence and hold no file: the words are those of Penstock's own."""
GIVEN = "packaging/licences_of_others"
"""The directory of licences that crates leave out."""
DEPTH = 4
"""How deep the sources of C libraries lie in their crates."""


def of_all(root: Path, target: str | None = None) -> str:
    """All licences as one text, a crate after the other.

    Raises
    ------
    SystemExit
        When a crate has no licence that is known here.
    """
    parts, missing = [], []
    first_place: dict[str, str] = {}
    for crate in linked(root, target):
        texts = texts_of(Path(crate["manifest_path"]).parent)
        said = crate["license"] or "in the files"
        if not texts and (given := root / GIVEN / f"{crate['name']}.txt").exists():
            texts = [("what its authors publish with it", given.read_text("utf-8"))]
        if not texts:
            named = [OWN[word] for word in OWN if word in said]
            texts = [(name, (root / name).read_text("utf-8")) for name in named[:1]]
        if not texts:
            missing.append(f"{crate['name']} {crate['version']} ({said})")
        parts.append(
            f"{'=' * 80}\n{crate['name']} {crate['version']}: {said}\n{crate['repository'] or ''}\n"
        )
        for name, text in texts:
            words, place = " ".join(text.split()), f"{crate['name']} {crate['version']}, {name}"
            first = first_place.setdefault(words, place)
            shown = text.strip() if first == place else f"The same words as {first}."
            parts.append(f"{'-' * 80}\n{name}\n\n{shown}\n")
    if missing:
        sys.exit(f"no licence is known of {', '.join(missing)}")
    return "Penstock links these in:\n\n" + "\n".join(parts)


def linked(root: Path, target: str | None) -> list[dict]:
    """The crates of others that end up in a program or library."""
    options = ["--filter-platform", target] if target else []
    told = subprocess.run(
        ["cargo", "metadata", "--format-version=1", "--locked", *options],
        cwd=root,
        check=True,
        stdout=subprocess.PIPE,
    )
    known = json.loads(told.stdout)
    nodes = {node["id"]: node for node in known["resolve"]["nodes"]}
    packages = {package["id"]: package for package in known["packages"]}
    reached, waiting = set(), list(known["workspace_members"])
    while waiting:
        here = waiting.pop()
        if here in reached:
            continue
        reached.add(here)
        for dependency in nodes[here]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            is_macro = any(
                "proc-macro" in t["kind"] for t in packages[dependency["pkg"]]["targets"]
            )
            if is_linked and not is_macro:
                waiting.append(dependency["pkg"])
    # The sources of C libraries are in crates that only build scripts use.
    reached |= {one for one in nodes if packages[one]["name"].endswith(("-src", "-sys"))}
    crates = [packages[one] for one in reached if packages[one]["source"]]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def texts_of(directory: Path) -> list[tuple[str, str]]:
    """The files of licences in a crate, with the path of each and its text."""
    found = []
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory)
        is_near = len(inside.parts) <= DEPTH and path.suffix in ("", ".txt", ".md")
        if is_near and FILES.match(path.name) and path.is_file():
            found.append((str(inside), path.read_text("utf-8", errors="replace")))
    return found


if __name__ == "__main__":
    sys.stdout.write(of_all(Path(__file__).resolve().parent.parent))
