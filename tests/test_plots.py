"""The plots of the simulator: files, labels, the same bytes each time, and what bad input gets.

The program runs as in a process of its own, but in this one, which has matplotlib already. Each
kind of plot is made by a process, too, as by the command line: the program is handed over as source
text, must not need a package around it, and draws the same to the last byte.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from drawing import PROGRAM, program

pytest.importorskip("matplotlib")

plots = program()

METHODS = ("caching", "two-phase", "ddio", "ddio-sort")
MADE = "penstock 1.2.3; 5 trials, seed 7; preset tr94 with nodes.clients 8 (preset: 16)"
PATTERNS = ("ra", "rn", "rb", "rcb", "wn", "wb", "wcc")


def table():
    """A cell that is blanked, one far out, and `ra` not normalised."""
    rows = []
    for record in (8, 8192):
        for number, pattern in enumerate(PATTERNS):
            for method in ("caching", "ddio", "ddio-sort"):
                mb_s = (5.0 + 0.1 * number) * (16 if pattern == "ra" else 1)
                published = None if pattern == "rcb" else mb_s * (0.5 if pattern == "wb" else 1.02)
                ratio = None if published is None else mb_s / published
                row = {"layout": "random", "pattern": pattern, "record": record, "method": method}
                rows.append(
                    row | {"mb_s": mb_s, "published": published, "cv": 0.02, "ratio": ratio}
                )
    return {"number": 3, "cells": rows, "preset": "tr94", "provenance": {"text": MADE}}


def figure(scale, names, xs, limits=(), published=()):
    series = [
        {"name": n, "points": [{"x": x, "y": 3.0 * i + k, "cv": 0.1} for k, x in enumerate(xs, 1)]}
        for i, n in enumerate(names)
    ]
    return {
        "figure": 10,
        "title": "Throughput as something varies",
        "x_label": "things",
        "y_label": "throughput (MB/s)",
        "x_scale": scale,
        "series": series,
        "limits": [
            {"name": name, "points": [{"x": x, "y": y} for x, y in zip(xs, ys, strict=True)]}
            for name, ys in limits
        ],
        "published": list(published),
        "preset": "tocs97",
        "trials": 5,
    }


def flag(series, x, y, **more):
    """A published number of a place."""
    return {"name": "the paper", "series": series, "x": x, "low": y, "high": y} | more


def summary():
    rows = [
        {
            "method": method,
            "min": low,
            "mean": 1.5,
            "max": 18.0,
            "published": {"min": low, "mean": 1.64, "max": 18.1},
            "min_pattern": "rn",
            "max_pattern": "wbc",
        }
        for method, low in (("ddio-sort", 1.0), ("two-phase", 0.44))
    ]
    return {"preset": "tocs97", "rows": rows}


def scale():
    return [
        {
            "method": method,
            "clients": clients,
            "servers": servers,
            "throughput_mb_s": 100.0 * servers,
            "messages": clients * servers,
            "planning_us": 0 if method == "caching" else 3.5 * clients,
            "buffer_bytes_max": 65536 * clients,
        }
        for method in ("caching", "two-phase", "ddio-sort")
        for servers in (1, 1000)
        for clients in (10, 1000, 100_000)
    ]


def seeks():
    points = [
        {"t_ms": 3.0 * i, "cylinder": 37 * i % 1935, "what": what}
        for i, what in enumerate(("seek", "read", "seek", "write") * 20)
    ]
    return {"disk": 3, "title": "The arm of one disk", "points": points}


BAND = {"name": "paper: 2 to 4%", "low": 2.0, "high": 4.0}
LINE = {"name": "paper: near 3%", "low": 3.0, "high": 3.0}
MIXED = [f"{method} {pattern}" for method in METHODS for pattern in ("ra", "rn", "rb", "rc")]
XS = (1, 2, 4, 8, 16)

# Name: kind, data, labels that must be there as text, height in inches
CASES = {
    "table": (
        "table",
        table(),
        [
            "Table 3 on tr94: throughput, random layout, measured and published",
            MADE,
            "8-byte records",
            "8192-byte records",
            "MB/s",
            "ratio",
            "ra/16",
            "wcc",
            "ddio-sort",
            "open: published",
            "2.00",
            "ra is divided by 16",
        ],
        6.15,
    ),
    "table of one cell": ("table", table()["cells"][3:4], ["8-byte records", "caching"], 3.65),
    "groups": (
        "figure",
        figure("category", METHODS, PATTERNS, [("disks", [20.0] * 7)]),
        [
            "Figure 10 on tocs97: Throughput as something varies",
            "preset tocs97, 5 trials",
            "things",
            "throughput (MB/s)",
            "disks",
            *METHODS,
            *PATTERNS,
        ],
        4.0,
    ),
    "lines, labelled": (
        "figure",
        figure("log2", ("caching rb", "ddio-sort rb"), XS, [("bus", [10.0 * x for x in XS])]),
        ["caching rb", "ddio-sort rb", "bus", "16"],
        4.0,
    ),
    "lines, keyed": (
        "figure",
        figure("log2", MIXED, XS, [("disks", [33.8] * 5), ("far", [9e3] * 5)]),
        ["disks", "far: 9,000", "ra", "rc", *METHODS],
        4.0,
    ),
    "groups, published": (
        "figure",
        figure("category", ("ddio",), "012", published=[flag("ddio", "1", 2.5), LINE]),
        ["open: the paper", "paper: near 3%"],
        4.0,
    ),
    "lines, published": (
        "figure",
        figure(
            "log2",
            ("in sequence", "all in background"),
            XS,
            published=[flag("in sequence", 4, 3.5, is_relative=True), BAND],
        ),
        ["open: the paper", "paper: 2 to 4%", "Where the paper gives a percentage"],
        4.0,
    ),
    "one point": ("figure", figure("log10", ("alone",), (100,)), ["alone", "100"], 4.0),
    "summary": (
        "summary",
        summary(),
        ["on tocs97", "preset tocs97", "ddio-sort", "two-phase", "0.44", "1.64", "18.1", "wbc"],
        2.56,
    ),
    "scale": (
        "scale",
        scale(),
        [
            "Throughput (MB/s)",
            "Messages",
            "Planning time per server (µs)",
            "1,000 servers",
            "Buffer memory, most on one node (KB)",
            "clients",
            "none for caching",
        ],
        5.4,
    ),
    "seeks": (
        "seeks",
        seeks(),
        ["The arm of one disk: the arm of disk 3", "time (ms)", "cylinder", "read", "write"],
        4.0,
    ),
}


def run(*arguments, data="", command=False, **environment):
    """The program as a process, or the command `penstock plot`; `data` is JSON or text."""
    text = data if isinstance(data, str) else json.dumps(data)
    start = ["-m", "penstock", "plot"] if command else ["-c", PROGRAM.read_text("utf-8")]
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        input=text.encode(),
        capture_output=True,
        env=os.environ | environment,
        timeout=600,
    )


def run_here(*arguments, data=""):
    """What :func:`run` gives, by the program in this process."""
    text = data if isinstance(data, str) else json.dumps(data)
    stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("sys.stdin", stdin),
    ):
        code = plots.main([*map(str, arguments)])
    said = (out.getvalue().encode(), err.getvalue().encode())
    return subprocess.CompletedProcess(arguments, code, *said)


@functools.cache
def made(name):
    """The files of a case that this process makes: their bytes by their names."""
    kind, data, *_ = CASES[name]
    with tempfile.TemporaryDirectory() as directory:
        done = run_here(kind, Path(directory) / "plot", data=data)
        assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"")
        return {path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())}


def png_size(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


@pytest.mark.parametrize("name", CASES)
def test_files_sizes_and_labels(name):
    _, _, labels, inches = CASES[name]
    files = made(name)
    assert list(files) == ["plot.png", "plot.svg"]
    assert png_size(files["plot.png"]) == (1400, pytest.approx(200 * inches, abs=1))
    drawn = files["plot.svg"].decode()
    texts = re.findall(r"<text[^>]*>(.*?)</text>", drawn, re.DOTALL)
    for label in labels:
        assert any(label in text for text in texts), label
    assert "<dc:date>" not in drawn


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "PNG"])
def test_one_file_of_the_kind_that_its_name_says(tmp_path, monkeypatch, suffix):
    out = tmp_path / f"one.{suffix}"
    done = run_here("seeks", out, data=seeks())
    assert (done.returncode, done.stderr) == (0, b"")
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix.lower()]
    first = out.read_bytes()
    assert first.startswith(begins)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # on another day
    run_here("seeks", out, data=seeks())
    assert out.read_bytes() == first


def test_a_point_in_a_stem_is_no_ending(tmp_path):
    assert run_here("seeks", tmp_path / "run.v2", data=seeks()).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.v2.png", "run.v2.svg"]


@pytest.mark.parametrize("name", CASES)
def test_titles_are_left_out(tmp_path, name):
    kind, data, *_ = CASES[name]
    out = tmp_path / "plot.svg"
    assert run_here(kind, out, "--no-title", data=data).returncode == 0
    drawn = [made(name)["plot.svg"].decode(), out.read_text("utf-8")]
    assert ["font-weight: 700" in text for text in drawn] == [True, False]
    foot = "preset tocs97" if kind in ("figure", "summary") else MADE if name == "table" else ""
    assert all(foot in text for text in drawn)


@pytest.mark.parametrize("name", ["table", "lines, keyed", "summary", "scale", "seeks"])
def test_a_process_draws_the_same_to_the_last_byte(tmp_path, name):
    """One with another seed of hashes, and without a package around it."""
    kind, data, *_ = CASES[name]
    done = run(kind, tmp_path / "plot", data=data)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == made(name)


def test_the_command_draws_the_same(tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(summary()))
    for number, words in enumerate([[], ["--data", tmp_path / "summary.json"]]):
        stem = tmp_path / f"command{number}"
        done = run("summary", stem, *words, data="" if words else summary(), command=True)
        assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"")
        assert stem.with_suffix(".svg").read_bytes() == made("summary")["plot.svg"]


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [("figure", "{", "bad JSON"), ("table", {}, "table: "), ("pie", {}, "invalid value 'pie'")],
)
def test_the_command_says_what_is_wrong_in_one_line(tmp_path, kind, data, why):
    done = run(kind, tmp_path / "plot", data=data, command=True)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout, said.count("\n")) == (2, b"", 1)
    assert said.startswith("penstock: error: ")
    assert why in said
    assert not list(tmp_path.iterdir())


def test_settings_of_the_user_change_nothing(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nsvg.fonttype: path\n")
    done = run("seeks", tmp_path / "other.svg", data=seeks(), MATPLOTLIBRC=str(tmp_path))
    assert done.returncode == 0
    assert (tmp_path / "other.svg").read_bytes() == made("seeks")["plot.svg"]


# ---------------------------------------------------------------------------------------------
# Axes and places
# ---------------------------------------------------------------------------------------------


def axes_of(kind, data):
    """What is drawn, in this process."""
    sheet = plots.KINDS[kind](data, plots.Page(True, "foot"))
    sheet.fig.canvas.draw()
    return sheet.fig.axes


def labels_within(axis):
    """The labels of an axis that can be seen."""
    low, high = sorted(axis.get_view_interval())
    return [
        label.get_text()
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        if low <= place <= high and label.get_text()
    ]


def test_points_stand_at_their_places():
    """Those of every line, however many lines there are."""
    (ax,) = axes_of("figure", figure("log2", MIXED, XS, [("disks", [33.8] * 5)]))
    drawn = [line for line in ax.lines if len(line.get_xdata()) == len(XS)]
    assert len(drawn) >= len(MIXED)
    for line in drawn:
        assert tuple(line.get_xdata()) == XS
        assert line.get_transform() == ax.transData
    sizes = [line.get_markersize() for line in drawn if line.get_marker() == "o"]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


@pytest.mark.parametrize("clients", [(10, 20, 30), (7,), (10, 11, 12, 1000), (1, 10, 100_000)])
@pytest.mark.parametrize("span", [1.0, 1.01, 1.3, 2.0, 7.0, 40.0, 1e5])
def test_every_axis_of_scale_is_labelled(clients, span):
    """Of four panels, one for each size of numbers."""
    measures = ("throughput_mb_s", "messages", "planning_us", "buffer_bytes_max")
    leasts = (0.03, 1.0, 96.0, 1024 * 123_456.0)  # the last is drawn in KB
    rows = [
        {"method": "caching", "clients": count, "servers": 1}
        | {
            measure: least * span ** (i / max(1, len(clients) - 1))
            for measure, least in zip(measures, leasts, strict=True)
        }
        for i, count in enumerate(clients)
    ]
    axes = axes_of("scale", rows)
    assert len(axes) == len(measures)
    for ax in axes:
        across, up = labels_within(ax.xaxis), labels_within(ax.yaxis)
        assert len(across) >= min(3, len(clients)), across
        assert len(up) >= 2, up
        assert len({*across}) == len(across) and len({*up}) == len(up)


def test_round_numbers_on_logarithmic_axes():
    assert plots.log_ticks(0.9, 1.1e6, 10) == [10.0**power for power in range(7)]
    assert plots.log_ticks(0.9, 1.1e6, 4) == [1, 100, 1e4, 1e6]
    assert plots.log_ticks(8.0, 300.0, 10) == [10, 30, 100, 300]
    assert plots.log_ticks(15.0, 110.0, 10) == [20, 50, 100]
    assert plots.log_ticks(1000.0, 1600.0, 5) == [1000, 1200, 1400, 1600]
    written = [plots.plain(v) for v in (0.5, 20, 12.5, 4096, 1e5, 2e6, 1_234_567)]
    assert written == ["0.5", "20", "12.5", "4,096", "10⁵", "2·10⁶", "1,234,567"]


def test_labels_that_find_no_room_are_left_out():
    assert plots.own_ticks([8, 16, 32], 300) == [8, 16, 32]
    assert plots.own_ticks([10, 11, 12, 1000], 300) == [10, 1000]
    assert plots.own_ticks([5], 300) == [5]


def test_trials_in_great_numbers_are_numbered_now_and_then():
    (ax,) = axes_of("figure", figure("category", ("ddio",), [str(i) for i in range(120)]))
    shown = labels_within(ax.xaxis)
    assert shown[:3] == ["0", "5", "10"]
    assert labels_within(axes_of("table", table())[1].xaxis)[1:] == list(PATTERNS[1:])


def test_cylinders_are_whole():
    points = [{"t_ms": i, "cylinder": 1 + i // 2, "what": "read"} for i in range(4)]
    (ax,) = axes_of("seeks", seeks() | {"points": points})
    assert labels_within(ax.yaxis) == ["0", "1", "2"]


def test_lines_in_the_upper_third_get_all_of_the_height():
    def bottom(ys, published=(), limits=()):
        data = figure("log2", ("one",), XS, limits, published)
        for point, y in zip(data["series"][0]["points"], ys, strict=True):
            point |= {"y": y, "cv": 0.0}
        (ax,) = axes_of("figure", data)
        return ax.get_ylim()[0]

    assert bottom([91, 92, 93, 95, 98]) == pytest.approx(85, abs=5)
    assert bottom([91, 92, 93, 95, 98], [BAND]) == 0
    assert bottom([55, 92, 93, 95, 98]) == 0
    assert bottom([91, 92, 93, 95, 98], limits=[("disks", [100] * 5)]) == 0
    assert bottom([50] * 5) == 0


# ---------------------------------------------------------------------------------------------
# Published
# ---------------------------------------------------------------------------------------------


def test_a_published_range_is_a_band_behind_the_lines():
    from matplotlib.patches import Rectangle

    (ax,) = axes_of("figure", figure("log2", ("one", "two"), XS, published=[BAND]))
    (band,) = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert (band.get_y(), band.get_y() + band.get_height()) == (2.0, 4.0)
    assert band.get_zorder() < 1


@pytest.mark.parametrize("scale", ["log2", "category"])
def test_a_published_number_is_an_open_marker_of_its_line(scale):
    x = 4 if scale == "log2" else "4"
    xs = XS if scale == "log2" else [str(x) for x in XS]
    data = figure(scale, ("ddio", "ddio-sort"), xs, published=[flag("ddio-sort", x, 6.5)])
    (ax,) = axes_of("figure", data)
    (marker,) = [
        line
        for line in ax.lines
        if line.get_markerfacecolor() == "white" and line.get_marker() != "None"
    ]
    assert marker.get_marker() == plots.LOOKS["ddio-sort"].marker
    assert list(marker.get_ydata()) == [6.5]


# ---------------------------------------------------------------------------------------------
# Black and white
# ---------------------------------------------------------------------------------------------


def grey(colour):
    """What a photocopier makes of a colour: 0 black, 1 white (Rec. 601)."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def test_methods_differ_in_marker_dashes_and_grey():
    looks = [plots.LOOKS[method] for method in METHODS]
    assert len({look.marker for look in looks}) == len(looks)
    assert len({str(look.dashes) for look in looks}) == len(looks)
    greys = sorted(grey(look.colour) for look in looks)
    assert min(b - a for a, b in itertools.pairwise(greys)) > 0.12
    assert greys[-1] < 0.75


