"""This program draws pictures for ``penstock plot`` and ``penstock sim``: JSON comes on the
standard input, and a picture is the result.

The command line runs it as ``python -c SOURCE KIND OUT [--no-title]``, therefore it imports nothing
but matplotlib. OUT is a file that ends in .png (200 dots an inch), .svg (text stays text) or .pdf,
or else the stem of a .png and a .svg.

What each KIND takes (`...|null` may be left out):

- ``table``: {cells: [{layout, pattern, record, method, mb_s, published|null, cv|null, ratio|null}]}
- ``figure``: {figure, title, x_label, y_label, x_scale: category|log2|log10,
  series: [{name, points: [{x, y, cv|null}]}], limits: [{name, points: [{x, y}]}],
  published: [{name, series|null, x|null, low, high, is_relative|null}]}
- ``summary``: {rows: [{method, min, mean, max, min_pattern, max_pattern,
  published: {min, mean, max}|null}]}
- ``scale``: {rows: [{method, clients, servers, throughput_mb_s, messages, planning_us,
  buffer_bytes_max}]}; the measures may be null
- ``seeks``: {disk, title, points: [{t_ms, cylinder, what}]}

The lists of ``table`` and ``scale`` may also come bare. At the foot stands what the object says in
{provenance: {text}}, or else its {preset, trials}. Only ``table`` divides the throughput of ``ra``
by the clients, who are 16 there; all else is drawn as it is given.

Every point of a line stands at its own place along the axis. Where lines meet, markers that are
drawn later are smaller. A published number of a place is an open marker on a short arm to the right
of it; a published range of a whole figure is a band, a number of it a pale line.

The house style is for paper without colour: a method is known by its marker, its dashes and its
shade together, and the one accent is a grey of its own when copied. Nothing depends on the clock
or on the user's settings: the same input gives the same file to the last byte.

Exit codes: 0; 1 when matplotlib is missing or a file cannot be written; 2 for bad input, with one
line that says what is wrong.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 7.0
"""A page's text width, or two columns of a journal."""

PNG_DPI = 200

METADATA = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "penstock"},
    "pdf": {"CreationDate": None, "Creator": "penstock", "Producer": None},
}
"""What files say of themselves: nothing that differs from day to day."""

NOTE_LETTERS = 148
"""How many letters of small print go into a line,"""

NOTE_LINES_MAX = 3
"""and how many lines there are of one note."""

ALL_CLIENTS = 16
"""Clients of the published tables: each gets the whole file in ``ra``."""

RATIO_GOOD = 0.10
"""How far from the published value a measured one may lie, and is still in the shaded band."""

RATIO_SHOWN_MAX = 0.5
"""Ratios farther from 1 than this are drawn at the edge, with their value."""

PATTERNS = tuple(
    way + rest
    for way in "rw"
    for rest in ("a", "n", "b", "c", "nb", "bb", "cb", "bc", "cc", "cn")
    if way + rest != "wa"
)


class BadInputError(Exception):
    """What came in cannot be drawn; the message is one line for the user."""


# ---------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------


def member(record: Any, key: str, kind: str) -> Any:
    """``record[key]``, which must be a "number", "text", "list" or "object"."""
    if not isinstance(record, dict):
        raise BadInputError(f"expected an object with {key!r}, found {brief(record)}")
    value = record.get(key)
    fits = {
        "number": isinstance(value, int | float) and not isinstance(value, bool),
        "text": isinstance(value, str | int | float) and not isinstance(value, bool),
        "list": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    if not fits[kind]:
        found = brief(value) if key in record else "nothing"
        raise BadInputError(f"{key!r} must be a {kind}, found {found}")
    if kind == "number" and not math.isfinite(value):
        raise BadInputError(f"{key!r} must be finite, found {value}")
    return str(value) if kind == "text" else value


def optional(record: Any, key: str, kind: str, default: Any = None) -> Any:
    """As :func:`member`, or `default` where it is null or left out."""
    if isinstance(record, dict) and record.get(key) is None:
        return default
    return member(record, key, kind)


def positive(record: Any, key: str) -> float:
    """A number that has a place on a logarithmic axis."""
    value = member(record, key, "number")
    if value <= 0:
        raise BadInputError(f"{key!r} must be above 0, found {value}")
    return value


def brief(value: Any) -> str:
    """`value` as JSON, short enough for a message."""
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def rows_of(data: Any, name: str) -> list[Any]:
    """The list that came in, bare or as `name` of an object."""
    if isinstance(data, dict):
        return not_empty(member(data, name, "list"), name)
    if not isinstance(data, list):
        raise BadInputError(f"expected a list, found {brief(data)}")
    return not_empty(data, "the list")


def not_empty(items: list[Any], name: str) -> list[Any]:
    if not items:
        raise BadInputError(f"{name} is empty: nothing to plot")
    return items


def in_order(items: Iterable[Any]) -> list[Any]:
    """Each once, as they first come."""
    return list(dict.fromkeys(items))


def on_preset(record: Any) -> str:
    """ " on tr94", for a title, where the preset is known."""
    preset = optional(record, "preset", "text") if isinstance(record, dict) else None
    return f" on {preset}" if preset else ""


def how_made(record: Any) -> str:
    """What a result was made with, as far as it is known."""
    if not isinstance(record, dict):
        return ""
    if (provenance := optional(record, "provenance", "object")) is not None:
        return member(provenance, "text", "text")
    parts = []
    if (preset := optional(record, "preset", "text")) is not None:
        parts.append(f"preset {preset}")
    if (trials := optional(record, "trials", "number")) is not None:
        parts.append(f"{trials} trial" + ("s" if trials != 1 else ""))
    return ", ".join(parts)


# ---------------------------------------------------------------------------------------------
# House style
# ---------------------------------------------------------------------------------------------

INK = "#000000"
QUIET = "#595959"
GRID = "#d9d9d9"
BAND = "#f3f3f3"
ACCENT = "#b5341c"
PUBLISHED_BAND = "#e6e6e6"
PUBLISHED_LINE = "#c9c9c9"

STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.4,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "svg.fonttype": "none",
    "svg.hashsalt": "penstock",
    "pdf.fonttype": 42,
}


