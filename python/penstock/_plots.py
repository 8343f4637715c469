"""Draws what ``penstock sim`` has measured: JSON on the standard input, a PNG and an SVG as result.

Run as ``python -m penstock._plots KIND OUT_STEM``; it writes OUT_STEM.png (200 dots an inch) and
OUT_STEM.svg (text stays text). The command line also hands this file over as
``python -c SOURCE KIND OUT_STEM``, therefore it imports nothing of the package.

What each KIND takes (`...|null` may be left out):

- ``table``: list of {layout, pattern, record, method, mb_s, published|null, cv|null, ratio|null}
- ``figure``: {figure, title, x_label, y_label, x_scale: category|log2|log10, preset, trials,
  series: [{name, points: [{x, y, cv|null}]}], limits: [{name, points: [{x, y}]}]}
- ``summary``: {preset, rows: [{method, min, mean, max, min_pattern, max_pattern,
  published: {min, mean, max}|null}]}
- ``scale``: list of {method, clients, servers, throughput_mb_s, messages, planning_us,
  buffer_bytes_max}; the measures may be null
- ``seeks``: {disk, title, points: [{t_ms, cylinder, what}]}

The lists may also come as {rows: [...], preset, trials}: then the title names both. Only ``table``
divides the throughput of ``ra`` by the clients, who are 16 there; all else is drawn as it is given.

The house style is for paper without colour: a method is known by its marker, its dashes and its
shade together, and the one accent is a grey of its own when copied. Nothing depends on the clock
or on the user's settings: the same input gives the same SVG to the last byte.

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


def rows_of(data: Any) -> tuple[list[Any], dict[str, Any]]:
    """The list that came in, bare or as ``rows`` of an object, and what else the object says."""
    if isinstance(data, dict):
        return not_empty(member(data, "rows", "list"), "rows"), data
    if not isinstance(data, list):
        raise BadInputError(f"expected a list, found {brief(data)}")
    return not_empty(data, "the list"), {}


def not_empty(items: list[Any], name: str) -> list[Any]:
    if not items:
        raise BadInputError(f"{name} is empty: nothing to plot")
    return items


def in_order(items: Iterable[Any]) -> list[Any]:
    """Each once, as they first come."""
    return list(dict.fromkeys(items))


def how_run(record: dict[str, Any]) -> str:
    """ "preset tr94, 5 trials", as far as it is known."""
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


@dataclass
class Sheet:
    """A figure with its title, legends and notes; all measures in inches from the edges."""

    height: float
    fig: Figure = field(init=False)
    top: float = field(init=False, default=0.09)
    bottom: float = field(init=False, default=0.06)
    notes: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        from matplotlib.figure import Figure

        self.fig = Figure(figsize=(WIDTH_INCHES, self.height))

    def head(self, title: str, how: str = "") -> None:
        """The title, and under it how the runs were made."""
        lines = textwrap.wrap(title, 95) or [""]
        for line in lines:
            self.write(0.1, self.top, line, va="top", fontsize=8.5, fontweight="bold")
            self.top += 0.165
        if how:
            self.write(0.1, self.top, how, va="top", fontsize=7.5, color=QUIET)
            self.top += 0.15
        self.top += 0.05

    def note(self, *texts: str) -> None:
        """Lines at the foot, in small print."""
        lines = textwrap.wrap(" ".join(filter(None, texts)), 148)
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

    def save(self, stem: str) -> None:
        self.fig.savefig(f"{stem}.png", dpi=PNG_DPI, metadata={"Software": None})
        self.fig.savefig(f"{stem}.svg", metadata={"Date": None, "Creator": "penstock"})


def text_inches(text: str, points: float = 7.5) -> float:
    """About how wide: good enough to leave room."""
    return len(text) * points * 0.58 / 72


def fit_in_row(labels: Sequence[str], inches: float) -> int:
    """How many keys fit side by side."""
    widest = max(text_inches(label) for label in labels) + 0.55
    return max(1, min(len(labels), int(inches / widest)))


def key(
    label: str, look: Look, *, line: bool = True, mark: bool = True, open_: bool = False
) -> Any:
    """A legend's entry."""
    from matplotlib.lines import Line2D

    how = look.mark(open_=open_) if mark else {}
    dashes = look.dashes if line else "none"
    return Line2D([], [], label=label, color=look.line, linestyle=dashes, **how)


def plain(value: float) -> str:
    """A number on a logarithmic axis: 0.5, 20, 4,096, 10^6 in superscript."""
    if value >= 1e5 and math.isclose(math.log10(value) % 1, 0, abs_tol=1e-9):
        return "10" + str(round(math.log10(value))).translate(
            str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
        )
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


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
# Groups of values over a category, as in `table` and some figures
# ---------------------------------------------------------------------------------------------


class Value(NamedTuple):
    y: float
    deviation: float