def test_spare_looks_differ_too():
    assert len({look.marker for look in plots.SPARE_LOOKS}) == len(plots.SPARE_LOOKS)
    assert len({str(look.dashes) for look in plots.SPARE_LOOKS}) == len(plots.SPARE_LOOKS)
    looks = plots.looks_of(["ddio-sort", "new", "other"])
    assert len(set(looks.values())) == 3


@pytest.mark.parametrize("hue", ["grey", "accent"])
def test_shades_darken_evenly(hue):
    greys = [grey(plots.shade(hue, rank, 4)) for rank in range(4)]
    assert all(a - b > 0.1 for a, b in itertools.pairwise(greys))


def test_series_of_methods_and_patterns_are_told_apart():
    series = [plots.Series(name, []) for name in MIXED]
    looks, keys = plots.line_looks(series)
    assert len({(look.marker, str(look.dashes)) for look in looks.values()}) == len(MIXED)
    assert [len(row) for row in keys] == [4, 4]


def test_labels_are_spread_in_order():
    assert plots.spread([5.0, 50.0], 10, 0, 100) == [5.0, 50.0]
    places = plots.spread([31.0, 30.0, 30.5, 0.0, 99.0, 99.5], 10, 0, 100)
    assert [places[i] for i in (3, 1, 2, 0, 4, 5)] == sorted(places)
    apart = sorted(places)
    assert all(b - a >= 9.999 for a, b in itertools.pairwise(apart))
    assert apart[0] >= 0
    assert apart[-1] <= 100
    crowded = plots.spread([50.0] * 21, 10, 0, 100)
    assert crowded == pytest.approx([5.0 * i for i in range(21)])