class Look(NamedTuple):
    """How one series is told from the others: in print, each of the three alone would do."""

    marker: str
    colour: str
    dashes: Any

    @property
    def line(self) -> str:
        """The shade of lines: darker than that of markers, which have an edge."""
        channels = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return "#" + "".join(f"{round(0.78 * channel):02x}" for channel in channels)

    @property
    def size(self) -> float:
        """Points across, so that all markers weigh the same to the eye."""
        return {"D": 3.9, "s": 4.2, "o": 4.7, "P": 5.2, "X": 5.2, "*": 6.6}.get(self.marker, 5.0)

    def mark(self, *, open_: bool = False) -> dict[str, Any]:
        """Marker properties."""
        return {
            "marker": self.marker,
            "markersize": self.size,
            "markerfacecolor": "white" if open_ else self.colour,
            "markeredgecolor": INK,
            "markeredgewidth": 0.7 if open_ else 0.5,
        }


LOOKS = {
    "caching": Look("o", "#ababab", (0, (1, 1.4))),
    "two-phase": Look("s", "#828282", (0, (5, 1.5, 1, 1.5))),
    "ddio": Look("^", "#111111", (0, (4, 1.6))),
    "ddio-sort": Look("D", ACCENT, "solid"),
}
SPARE_LOOKS = (
    *LOOKS.values(),
    Look("v", "#c4c4c4", (0, (7, 2))),
    Look("P", "#6b6b6b", (0, (2, 1))),
    Look("X", "#3c3c3c", (0, (6, 1.5, 1, 1.5, 1, 1.5))),
    Look("*", "#969696", (0, (9, 2, 2, 2))),
)
LIMIT_DASHES = ((0, (8, 4)), (0, (3, 3)), (0, (8, 3, 2, 3)), (0, (1, 3)))


def looks_of(methods: Sequence[str]) -> dict[str, Look]:
    """A look for each: the known methods have theirs, others get what is left over."""
    taken = [LOOKS[method] for method in methods if method in LOOKS]
    left = [look for look in SPARE_LOOKS if look not in taken]
    others = [method for method in methods if method not in LOOKS]
    looks = {method: LOOKS[method] for method in methods if method in LOOKS}
    return looks | {other: left[i % len(left)] for i, other in enumerate(others)}


class Page(NamedTuple):
    """What all kinds of plots have around them."""

    has_title: bool
    footer: str

    def sheet(self, height: float) -> Sheet:
        """A sheet of this height, or less where the title is left out."""
        sheet = Sheet(height if self.has_title else height - 0.2, self.has_title)
        sheet.note(self.footer)
        return sheet


@dataclass
class Sheet:
    """A figure with its title, legends and notes; all measures in inches from the edges."""

    height: float
    has_title: bool = True
    fig: Figure = field(init=False)
    top: float = field(init=False, default=0.09)
    bottom: float = field(init=False, default=0.06)

    def __post_init__(self) -> None:
        from matplotlib.figure import Figure

        self.fig = Figure(figsize=(WIDTH_INCHES, self.height))

    def head(self, title: str) -> None:
        """The title, where there is to be one."""
        if not self.has_title:
            return
        for line in textwrap.wrap(title, 95) or [""]:
            self.write(0.1, self.top, line, va="top", fontsize=8.5, fontweight="bold")
            self.top += 0.165
        self.top += 0.05

    def note(self, *texts: str) -> None:
        """Lines at the foot, in small print, above those that are there."""
        lines = textwrap.wrap(" ".join(filter(None, texts)), NOTE_LETTERS)
        if len(lines) > NOTE_LINES_MAX:
            lines = [*lines[: NOTE_LINES_MAX - 1], lines[NOTE_LINES_MAX - 1][:-4] + " ..."]
        for line in reversed(lines):
            y = self.height - self.bottom
            self.write(0.1, y, line, va="bottom", fontsize=6.5, color=QUIET)
            self.bottom += 0.115
        self.bottom += 0.04 if lines else 0.0

    def write(self, x: float, y: float, text: str, **how: Any) -> None:
        """Text at `x` from the left and `y` from the top."""
        self.fig.text(x / WIDTH_INCHES, 1 - y / self.height, text, **how)

    def legend(self, handles: Sequence[Any], x: float = 0.1) -> None:
        """A row of keys under the title."""
        per_row = fit_in_row([handle.get_label() for handle in handles], WIDTH_INCHES - x)
        self.fig.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(x / WIDTH_INCHES, 1 - self.top / self.height),
            ncols=per_row,
            borderpad=0,
            borderaxespad=0,
            handlelength=2.6 if any(h.get_linestyle() != "None" for h in handles) else 1.0,
            columnspacing=1.6,
            handletextpad=0.6,
            labelspacing=0.35,
        )
        self.top += 0.145 * math.ceil(len(handles) / per_row) + 0.03

    def grid(self, rows: int, columns: int = 1, **how: Any) -> list[Axes]:
        """The axes, row by row, in what the title and the notes have left."""
        left, right = how.pop("left", 0.55), how.pop("right", 0.12)
        above, below = how.pop("above", 0.08), how.pop("below", 0.36)
        spec = self.fig.add_gridspec(
            rows,
            columns,
            left=left / WIDTH_INCHES,
            right=1 - right / WIDTH_INCHES,
            top=1 - (self.top + above) / self.height,
            bottom=(self.bottom + below) / self.height,
            **how,
        )
        return [self.fig.add_subplot(spec[r, c]) for r in range(rows) for c in range(columns)]

    def save(self, out: str) -> None:
        """To the one file that `out` is, or to two files with that stem."""
        suffix = out.rpartition(".")[2].lower()
        if suffix in METADATA and "." in out:
            self.fig.savefig(out, format=suffix, dpi=PNG_DPI, metadata=METADATA[suffix])
            return
        for suffix in ("png", "svg"):
            self.save(f"{out}.{suffix}")


def text_inches(text: str, points: float = 7.5) -> float:
    """About how wide: good enough to leave room."""
    return len(text) * points * 0.58 / 72


def fit_in_row(labels: Sequence[str], inches: float) -> int:
    """How many keys fit side by side."""
    widths = [text_inches(label) + 0.55 for label in labels]
    if sum(widths) <= inches:
        return len(labels)
    return max(1, min(len(labels), int(inches / max(widths))))


def key(
    label: str, look: Look, *, line: bool = True, mark: bool = True, open_: bool = False
) -> Any:
    """A legend's entry."""
    from matplotlib.lines import Line2D

    how = look.mark(open_=open_) if mark else {}
    dashes = look.dashes if line else "none"
    return Line2D([], [], label=label, color=look.line, linestyle=dashes, **how)