def group_axis(ax: Axes, categories: Sequence[str], labels: Sequence[str] | None = None) -> None:
    """One place for each category, every other one shaded; reads and writes are kept apart."""
    for i in range(0, len(categories), 2):
        ax.axvspan(i - 0.5, i + 0.5, color=BAND, linewidth=0, zorder=0)
    ways = [category[:1] for category in categories]
    if set(ways) == {"r", "w"} and ways == sorted(ways):
        ax.axvline(ways.index("w") - 0.5, color=QUIET, linewidth=0.6, zorder=1)
    ax.set_xlim(-0.5, len(categories) - 0.5)
    ax.set_xticks(range(len(categories)), labels or categories)
    ax.tick_params(axis="x", length=0)
    longest = max(len(label) for label in labels or categories)
    if longest * len(categories) > 100:
        ax.tick_params(axis="x", labelrotation=45)


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


def draw_table(data: Any) -> Sheet:
    rows, about = rows_of(data)
    cells = [Cell.of(row) for row in rows]
    layouts = in_order(cell.layout for cell in cells)
    panels = sorted(
        in_order((cell.layout, cell.record) for cell in cells),
        key=lambda panel: (layouts.index(panel[0]), panel[1]),
    )
    found = in_order(cell.pattern for cell in cells)
    patterns = [p for p in PATTERNS if p in found] + [p for p in found if p not in PATTERNS]
    methods = in_order(cell.method for cell in cells)
    looks = looks_of([m for m in LOOKS if m in methods] + [m for m in methods if m not in LOOKS])

    sheet = Sheet(height=1.15 + 2.5 * len(panels))
    where = f"{layouts[0].capitalize()} layout: " if len(layouts) == 1 else ""
    sheet.head(f"{where}throughput, measured and published", how_run(about or rows[0]))
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


def draw_figure(data: Any) -> Sheet:
    scale = member(data, "x_scale", "text")
    if scale not in ("category", "log2", "log10"):
        raise BadInputError(f"'x_scale' must be category, log2 or log10, found {brief(scale)}")
    x_kind = "text" if scale == "category" else "number"
    series = [
        series_of(s, x_kind=x_kind) for s in not_empty(member(data, "series", "list"), "series")
    ]
    limits = [series_of(s, x_kind=x_kind) for s in optional(data, "limits", "list", [])]
    sheet = Sheet(height=4.0)
    title = f"Figure {member(data, 'figure', 'text')}. {member(data, 'title', 'text')}"
    sheet.head(title, how_run(data))
    if scale == "category":
        ax = draw_categories(sheet, series, limits)
    else:
        ax = draw_lines(sheet, series, limits, base=int(scale[3:]))
    ax.set_xlabel(member(data, "x_label", "text"))
    ax.set_ylabel(member(data, "y_label", "text"))
    return sheet


def deviation_note(series: Sequence[Series]) -> str:
    shown = any(value.deviation for one in series for _, value in one.points)
    return "Bars: one standard deviation over the trials." if shown else ""


def y_top(series: Sequence[Series], limits: Sequence[Series]) -> float:
    """Room for all series, and for limits that lie not far above them."""
    tallest = max(value.y + value.deviation for one in series for _, value in one.points)
    near = [value.y for one in limits for _, value in one.points if value.y <= 1.25 * tallest]
    return 1.06 * max([tallest, *near]) or 1.0


def draw_categories(sheet: Sheet, series: list[Series], limits: list[Series]) -> Axes:
    categories = in_order(x for one in series for x, _ in one.points)
    looks = looks_of([one.name for one in series])
    sheet.legend([key(one.name, looks[one.name], line=False) for one in series])
    sheet.note(deviation_note(series))
    right = 0.12 + max((text_inches(one.name) + 0.12 for one in limits), default=0.0)
    ax = sheet.grid(1, right=right)[0]
    group_axis(ax, categories)
    ax.set_ylim(0, y_top(series, limits))
    for one, offset in zip(series, offsets(len(series)), strict=True):
        xs = [categories.index(x) + offset for x, _ in one.points]
        draw_group(ax, xs, [value for _, value in one.points], looks[one.name])
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
    label_ends(ax, [(limit.name, limit.points[-1][1].y, None) for limit in limits])
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


def draw_lines(sheet: Sheet, series: list[Series], limits: list[Series], base: int) -> Axes:
    from matplotlib.transforms import ScaledTranslation

    looks, keys = line_looks(series)
    for row in keys:
        sheet.legend(row)
    sheet.note(
        deviation_note(series),
        "Series are set a little apart sideways, so as not to hide each other."
        if len(series) > 1
        else "",
    )
    labelled = limits if keys else [*series, *limits]
    longest = max((text_inches(one.name) for one in labelled), default=0.0)
    ax = sheet.grid(1, right=0.2 + (longest + 0.4 if labelled else 0.0))[0]
    xs = sorted({x for one in [*series, *limits] for x, _ in one.points})
    step = sideways_points(ax, xs, len(series))
    log_x_axis(ax, xs, base, margin=step * len(series) / 2 + 8)
    top = y_top(series, limits)
    ax.set_ylim(0, top)
    # What coincides most are the patterns of one method: by pattern first, these stand far apart.
    beside = sorted(series, key=lambda one: one.name.split(" ", 1)[::-1]) if keys else series
    for one, shift in zip(beside, offsets(len(series), len(series) * step), strict=True):
        look = looks[one.name]
        moved = ax.transData + ScaledTranslation(shift / 72, 0, sheet.fig.dpi_scale_trans)
        ys = [value.y for _, value in one.points]
        bars = [value.deviation for _, value in one.points]
        ax.errorbar(
            [x for x, _ in one.points],
            ys,
            yerr=bars if any(bars) else None,
            color=look.line,
            linestyle=look.dashes,
            ecolor=INK,
            elinewidth=0.6,
            capsize=1.2,
            capthick=0.5,
            transform=moved,
            zorder=3,
            **look.mark(),
        )
    ends = [] if keys else [(one.name, one.points[-1][1].y, looks[one.name]) for one in series]
    label_ends(ax, [*ends, *draw_limits(ax, limits, top)])
    return ax


