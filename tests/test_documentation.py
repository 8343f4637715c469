"""Public names are what users write, and each is documented as numpydoc wants it."""

from __future__ import annotations

import dataclasses
import inspect
import re
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
import penstock.xarray

MODULES = (ps, ps.testing, penstock.xarray)
PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in MODULES
    for name in module.__all__
    if name not in ("__version__", "testing")
}
CLASSES = {name: thing for name, thing in PUBLIC.items() if inspect.isclass(thing)}
RESULTS = (
    *(ps.Report, ps.CopyReport, ps.Verified, ps.Node, ps.State, ps.OpenArray, ps.Split),
    ps.Selection,
    *(ps.File, ps.FileStat, ps.Rebalanced, ps.Request, ps.Subfile, ps.Usage),
    penstock.xarray.Backend,
)
"""Classes whose objects Penstock or xarray makes: what they hold are attributes, not parameters."""


def methods() -> Iterator[tuple[str, Any]]:
    """The public methods of public classes that are their own."""
    for name, thing in CLASSES.items():
        for key, value in vars(thing).items():
            if not key.startswith("_") and inspect.isfunction(value):
                yield f"{name}.{key}", value


CALLABLES = dict(methods()) | {n: t for n, t in PUBLIC.items() if inspect.isfunction(t)}


def sections(thing: Any) -> dict[str, str]:
    """The sections of a docstring by their headings; the summary has none."""
    text = inspect.getdoc(thing) or ""
    parts = re.split(r"^(\w+)\n-{3,}\n", text, flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def named(section: str) -> set[str]:
    """The names that a section describes: those before the colon of lines without indentation."""
    heads = re.findall(r"^(\S.*?)(?: : .*)?$", section, flags=re.MULTILINE)
    return {name.strip() for head in heads for name in head.split(",")}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_all_is_sorted_and_complete(module):
    # Names of capitals come first, as ruff sorts them.
    in_order = sorted(module.__all__, key=lambda name: (not name.isupper(), name))
    assert module.__all__ == in_order
    here = {
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
    }
    assert here == set(module.__all__) - {"__version__", "testing"}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_things_have_their_public_names(name):
    thing = PUBLIC[name]
    assert f"{thing.__module__}.{thing.__qualname__}" == name
    if inspect.isclass(thing):
        assert repr(thing) == f"<class '{name}'>"


def test_tracebacks_have_public_names(place):
    with ps.Session() as s, pytest.raises(ps.MissingError) as met:
        s.open(place / "nothing")
    last = traceback.format_exception_only(met.value)[-1]
    assert last.startswith("penstock.MissingError: ")


@pytest.mark.parametrize("name", PUBLIC)
def test_a_summary_is_a_sentence(name):
    summary = sections(PUBLIC[name])[""]
    assert summary and summary.split("\n\n")[0].rstrip().endswith(".")


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_describes_what_it_takes_and_has(name):
    thing = CLASSES[name]
    told = sections(thing)
    if issubclass(thing, ps.Error):
        assert issubclass(ps.Error, Exception) and thing.__doc__
    elif thing in RESULTS:
        fields = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
        assert {field.name for field in fields} <= named(told.get("Attributes", ""))
    else:
        assert set(inspect.signature(thing).parameters) - {"changes"} <= named(told["Parameters"])
        assert "Raises" in told or thing.__module__ == "penstock.testing"


def test_an_error_describes_its_attributes():
    assert set(ps.Error.__annotations__) <= named(sections(ps.Error)["Attributes"])


@pytest.mark.parametrize("name", CALLABLES)
def test_a_callable_describes_parameters_results_and_errors(name):
    thing = CALLABLES[name]
    told = sections(thing)
    signature = inspect.signature(thing)
    parameters = set(signature.parameters) - {"self"}
    variadic = {p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD}
    if parameters:
        described = named(told["Parameters"])
        assert parameters - variadic <= described
        assert not variadic or any("*" in word for word in described) or name == "penstock.copy"
    if signature.return_annotation != "None":
        assert re.search(r"^    \S", told["Returns"], flags=re.MULTILINE)
    assert "Raises" in told
    assert told["Notes"].startswith(("Collective", "Not collective"))


def test_a_copy_describes_all_its_options():
    from penstock._stores import CopyOptions

    assert set(CopyOptions.__annotations__) <= named(sections(ps.copy)["Parameters"])


@pytest.mark.parametrize("name", CLASSES)
def test_properties_are_documented(name):
    for value in vars(CLASSES[name]).values():
        if isinstance(value, property):
            assert inspect.getdoc(value)


def test_an_exception_keeps_its_type_and_cause(place):
    """What a user's own object raised is the cause of the error of the call."""

    class Broken:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            raise ZeroDivisionError("mine")

    u = ps.Array("u", (4,), "f8")
    with ps.Session() as s, pytest.raises(ps.SchemaError, match="Broken") as met:
        s.write(place / "g.zarr", u, Broken())
    assert isinstance(met.value.__cause__, ZeroDivisionError)
    with pytest.raises(ps.SchemaError) as met:
        ps.Array("u", (4,), "no type")
    assert isinstance(met.value.__cause__, TypeError)