def plain(value: float) -> str:
    """A number on a logarithmic axis: 0.5, 20, 4,096, 10⁶, 2·10⁶."""
    if value >= 1e5:
        power = math.floor(math.log10(value) + 1e-9)
        digits = f"{value / 10**power:.3g}"
        if len(digits) <= 3:
            raised = str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
            return f"10{raised}" if digits == "1" else f"{digits}·10{raised}"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones, at least `gap` apart where there is room, in the same order."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    if len(order) > 1:
        gap = min(gap, (high - low) / (len(order) - 1))
    placed: list[float] = []
    for rank, i in enumerate(order):
        floor = placed[-1] + gap if placed else low
        placed.append(max(floor, min(wanted[i], high - gap * (len(order) - 1 - rank))))
    # Pushed up only, clusters would all sit above what they name: move each back by half.
    for rank in reversed(range(len(order))):
        roof = placed[rank + 1] - gap if rank + 1 < len(order) else high
        middle = (placed[rank] + min(wanted[order[rank]], roof)) / 2
        floor = low + gap * rank
        placed[rank] = min(roof, max(middle, floor))
    for rank in range(1, len(order)):
        placed[rank] = max(placed[rank], placed[rank - 1] + gap)
    result = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        result[i] = placed[rank]
    return result


# ---------------------------------------------------------------------------------------------
# Ticks
# ---------------------------------------------------------------------------------------------

TICKS_MIN = 3
"""An axis has as many labels at least, if there are as many round numbers on it."""


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from `low` to `high` on a logarithmic axis, about `most` of them at most:
    powers of ten; where these are too few 1, 2 and 5 of each; or else evenly spaced ones."""
    from matplotlib.ticker import MaxNLocator

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 3), (1, 2, 5)):
        ticks = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= TICKS_MIN:
            return ticks[:: math.ceil(len(ticks) / most)]
    evenly = MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    ticks = [float(tick) for tick in evenly if low <= tick <= high]
    return ticks or [low]


def own_ticks(values: Sequence[float], room_points: float) -> list[float]:
    """Those of the ascending values whose labels find room side by side on a logarithmic axis that
    is so long: the first, the last, and what does not come too near to those before it."""
    span = math.log(values[-1] / values[0]) or 1.0
    widths = [72 * text_inches(plain(value)) + 6 for value in values]
    places = [room_points * math.log(value / values[0]) / span for value in values]

    def is_apart(i: int, j: int) -> bool:
        return places[j] - places[i] >= (widths[i] + widths[j]) / 2

    kept = [0]
    last = len(values) - 1
    for i in range(1, last):
        if is_apart(kept[-1], i) and is_apart(i, last):
            kept.append(i)
    if last and is_apart(kept[-1], last):
        kept.append(last)
    return [values[i] for i in kept]


def set_log_ticks(axis: Any, low: float, high: float, own: Sequence[float] = ()) -> None:
    """Labels a logarithmic axis from `low` to `high`: at its own values, if these are few."""
    from matplotlib.ticker import NullLocator

    is_horizontal = axis.axis_name == "x"
    box = axis.axes.get_position()
    points = 72 * (
        box.width * WIDTH_INCHES if is_horizontal else box.height * axis.axes.figure.get_figheight()
    )
    ticks = log_ticks(low, high, int(points / (38 if is_horizontal else 20)))
    if 0 < len(own) <= 12:
        inside = points * math.log(own[-1] / own[0]) / math.log(high / low)
        kept = own_ticks(own, inside)
        if len(kept) >= min(TICKS_MIN, len(own)):
            ticks = kept
    axis.set_ticks(ticks, [plain(tick) for tick in ticks])
    axis.set_minor_locator(NullLocator())


# ---------------------------------------------------------------------------------------------
# Groups of values over a category, as in `table` and some figures
# ---------------------------------------------------------------------------------------------


class Value(NamedTuple):
    y: float
    deviation: float


def group_axis(ax: Axes, categories: Sequence[str], labels: Sequence[str] | None = None) -> None:
    """One place for each category, every other one shaded; reads and writes are kept apart."""
    labels = list(labels or categories)
    if len(categories) <= CATEGORIES_SHADED:
        for i in range(0, len(categories), 2):
            ax.axvspan(i - 0.5, i + 0.5, color=BAND, linewidth=0, zorder=0)
    ways = [category[:1] for category in categories]
    if set(ways) == {"r", "w"} and ways == sorted(ways):
        ax.axvline(ways.index("w") - 0.5, color=QUIET, linewidth=0.6, zorder=1)
    ax.set_xlim(-0.5, len(categories) - 0.5)
    ax.tick_params(axis="x", length=0)
    shown = range(0, len(labels), label_step(ax, labels))
    ax.set_xticks(shown, [labels[i] for i in shown])
    if len(shown) == len(labels) and sum(map(len, labels)) > 100:
        ax.tick_params(axis="x", labelrotation=45)


def label_step(ax: Axes, labels: Sequence[str]) -> int:
    """All names are shown; of numbers every second, fifth, tenth and so on, if room is scarce."""
    room = ax.get_position().width * WIDTH_INCHES / len(labels)

    def fits(step: int) -> bool:
        widths = [text_inches(label) for label in labels[::step]]
        pairs = itertools.pairwise(widths)
        return all((a + b) / 2 + 0.06 <= step * room for a, b in pairs)

    if not all(label.isdigit() for label in labels):
        return 1
    return next(step for step in TENS if step >= len(labels) or fits(step))


TENS = [digit * 10**power for power in range(19) for digit in (1, 2, 5)]
"""1, 2, 5, 10, 20, 50 and so on."""

CATEGORIES_SHADED = 60
"""More places than these are too narrow to be told apart by their shade."""


def offsets(count: int, width: float = 0.84) -> list[float]:
    """Where the methods stand beside each other in a category's place."""
    step = width / count
    return [(i - (count - 1) / 2) * step for i in range(count)]


def draw_group(ax: Axes, xs: Sequence[float], values: Sequence[Value], look: Look) -> None:
    """Markers on stems from zero, with a standard deviation up and down."""
    heights = [value.y for value in values]
    ax.vlines(xs, 0, heights, color=look.colour, linewidth=1.3, zorder=2)
    bars = [value.deviation for value in values]
    ax.errorbar(
        xs,
        heights,
        yerr=bars if any(bars) else None,
        fmt="none",
        ecolor=INK,
        elinewidth=0.6,
        capsize=1.2,
        capthick=0.5,
        zorder=3,
    )
    ax.plot(xs, heights, linestyle="none", zorder=4, **look.mark())