def log_x_axis(ax: Axes, xs: Sequence[float], base: int, margin: float) -> None:
    """A logarithmic axis over `xs`, with a margin of so many points at both ends."""
    ax.set_xscale("log", base=base)
    span = math.log(xs[-1] / xs[0]) or 1.0
    beyond = math.exp(span * margin / (width_points(ax) - 2 * margin))
    ax.set_xlim(xs[0] / beyond, xs[-1] * beyond)
    if len(xs) <= 12:
        ax.set_xticks(xs)
    ax.xaxis.set_major_formatter(lambda value, _: plain(value))
    ax.minorticks_off()


def width_points(ax: Axes) -> float:
    return ax.get_position().width * WIDTH_INCHES * 72


def sideways_points(ax: Axes, xs: Sequence[float], count: int) -> float:
    """How far apart series are set: less than a marker's width where they or their points are
    many, so that no point comes near the next."""
    if len(xs) < 2:
        return 4.0
    nearest = min(math.log(b / a) for a, b in itertools.pairwise(xs))
    room = 0.85 * width_points(ax) * nearest / math.log(xs[-1] / xs[0])
    return min(3.5, 34 / count, 0.5 * room / count)


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


def draw_summary(data: Any) -> Sheet:
    rows = not_empty(member(data, "rows", "list"), "rows")
    looks = looks_of([member(row, "method", "text") for row in rows])
    sheet = Sheet(height=1.2 + 0.68 * len(rows))
    sheet.head(
        "Improvement over caching: least, geometric mean and greatest over all patterns",
        how_run(data),
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


def draw_scale(data: Any) -> Sheet:
    rows, about = rows_of(data)
    methods = in_order(member(row, "method", "text") for row in rows)
    servers = sorted({positive(row, "servers") for row in rows})
    looks = looks_of(methods)
    sheet = Sheet(height=5.4)
    sheet.head("Cost of more clients, for each method and number of servers", how_run(about))
    sheet.legend([key(name, look._replace(colour=QUIET)) for name, look in looks.items()])
    shades = [Look("", shade("grey", i, len(servers)), "solid") for i in range(len(servers))]
    sheet.legend(
        [
            key(f"{plain(count)} server" + ("s" if count != 1 else ""), look, mark=False)
            for count, look in zip(servers, shades, strict=True)
        ]
    )
    sheet.note("KB: 2¹⁰ bytes.", *absences(rows, methods))
    axes = sheet.grid(2, 2, hspace=0.34, wspace=0.16, above=0.2, left=0.5)
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
        decade_axes(ax)
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


def decade_axes(ax: Axes) -> None:
    from matplotlib.ticker import LogLocator

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.minorticks_off()
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(numticks=7))
        axis.set_major_formatter(lambda value, _: plain(value))


# ---------------------------------------------------------------------------------------------
# seeks
# ---------------------------------------------------------------------------------------------

TRANSFERS = {
    "read": Look("o", "#ffffff", "none"),
    "write": Look("s", ACCENT, "none"),
    "media": Look("o", "#ffffff", "none"),
}


def draw_seeks(data: Any) -> Sheet:
    points = [
        (
            member(point, "t_ms", "number"),
            member(point, "cylinder", "number"),
            member(point, "what", "text"),
        )
        for point in not_empty(member(data, "points", "list"), "points")
    ]
    points.sort(key=lambda point: point[0])
    sheet = Sheet(height=4.0)
    how = f"disk {member(data, 'disk', 'text')}"
    sheet.head(member(data, "title", "text"), ", ".join(filter(None, [how, how_run(data)])))
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
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.set_xlabel("time (ms)")
    ax.set_ylabel("cylinder")
    return sheet


# ---------------------------------------------------------------------------------------------
# Command
# ---------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[Any], Sheet]] = {
    "table": draw_table,
    "figure": draw_figure,
    "summary": draw_summary,
    "scale": draw_scale,
    "seeks": draw_seeks,
}


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def draw(kind: str, stem: str, text: str) -> None:
    """Draws `text`, which is JSON, into the two files.

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
    KINDS[kind](data).save(stem)


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("penstock: usage: python -m penstock._plots KIND OUT_STEM", file=sys.stderr)
        return 2
    try:
        draw(*arguments, sys.stdin.buffer.read().decode("utf-8", "replace"))
    except BadInputError as err:
        print(f"penstock: {arguments[0]}: {err}", file=sys.stderr)
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