# ---------------------------------------------------------------------------------------------
# Errors
# ---------------------------------------------------------------------------------------------


def without(data, *keys):
    return {key: value for key, value in data.items() if key not in keys}


REFUSED = {
    "no JSON": ("table", "{", "bad JSON"),
    "nothing": ("table", "", "bad JSON"),
    "not a number": ("table", '[{"mb_s": NaN}]', "bad JSON"),
    "unknown kind": ("pie", "[]", "unknown kind 'pie'"),
    "empty list": ("table", "[]", "nothing to plot"),
    "empty series": ("figure", figure("log2", (), XS), "series is empty"),
    "not a list": ("scale", "7", "expected a list, found 7"),
    "not an object": ("table", "[3]", "expected an object"),
    "not even that": ("figure", "[]", "expected an object"),
    "missing key": ("seeks", without(seeks(), "title"), "'title' must be a text, found nothing"),
    "wrong type": ("summary", {"rows": 5}, "'rows' must be a list, found 5"),
    "unknown scale": ("figure", figure("log3", METHODS, XS), "'x_scale' must be"),
    "published nowhere": (
        "figure",
        figure("log2", METHODS, XS, published=[{"name": "paper", "series": "ddio", "low": 1}]),
        "'x' must be a number, found nothing",
    ),
    "zero on a log axis": ("figure", figure("log2", METHODS, (0, 1)), "'x' must be above 0"),
    "huge": ("scale", [scale()[0] | {"messages": "many"}], "'messages' must be a number"),
    "infinite": ("summary", '{"rows": [{"method": "a", "min": 1e999}]}', "'min' must be finite"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_gets_one_line(tmp_path, name):
    kind, data, words = REFUSED[name]
    done = run_here(kind, tmp_path / "plot", data=data)
    message = done.stderr.decode()
    assert done.returncode == 2
    assert message.startswith("penstock: ")
    assert message.count("\n") == 1
    assert words in message
    assert not list(tmp_path.iterdir())


def test_wrong_arguments():
    for done in (run("table"), run_here("table")):
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1


def test_a_process_that_gets_bad_input(tmp_path):
    kind, data, words = REFUSED["unknown scale"]
    done = run(kind, tmp_path / "plot", data=data)
    message = done.stderr.decode()
    assert (done.returncode, done.stdout, message.count("\n")) == (2, b"", 1)
    assert words in message


def test_no_place_to_write(tmp_path):
    done = run_here("seeks", tmp_path / "absent" / "plot", data=seeks())
    assert done.returncode == 1
    assert done.stderr.startswith(b"penstock: cannot write the plot: ")
    assert done.stderr.count(b"\n") == 1


def test_without_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('matplotlib')\n")
    done = run("seeks", tmp_path / "plot", data=seeks(), PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    needed = "penstock: matplotlib is needed for plots: pip install matplotlib\n"
    assert done.stderr.decode() == needed