# ---------------------------------------------------------------------------------------------
# table
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    layout: str
    pattern: str
    record: int
    method: str
    measured: Value
    published: float | None
    ratio: float | None

    @classmethod
    def of(cls, row: Any) -> Cell:
        pattern = member(row, "pattern", "text")
        scale = 1 / ALL_CLIENTS if pattern == "ra" else 1.0
        mb_s = member(row, "mb_s", "number")
        published = optional(row, "published", "number")
        ratio = optional(row, "ratio", "number")
        if ratio is None and published:
            ratio = mb_s / published
        return cls(
            member(row, "layout", "text"),
            pattern,
            member(row, "record", "number"),
            member(row, "method", "text"),
            Value(mb_s * scale, mb_s * scale * optional(row, "cv", "number", 0.0)),
            None if published is None else published * scale,
            ratio,
        )


def draw_table(data: Any, page: Page) -> Sheet:
    cells = [Cell.of(row) for row in rows_of(data, "cells")]
    layouts = in_order(cell.layout for cell in cells)
    panels = sorted(
        in_order((cell.layout, cell.record) for cell in cells),
        key=lambda panel: (layouts.index(panel[0]), panel[1]),
    )
    found = in_order(cell.pattern for cell in cells)
    patterns = [p for p in PATTERNS if p in found] + [p for p in found if p not in PATTERNS]
    methods = in_order(cell.method for cell in cells)
    looks = looks_of([m for m in LOOKS if m in methods] + [m for m in methods if m not in LOOKS])

    sheet = page.sheet(1.15 + 2.5 * len(panels))
    about = data if isinstance(data, dict) else {}
    where = f", {layouts[0]} layout" if len(layouts) == 1 else ""
    number = optional(about, "number", "text")
    what = f"Table {number}" if number else "Table"
    sheet.head(f"{what}{on_preset(about)}: throughput{where}, measured and published")
    shown = [key(name, look, line=False) for name, look in looks.items()]
    shown.append(key("open: published", LOOKS["caching"], line=False, open_=True))
    sheet.legend(shown)
    sheet.note(
        f"ra is divided by {ALL_CLIENTS}, the clients that each get the whole file."
        if "ra" in patterns
        else "",
        "Bars: one standard deviation over the trials." if any_deviation(cells) else "",
        f"Band: within {RATIO_GOOD:.0%} of the published value. No open marker: not published.",
    )
    axes = sheet.grid(
        2 * len(panels), below=0.18, height_ratios=[2.6, 1.15] * len(panels), hspace=0.2
    )
    spaced(axes, sheet)
    reach = ratio_reach(cells)
    for (layout, record), upper, lower in zip(panels, axes[::2], axes[1::2], strict=True):
        here = [cell for cell in cells if (cell.layout, cell.record) == (layout, record)]
        name = f"{record}-byte records" + (f", {layout} layout" if len(layouts) > 1 else "")
        draw_values(upper, here, patterns, looks)
        upper.set_title(name, loc="left", fontsize=8, pad=3)
        draw_ratios(lower, here, patterns, looks, reach)
    return sheet


def ratio_reach(cells: Sequence[Cell]) -> float:
    """How far from 1 the strips go: as far as the ratios, within limits."""
    farthest = max((abs(cell.ratio - 1) for cell in cells if cell.ratio is not None), default=0.0)
    return 2 * RATIO_GOOD if 1.1 * farthest <= 2 * RATIO_GOOD else RATIO_SHOWN_MAX


def any_deviation(cells: Sequence[Cell]) -> bool:
    return any(cell.measured.deviation for cell in cells)


def spaced(axes: Sequence[Axes], sheet: Sheet) -> None:
    """Brings every strip nearer to its panel, and pairs farther apart."""
    move = 0.1 / sheet.height
    for upper, lower in zip(axes[::2], axes[1::2], strict=True):
        box = lower.get_position()
        lower.set_position([box.x0, box.y0 + move, box.width, box.height])
        box = upper.get_position()
        upper.set_position([box.x0, box.y0, box.width, box.height - move])


def draw_values(ax: Axes, cells: Sequence[Cell], patterns: list[str], looks: dict) -> None:
    group_axis(ax, patterns)
    ax.tick_params(axis="x", labelbottom=False)
    beside = 0.21 / len(looks)
    for (method, look), offset in zip(looks.items(), offsets(len(looks)), strict=True):
        mine = [cell for cell in cells if cell.method == method]
        xs = [patterns.index(cell.pattern) + offset - beside for cell in mine]
        draw_group(ax, xs, [cell.measured for cell in mine], look)
        known = [cell for cell in mine if cell.published is not None]
        xs = [patterns.index(cell.pattern) + offset + beside for cell in known]
        ax.plot(
            xs,
            [cell.published for cell in known],
            linestyle="none",
            zorder=3.5,
            **look.mark(open_=True),
        )
    ax.set_ylim(bottom=0)
    ax.set_ylabel("MB/s")


def draw_ratios(
    ax: Axes, cells: Sequence[Cell], patterns: list[str], looks: dict, reach: float
) -> None:
    """Measured over published: 1 is agreement."""
    labels = [f"ra/{ALL_CLIENTS}" if pattern == "ra" else pattern for pattern in patterns]
    group_axis(ax, patterns, labels)
    ax.axhspan(1 - RATIO_GOOD, 1 + RATIO_GOOD, color="#dedede", linewidth=0, zorder=0.5)
    ax.axhline(1, color=QUIET, linewidth=0.6, zorder=1)
    for (method, look), offset in zip(looks.items(), offsets(len(looks)), strict=True):
        for cell in cells:
            if cell.method != method or cell.ratio is None:
                continue
            x = patterns.index(cell.pattern) + offset
            y = min(max(cell.ratio, 1 - reach), 1 + reach)
            ax.plot([x], [y], linestyle="none", clip_on=False, zorder=4, **look.mark())
            if y != cell.ratio:
                up = 1 if cell.ratio > 1 else -1
                ax.annotate(
                    f"{cell.ratio:.2f}",
                    (x, y),
                    xytext=(0, -3.5 * up),
                    textcoords="offset points",
                    ha="center",
                    va="top" if up > 0 else "bottom",
                    fontsize=6,
                    zorder=5,
                )
    ax.set_ylim(1 - reach, 1 + reach)
    ax.set_yticks([1 - reach, 1, 1 + reach])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
    ax.set_ylabel("ratio")


# ---------------------------------------------------------------------------------------------
# figure
# ---------------------------------------------------------------------------------------------


class Series(NamedTuple):
    name: str
    points: list[tuple[Any, Value]]


class Published(NamedTuple):
    """What a paper says of a place of a series, or without these of the whole figure."""

    name: str
    series: str | None
    x: Any
    low: float
    high: float
    is_relative: bool


