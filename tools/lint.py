"""The lints that neither clippy nor ruff has. `make lint` runs them.

| lint | finds |
|---|---|
| width | comment lines of Rust, tables apart, of more than 100 columns (rustfmt wraps code alone) |
| circles | files of one crate or package that use each other, directly or through others |
| unused | public items of a crate whose names stand nowhere but in their own definition |

A circle that has a reason stands in CIRCLES with it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100

WORLD = "crates/sim/src/machine/world"
CIRCLES: dict[frozenset[str], str] = {
    frozenset(
        [f"{WORLD}.rs", *(f"{WORLD}/{part}.rs" for part in ("cpus", "mail", "ports", "sleep"))]
    ): "the world is one type; each file has its state and its methods of one subject",
}
"""Circles that may stay, by the files in them, each with its reason."""

Edges = dict[Path, set[Path]]


def rust_files(*folders: str) -> list[Path]:
    """All Rust files in these folders of each crate."""
    crates = sorted((ROOT / "crates").iterdir())
    return [path for crate in crates for folder in folders for path in sorted(crate.glob(folder))]


def shown(path: Path) -> str:
    """A path as people write it."""
    return str(path.relative_to(ROOT))


def too_wide() -> Iterator[str]:
    """The comment lines that are too long."""
    for path in rust_files("**/*.rs"):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            comment = line.lstrip()
            is_table = comment.lstrip("/! ").startswith("|")
            if len(line) > WIDTH and comment.startswith("//") and not is_table:
                yield f"{shown(path)}:{number}: a comment of {len(line)} columns"


# --- circles ---------------------------------------------------------------------------------


def modules_of(source: Path) -> dict[tuple[str, ...], Path]:
    """The file of each module of a crate, by the module's path."""
    modules: dict[tuple[str, ...], Path] = {}
    for path in source.rglob("*.rs"):
        parts = path.relative_to(source).with_suffix("").parts
        if parts[-1] in ("mod", "lib"):
            parts = parts[:-1]
        modules[parts] = path
    return modules


def without_tests(text: str) -> str:
    """A Rust file without comments and without the unit tests at its end."""
    text = re.sub(r"//[^\n]*", "", text)
    return re.split(r"#\[cfg\(test\)\]\s*mod ", text)[0]


def flattened(tree: str) -> Iterator[list[str]]:
    """The paths of one `use` declaration, its braces multiplied out."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        yield [part.strip() for part in tree.split(" as ")[0].split("::")]
        return
    head = [part.strip() for part in tree[:brace].split("::") if part.strip()]
    depth, start, inside = 0, 0, tree[brace + 1 : tree.rfind("}")]
    for at, char in enumerate(inside + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if inside[start:at].strip():
                yield from (head + rest for rest in flattened(inside[start:at]))
            start = at + 1


def rust_edges(source: Path) -> Edges:
    """Which files of a crate use which: by `use` and by paths in the code. Re-exports are followed.

    A file that only declares another one (`mod x;`) does not use it.
    """
    modules = modules_of(source)
    exports: dict[tuple[str, ...], tuple[str, ...]] = {}
    uses: dict[Path, list[tuple[str, ...]]] = defaultdict(list)
    for module, path in modules.items():
        text = without_tests(path.read_text("utf-8"))
        for public, tree in re.findall(r"(pub(?:\([^)]*\))? )?use ([^;]+);", text):
            for parts in flattened(tree):
                target = absolute(parts, module, modules)
                if target is None:
                    continue
                if public:
                    exports[(*module, target[-1])] = target
                else:
                    uses[path].append(target)
        code = re.sub(r"\buse [^;]+;", "", text)
        for tree in re.findall(r"\b((?:crate|super|self)(?:::\w+)+)", code):
            target = absolute(tree.split("::"), module, modules)
            if target is not None:
                uses[path].append(target)
    edges: Edges = {path: set() for path in modules.values()}
    for path, targets in uses.items():
        for target in targets:
            file = file_of(target, modules, exports)
            if file is not None and file != path:
                edges[path].add(file)
    return edges


def absolute(
    parts: list[str], module: tuple[str, ...], modules: dict[tuple[str, ...], Path]
) -> tuple[str, ...] | None:
    """A path from the crate's root on; None for what is another crate's."""
    if parts[0] == "crate":
        return tuple(parts[1:])
    at = module
    if parts[0] not in ("self", "super"):
        return (*module, *parts) if (*module, parts[0]) in modules else None
    while parts and parts[0] in ("self", "super"):
        at = at[:-1] if parts[0] == "super" else at
        parts = parts[1:]
    return (*at, *parts)


def file_of(
    target: tuple[str, ...],
    modules: dict[tuple[str, ...], Path],
    exports: dict[tuple[str, ...], tuple[str, ...]],
) -> Path | None:
    """The file in which a path's item is defined, as far as it is known."""
    for _ in range(10):
        again = next(
            (
                exports[target[:length]] + target[length:]
                for length in range(len(target), 0, -1)
                if target[:length] in exports and target[:length] not in modules
            ),
            None,
        )
        if again is None or again == target:
            break
        target = again
    for length in range(len(target), -1, -1):
        if target[:length] in modules:
            return modules[target[:length]]
    return None