class Chart(NamedTuple):
    """All that is drawn on one pair of axes."""

    series: list[Series]
    limits: list[Series]
    published: list[Published]

    def flags(self) -> list[Published]:
        """What is published of places."""
        return [one for one in self.published if one.series is not None]

    def bands(self) -> list[Published]:
        """What is published of all places."""
        return [one for one in self.published if one.series is None]


def series_of(record: Any, *, x_kind: str) -> Series:
    name = member(record, "name", "text")
    points = []
    for point in not_empty(member(record, "points", "list"), f"points of {name!r}"):
        x = positive(point, "x") if x_kind == "number" else member(point, "x", "text")
        y = member(point, "y", "number")
        points.append((x, Value(y, y * optional(point, "cv", "number", 0.0))))
    if x_kind == "number":
        points.sort(key=lambda point: point[0])
    return Series(name, points)


def published_of(record: Any, *, x_kind: str) -> Published:
    series = optional(record, "series", "text")
    x = None
    if series is not None:
        x = positive(record, "x") if x_kind == "number" else member(record, "x", "text")
    low, high = (member(record, end, "number") for end in ("low", "high"))
    is_relative = bool(isinstance(record, dict) and record.get("is_relative"))
    return Published(member(record, "name", "text"), series, x, low, high, is_relative)


def draw_figure(data: Any, page: Page) -> Sheet:
    scale = member(data, "x_scale", "text")
    if scale not in ("category", "log2", "log10"):
        raise BadInputError(f"'x_scale' must be category, log2 or log10, found {brief(scale)}")
    x_kind = "text" if scale == "category" else "number"
    every = not_empty(member(data, "series", "list"), "series")
    chart = Chart(
        [series_of(s, x_kind=x_kind) for s in every],
        [series_of(s, x_kind=x_kind) for s in optional(data, "limits", "list", [])],
        [published_of(p, x_kind=x_kind) for p in optional(data, "published", "list", [])],
    )
    sheet = page.sheet(4.0)
    on = on_preset(data)
    sheet.head(f"Figure {member(data, 'figure', 'text')}{on}: {member(data, 'title', 'text')}")
    if scale == "category":
        ax = draw_categories(sheet, chart)
    else:
        ax = draw_lines(sheet, chart, base=int(scale[3:]))
    ax.set_xlabel(member(data, "x_label", "text"))
    ax.set_ylabel(member(data, "y_label", "text"))
    return sheet


def deviation_note(series: Sequence[Series]) -> str:
    shown = any(value.deviation for one in series for _, value in one.points)
    return "Bars: one standard deviation over the trials." if shown else ""


def relative_note(chart: Chart) -> str:
    if not any(one.is_relative for one in chart.published):
        return ""
    return (
        "Where the paper gives a percentage of another line, it is taken of that line as simulated."
    )


def flag_key(chart: Chart) -> list[Any]:
    """The legend's entry for what is published of places."""
    names = in_order(one.name for one in chart.flags())
    return (
        [key(f"open: {', '.join(names)}", LOOKS["caching"], line=False, open_=True)]
        if names
        else []
    )


UPPER = 0.65
"""Below this part of the greatest value an axis that began at the least would mislead."""


def y_span(chart: Chart, *, from_zero: bool) -> tuple[float, float]:
    """Room for all series, for what is published, and for limits that lie not far above them. Lines
    that all lie in the upper third are given all of the height."""
    ends = [
        one.y + side * one.deviation
        for s in chart.series
        for _, one in s.points
        for side in (-1, 1)
    ]
    ends += [end for one in chart.published for end in (one.low, one.high)]
    tallest, least = max(ends), min(ends)
    near = [v.y for one in chart.limits for _, v in one.points if v.y <= 1.25 * tallest]
    top = max([tallest, *near])
    if from_zero or chart.limits or least < UPPER * top or least == top:
        return min(0.0, 1.06 * least), 1.06 * top or 1.0
    span = max(top - least, 0.1 * top)
    step = 10.0 ** math.floor(math.log10(span))
    step *= next(part for part in (1.0, 0.5, 0.2) if span / (part * step) >= 2)
    return step * math.floor((least - 0.1 * span) / step), top + 0.08 * span


def draw_bands(ax: Axes, chart: Chart) -> list[tuple[str, float, None]]:
    """What is published of the whole figure: a band or a pale line, named at the right end."""
    for one in chart.bands():
        if one.low < one.high:
            ax.axhspan(one.low, one.high, color=PUBLISHED_BAND, linewidth=0, zorder=0.6)
        else:
            ax.axhline(one.high, color=PUBLISHED_LINE, linewidth=2.4, zorder=0.7)
    return [(one.name, (one.low + one.high) / 2, None) for one in chart.bands()]


def draw_categories(sheet: Sheet, chart: Chart) -> Axes:
    series, limits = chart.series, chart.limits
    categories = in_order(x for one in series for x, _ in one.points)
    looks = looks_of([one.name for one in series])
    sheet.legend(
        [*(key(one.name, looks[one.name], line=False) for one in series), *flag_key(chart)]
    )
    sheet.note(deviation_note(series), relative_note(chart))
    named = [one.name for one in [*limits, *chart.bands()]]
    right = 0.12 + max((text_inches(name) + 0.12 for name in named), default=0.0)
    ax = sheet.grid(1, right=right)[0]
    group_axis(ax, categories)
    ax.set_ylim(*y_span(chart, from_zero=True))
    beside = 0.21 / len(series) if chart.flags() else 0.0
    for one, offset in zip(series, offsets(len(series)), strict=True):
        look = looks[one.name]
        xs = [categories.index(x) + offset - beside for x, _ in one.points]
        draw_group(ax, xs, [value for _, value in one.points], look)
        for flag in chart.flags():
            if flag.series == one.name and flag.x in categories:
                x = categories.index(flag.x) + offset + beside
                ax.plot([x, x], [flag.low, flag.high], color=look.line, zorder=3.4)
                ax.plot([x], [flag.high], linestyle="none", zorder=3.5, **look.mark(open_=True))
    for number, limit in enumerate(limits):
        dashes = LIMIT_DASHES[number % len(LIMIT_DASHES)]
        places = [(categories.index(x), v.y) for x, v in limit.points if x in categories]
        if len({y for _, y in places} or {v.y for _, v in limit.points}) == 1:
            ax.axhline(limit.points[0][1].y, **limit_line(dashes))
        else:
            ax.hlines(
                [y for _, y in places],
                [x - 0.5 for x, _ in places],
                [x + 0.5 for x, _ in places],
                **limit_line(dashes),
            )
    ends = [(limit.name, limit.points[-1][1].y, None) for limit in limits]
    label_ends(ax, [*ends, *draw_bands(ax, chart)])
    return ax


def limit_line(dashes: Any) -> dict[str, Any]:
    return {"color": QUIET, "linewidth": 0.8, "linestyle": dashes, "zorder": 1.5}


def line_looks(series: Sequence[Series]) -> tuple[dict[str, Look], list[list[Any]]]:
    """A look for each series, and the two rows of a legend if there are too many series to be
    labelled one by one: the method gives shade and dashes, the pattern the marker."""
    names = [one.name for one in series]
    parts = [name.split(" ", 1) for name in names]
    methods = in_order(part[0] for part in parts)
    patterns = in_order(part[-1] for part in parts)
    if not all(len(part) == 2 and part[0] in LOOKS for part in parts) or len(methods) == 1:
        return looks_of(names), []
    if len(patterns) == 1:
        return {name: LOOKS[part[0]] for name, part in zip(names, parts, strict=True)}, []
    markers = ["o", "s", "^", "D", "v", "P", "X", "*"]
    marker_of = {p: markers[i % len(markers)] for i, p in enumerate(patterns)}
    looks = {
        name: LOOKS[part[0]]._replace(marker=marker_of[part[1]])
        for name, part in zip(names, parts, strict=True)
    }
    if len(series) <= 6:
        return looks, []
    return looks, [
        [key(method, LOOKS[method], mark=False) for method in methods],
        [key(p, Look(m, "#828282", "none"), line=False) for p, m in marker_of.items()],
    ]


def draw_lines(sheet: Sheet, chart: Chart, base: int) -> Axes:
    from matplotlib.ticker import MaxNLocator

    series, flags = chart.series, chart.flags()
    looks, keys = line_looks(series)
    for row in [*keys, flag_key(chart)]:
        if row:
            sheet.legend(row)
    bottom, top = y_span(chart, from_zero=False)
    sheet.note(
        deviation_note(series),
        relative_note(chart),
        "The vertical axis does not begin at 0." if bottom > 0 else "",
    )
    labelled = [*chart.limits, *chart.bands()] if keys else [*series, *chart.limits, *chart.bands()]
    longest = max((text_inches(one.name) for one in labelled), default=0.0)
    ax = sheet.grid(1, right=0.2 + (longest + 0.4 if labelled else 0.0))[0]
    xs = sorted({x for one in [*series, *chart.limits] for x, _ in one.points})
    log_x_axis(ax, xs, base, margins=(10, 10 + (FLAG_POINTS if flags else 0)))
    ax.set_ylim(bottom, top)
    ax.yaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10]))
    for one, factor in zip(series, nested(len(series)), strict=True):
        look = looks[one.name]
        bars = [value.deviation for _, value in one.points]
        ax.errorbar(
            [x for x, _ in one.points],
            [value.y for _, value in one.points],
            yerr=bars if any(bars) else None,
            color=look.line,
            linestyle=look.dashes,
            ecolor=INK,
            elinewidth=0.6,
            capsize=1.2,
            capthick=0.5,
            zorder=3,
            clip_on=False,
            **look.mark() | {"markersize": factor * look.size},
        )
    for flag in flags:
        if flag.series in looks:
            draw_flag(ax, flag, looks[flag.series])
    ends = [] if keys else [(one.name, one.points[-1][1].y, looks[one.name]) for one in series]
    label_ends(ax, [*ends, *draw_bands(ax, chart), *draw_limits(ax, chart.limits, top)])
    return ax


def nested(count: int) -> list[float]:
    """How large the markers of the series are, first to last: where lines meet, none is hidden."""
    step = min(0.15, 0.6 / max(1, count - 1))
    return [1 + step * ((count - 1) / 2 - i) for i in range(count)]


FLAG_POINTS = 13
"""How far to the right of its place an open marker stands."""


def draw_flag(ax: Axes, flag: Published, look: Look) -> None:
    """An open marker on an arm that begins at the place; of a range, the arm spans it."""
    from matplotlib.transforms import ScaledTranslation

    right = ScaledTranslation(FLAG_POINTS / 72, 0, ax.figure.dpi_scale_trans)
    ax.annotate(
        "",
        (flag.x, flag.high),
        xytext=(FLAG_POINTS, 0),
        textcoords="offset points",
        arrowprops={
            "arrowstyle": "-",
            "color": look.line,
            "linewidth": 0.7,
            "shrinkA": 0,
            "shrinkB": 0,
        },
        zorder=3.4,
    )
    how = {
        "color": look.line,
        "linewidth": 0.7,
        "transform": ax.transData + right,
        "clip_on": False,
    }
    ax.plot([flag.x] * 2, [flag.low, flag.high], zorder=3.4, **how)
    ax.plot([flag.x], [flag.high], zorder=3.5, **how | look.mark(open_=True))


def log_x_axis(ax: Axes, xs: Sequence[float], base: int, margins: tuple[float, float]) -> None:
    """A logarithmic axis over `xs`, with margins in points at the left and the right."""
    ax.set_xscale("log", base=base)
    span = math.log(xs[-1] / xs[0]) or 1.0
    left, right = (span * margin / (width_points(ax) - sum(margins)) for margin in margins)
    low, high = xs[0] / math.exp(left), xs[-1] * math.exp(right)
    ax.set_xlim(low, high)
    set_log_ticks(ax.xaxis, low, high, xs)


def width_points(ax: Axes) -> float:
    return ax.get_position().width * WIDTH_INCHES * 72


def draw_limits(ax: Axes, limits: Sequence[Series], top: float) -> list[tuple[str, float, None]]:
    """Thin dashes; those that leave at the top are named there, the others at their right end."""
    ends = []
    for number, limit in enumerate(limits):
        how = limit_line(LIMIT_DASHES[number % len(LIMIT_DASHES)])
        xs, ys = [x for x, _ in limit.points], [value.y for _, value in limit.points]
        if len(set(ys)) == 1:
            ax.axhline(ys[0], **how)
        else:
            ax.plot(xs, ys, **how)
        if ys[-1] <= top:
            ends.append((limit.name, ys[-1], None))
        elif min(ys) < top:
            out = next(i for i, y in enumerate(ys) if i and y > top)
            part = (top - ys[out - 1]) / (ys[out] - ys[out - 1])
            x = xs[out - 1] * (xs[out] / xs[out - 1]) ** min(max(part, 0.0), 1.0)
            ax.annotate(
                limit.name,
                (x, top),
                xytext=(4, -1),
                textcoords="offset points",
                va="top",
                fontsize=7,
                color=QUIET,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )
        else:
            ends.append((f"{limit.name}: {plain(min(ys))}", top, None))
    return ends