def python_edges(package: Path) -> Edges:
    """Which files of a Python package import which."""
    files = {path.stem: path for path in package.glob("*.py")}
    edges: Edges = {path: set() for path in files.values()}
    name = package.name
    pattern = rf"^\s*from {name}(?:\.(\w+))? import ([^\n(]+|\([^)]*\))|^\s*import {name}\.(\w+)"
    for path in files.values():
        # What only type checkers import makes no circle.
        text = re.sub(r"if TYPE_CHECKING:\n(?:[ \t]+[^\n]*\n|\n)+", "", path.read_text("utf-8"))
        for module, imported, plain in re.findall(pattern, text, re.MULTILINE):
            names = [module or plain] if module or plain else re.findall(r"\w+", imported)
            edges[path] |= {files[name] for name in names if name in files} - {path}
    return edges


def circles_in(edges: Edges) -> Iterator[list[Path]]:
    """The groups of files that use each other: strongly connected components of two or more."""
    reached = {start: reachable(start, edges) for start in edges}
    seen: set[Path] = set()
    for path in sorted(edges):
        circle = [other for other in reached[path] if path in reached[other]]
        if path not in seen and len(circle) > 1:
            seen.update(circle)
            yield sorted(circle)


def reachable(start: Path, edges: Edges) -> set[Path]:
    """All files that a file uses, directly or through others."""
    found: set[Path] = set()
    todo = [start]
    while todo:
        for path in edges[todo.pop()] - found:
            found.add(path)
            todo.append(path)
    return found


def all_edges() -> list[Edges]:
    """What uses what in each crate and each Python package."""
    crates = [rust_edges(source) for source in sorted((ROOT / "crates").glob("*/src"))]
    packages = [ROOT / "python" / "penstock", ROOT / "bench" / "penstock_bench"]
    return crates + [python_edges(package) for package in packages if package.is_dir()]


def unreasoned_circles() -> Iterator[str]:
    """The circles that have no reason."""
    for edges in all_edges():
        for circle in circles_in(edges):
            if frozenset(map(shown, circle)) in CIRCLES:
                continue
            lines = [f"a circle of {len(circle)} files:"]
            for path in circle:
                used = ", ".join(shown(to) for to in sorted(edges[path]) if to in circle)
                lines.append(f"  {shown(path)} uses {used}")
            yield "\n".join(lines)


# --- public items ----------------------------------------------------------------------------

ITEM = re.compile(
    r"^ *pub (?:const |async |unsafe )*(?:fn|struct|enum|trait|type|const|static) (\w+)",
    re.MULTILINE,
)


def unused_items() -> Iterator[str]:
    """The public items that nothing in the workspace names."""
    texts = {path: path.read_text("utf-8") for path in rust_files("**/*.rs")}
    counts: dict[str, int] = defaultdict(int)
    for text in texts.values():
        bare = re.sub(r"^\s*//[^\n]*", "", text, flags=re.MULTILINE)
        for word in re.findall(r"\w+", bare):
            counts[word] += 1
    for path, text in texts.items():
        if "src" not in path.parts:
            continue
        for name in ITEM.findall(text):
            if counts[name] < 2:
                yield f"{shown(path)}: nothing uses `{name}`"


def main() -> int:
    """Prints what is found; 1 if there is anything."""
    found = [*too_wide(), *unreasoned_circles(), *unused_items()]
    for line in found:
        print(line)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