def label_ends(ax: Axes, ends: Sequence[tuple[str, float, Look | None]]) -> None:
    """Names at the right of the axes, each with its key, a hair-line leading to where it ends."""
    if not ends:
        return
    height = ax.get_position().height * ax.figure.get_figheight() * 72
    low, high = ax.get_ylim()
    wanted = [(y - low) / (high - low) * height for _, y, _ in ends]
    places = spread(wanted, gap=10.5, low=3, high=height - 1)
    inches = ax.get_position().width * WIDTH_INCHES
    for (name, _, look), y0, y1 in zip(ends, wanted, places, strict=True):
        at = {"transform": ax.transAxes, "clip_on": False, "zorder": 2}
        start = 1 + 0.02 / inches
        knee, text = start + 0.12 / inches, start + (0.16 if look is None else 0.46) / inches
        ax.plot([start, knee], [y0 / height, y1 / height], color=QUIET, linewidth=0.4, **at)
        if look is not None:
            sample = [knee + x / inches for x in (0.02, 0.15, 0.28)]
            how = {"color": look.line, "linestyle": look.dashes} | look.mark()
            ax.plot(sample, [y1 / height] * 3, markevery=[1], **how, **at)
        ax.text(
            text,
            y1 / height,
            name,
            transform=ax.transAxes,
            va="center_baseline",
            fontsize=7.5 if look else 7,
            color=INK if look else QUIET,
        )


# ---------------------------------------------------------------------------------------------
# summary
# ---------------------------------------------------------------------------------------------


def draw_summary(data: Any, page: Page) -> Sheet:
    rows = not_empty(member(data, "rows", "list"), "rows")
    looks = looks_of([member(row, "method", "text") for row in rows])
    sheet = page.sheet(1.2 + 0.68 * len(rows))
    on = on_preset(data)
    sheet.head(
        f"Improvement over caching{on}: least, geometric mean and greatest over all patterns"
    )
    sheet.note(
        "Filled, solid: measured, with the pattern of the least and the greatest. "
        "Open, dashed: published. The larger marker is the mean."
    )
    ax = sheet.grid(1, left=0.85)[0]
    ax.grid(axis="x")
    ax.grid(visible=False, axis="y")
    every = []
    for number, row in enumerate(rows):
        name = member(row, "method", "text")
        low, mean, high = (positive(row, k) for k in ("min", "mean", "max"))
        texts = [optional(row, f"{end}_pattern", "text", "") for end in ("min", "max")]
        draw_range(ax, number - 0.17, (low, mean, high), looks[name], texts=texts)
        every += [low, high]
        published = optional(row, "published", "object")
        if published is not None:
            values = tuple(positive(published, k) for k in ("min", "mean", "max"))
            draw_range(ax, number + 0.2, values, looks[name], texts=["", ""], open_=True)
            every += [values[0], values[2]]
    longest = max(
        len(optional(row, f"{end}_pattern", "text", "")) for row in rows for end in ("min", "max")
    )
    ratio_axis(ax, min(every), max(every), text_inches("x" * (longest + 5), 7))
    ax.set_ylim(len(rows) - 0.4, -0.55)
    ax.set_yticks(range(len(rows)), list(looks))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("throughput over that of caching (log scale)")
    return sheet


def draw_range(
    ax: Axes, y: float, values: tuple, look: Look, *, texts: Sequence[str], open_: bool = False
) -> None:
    """Least, mean and greatest on a line, with their numbers."""
    low, mean, high = values
    style = (0, (3, 2)) if open_ else "solid"
    colour = QUIET if open_ else look.colour
    ax.plot([low, high], [y, y], color=colour, linestyle=style, linewidth=1.2, zorder=2)
    mark = look.mark(open_=open_)
    ax.plot([low, high], [y, y], linestyle="none", zorder=3, **mark)
    ax.plot([mean], [y], linestyle="none", zorder=4, **(mark | {"markersize": 1.5 * look.size}))
    for x, text, side in ((low, texts[0], -1), (high, texts[1], 1)):
        number = f"{x:.3g}" if x >= 10 else f"{x:.2f}"
        words = (text, number) if side < 0 else (number, text)
        ax.annotate(
            "  ".join(filter(None, words)),
            (x, y),
            xytext=(5.5 * side, 0),
            textcoords="offset points",
            ha="right" if side < 0 else "left",
            va="center_baseline",
            fontsize=7,
            color=QUIET if open_ else INK,
        )
    ax.annotate(
        f"{mean:.2f}",
        (mean, y),
        xytext=(0, 5.5),
        textcoords="offset points",
        ha="center",
        fontsize=7,
        color=QUIET if open_ else INK,
    )


def ratio_axis(ax: Axes, low: float, high: float, room_inches: float) -> None:
    """A logarithmic axis with room for numbers at both ends, and a line where nothing is gained."""
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = min(low, 1.0), max(high, 1.0)
    inches = ax.get_position().width * WIDTH_INCHES
    decades = max(math.log10(high / low), 0.3) * inches / (inches - 2 * room_inches)
    margin = decades * room_inches / inches
    ax.set_xscale("log")
    ax.set_xlim(low / 10**margin, high * 10**margin)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _: plain(value))
    ax.axvline(1, color=INK, linewidth=0.8, zorder=1)


# ---------------------------------------------------------------------------------------------
# scale
# ---------------------------------------------------------------------------------------------

SCALE_PANELS = (
    ("throughput_mb_s", "Throughput (MB/s)", 1.0),
    ("messages", "Messages", 1.0),
    ("planning_us", "Planning time per server (µs)", 1.0),
    ("buffer_bytes_max", "Buffer memory, most on one node (KB)", 1 / 1024),
)


def draw_scale(data: Any, page: Page) -> Sheet:
    rows = rows_of(data, "rows")
    methods = in_order(member(row, "method", "text") for row in rows)
    servers = sorted({positive(row, "servers") for row in rows})
    looks = looks_of(methods)
    sheet = page.sheet(5.4)
    on = on_preset(data)
    sheet.head(f"Cost of more clients{on}, for each method and number of servers")
    sheet.legend([key(name, look._replace(colour=QUIET)) for name, look in looks.items()])
    shades = [Look("", shade("grey", i, len(servers)), "solid") for i in range(len(servers))]
    sheet.legend(
        [
            key(f"{plain(count)} server" + ("s" if count != 1 else ""), look, mark=False)
            for count, look in zip(servers, shades, strict=True)
        ]
    )
    sheet.note("KB: 2¹⁰ bytes.", *absences(rows, methods))
    clients = sorted({positive(row, "clients") for row in rows})
    axes = sheet.grid(2, 2, hspace=0.34, wspace=0.19, above=0.2, left=0.55)
    for ax, (name, title, factor) in zip(axes, SCALE_PANELS, strict=True):
        for method, look in looks.items():
            for rank, count in enumerate(servers):
                points = sorted(
                    (positive(row, "clients"), factor * optional(row, name, "number", 0.0))
                    for row in rows
                    if (str(row["method"]), row["servers"]) == (method, count)
                )
                points = [point for point in points if point[1] > 0]
                draw_scale_line(ax, points, look, rank, len(servers))
        ax.set_title(title, loc="left", fontsize=8, pad=3)
        log_axes(ax, clients)
    for ax in axes[2:]:
        ax.set_xlabel("clients")
    return sheet


def absences(rows: Sequence[Any], methods: Sequence[str]) -> list[str]:
    """What a logarithmic axis cannot show."""
    notes = []
    for name, title, _ in SCALE_PANELS:
        values = dict.fromkeys(methods, 0.0)
        for row in rows:
            method, value = str(row["method"]), optional(row, name, "number", 0.0)
            values[method] = max(values[method], value)
        none = [method for method, value in values.items() if value <= 0]
        if none:
            notes.append(f"{title.split(' (')[0]}: none for {', '.join(none)}.")
    return notes


def draw_scale_line(ax: Axes, points: list, look: Look, rank: int, count: int) -> None:
    mine = look._replace(colour=shade("accent" if look.colour == ACCENT else "grey", rank, count))
    how = mine.mark() | {"markersize": 0.8 * look.size, "markeredgewidth": 0.3}
    xs, ys = [x for x, _ in points], [y for _, y in points]
    ax.plot(xs, ys, color=mine.line, linestyle=look.dashes, linewidth=0.9, **how)


def shade(hue: str, rank: int, count: int) -> str:
    """From light for few servers to dark for many; of the accent, the greys it copies to."""
    part = rank / (count - 1) if count > 1 else 1.0
    light, dark = {"grey": ((190,) * 3, (0,) * 3), "accent": ((236, 172, 158), (130, 24, 8))}[hue]
    mixed = (round(a + (b - a) * part) for a, b in zip(light, dark, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def log_axes(ax: Axes, clients: Sequence[float]) -> None:
    """Both axes logarithmic, and labelled whatever lies between their ends."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high < 1.5 * low:  # all but equal: evenly around the middle
        low, high = low / 1.5, high * 1.5
        ax.set_ylim(low, high)
    set_log_ticks(ax.yaxis, low, high)
    beyond = max(clients[-1] / clients[0], 2.0) ** 0.05
    low, high = clients[0] / beyond, clients[-1] * beyond
    ax.set_xlim(low, high)
    set_log_ticks(ax.xaxis, low, high, clients)


# ---------------------------------------------------------------------------------------------
# seeks
# ---------------------------------------------------------------------------------------------

TRANSFERS = {
    "read": Look("o", "#ffffff", "none"),
    "write": Look("s", ACCENT, "none"),
    "media": Look("o", "#ffffff", "none"),
}


def draw_seeks(data: Any, page: Page) -> Sheet:
    points = [
        (
            member(point, "t_ms", "number"),
            member(point, "cylinder", "number"),
            member(point, "what", "text"),
        )
        for point in not_empty(member(data, "points", "list"), "points")
    ]
    from matplotlib.ticker import MaxNLocator

    points.sort(key=lambda point: point[0])
    sheet = page.sheet(4.0)
    disk = member(data, "disk", "text")
    sheet.head(f"{member(data, 'title', 'text')}: the arm of disk {disk}")
    kinds = [kind for kind in in_order(what for _, _, what in points) if kind != "seek"]
    kinds.sort(key=lambda kind: [*TRANSFERS, kind].index(kind))
    left_over = (look for look in SPARE_LOOKS[4:] * len(kinds))
    looks = {kind: TRANSFERS.get(kind) or next(left_over) for kind in kinds}
    path = Look("", QUIET, "solid")
    sheet.legend(
        [key(kind, look, line=False) for kind, look in looks.items()]
        + [key("path of the arm", path, mark=False)]
    )
    ax = sheet.grid(1, left=0.62)[0]
    times, cylinders = [t for t, _, _ in points], [c for _, c, _ in points]
    ax.plot(times, cylinders, color=path.line, linewidth=0.6, zorder=2)
    for kind, look in looks.items():
        mine = [(t, c) for t, c, what in points if what == kind]
        how = look.mark() | {"markersize": (0.8 if len(mine) <= 400 else 0.45) * look.size}
        ax.plot([t for t, _ in mine], [c for _, c in mine], linestyle="none", zorder=3, **how)
    span = times[-1] - times[0] or 1.0
    ax.set_xlim(times[0] - 0.01 * span, times[-1] + 0.01 * span)
    ax.set_ylim(0, 1.04 * max(cylinders) or 1.0)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.set_xlabel("time (ms)")
    ax.set_ylabel("cylinder")
    return sheet


# ---------------------------------------------------------------------------------------------
# Command
# ---------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[Any, Page], Sheet]] = {
    "table": draw_table,
    "figure": draw_figure,
    "summary": draw_summary,
    "scale": draw_scale,
    "seeks": draw_seeks,
}


NO_TITLE = "--no-title"
"""The argument that leaves titles out."""


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def draw(kind: str, out: str, text: str, *, has_title: bool = True) -> None:
    """Draws `text`, which is JSON, into the file `out`, or into two files with that stem.

    Raises BadInputError, ImportError without matplotlib, and OSError.
    """
    if kind not in KINDS:
        raise BadInputError(f"unknown kind {kind!r}: one of {', '.join(KINDS)}")
    try:
        data = json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as err:
        raise BadInputError(f"bad JSON: {err}") from None

    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(STYLE)
    KINDS[kind](data, Page(has_title, how_made(data))).save(out)


def main(arguments: Sequence[str]) -> int:
    names = [argument for argument in arguments if argument != NO_TITLE]
    if len(names) != 2:
        print("penstock: usage: python plots.py KIND OUT [--no-title]", file=sys.stderr)
        return 2
    try:
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
        draw(*names, text, has_title=NO_TITLE not in arguments)
    except BadInputError as err:
        print(f"penstock: {names[0]}: {err}", file=sys.stderr)
        return 2
    except ImportError:
        print(
            "penstock: matplotlib is needed for plots: pip install matplotlib",
            file=sys.stderr,
        )
        return 1
    except OSError as err:
        print(f"penstock: cannot write the plot: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
