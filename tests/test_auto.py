"""Calls that are predicted, and strategies that the model of the machine chooses."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from helpers import Dealt, caught, local_of, ramp

import penstock as ps

MACHINE = Path(__file__).parents[1] / "crates" / "predict" / "tests" / "all" / "host.toml"
"""A host with two processors."""

KNOWN = [
    ps.Chunks((4, 3)),
    ps.RowMajor(),
    ps.RowMajor("npy"),
    ps.Distribution("BLOCK,*", (3,)),
    ps.HDF5(chunks=(4, 3)),
    None,
]
CODED = [ps.Chunks((4, 4), codec="zstd:1"), ps.Chunks((8, 4), subchunks=(2, 4))]
STRATEGIES = ("disk-directed", "two-phase", "caching", "independent")

ROW = re.compile(
    r"^ +([\d.]+) s \(([\d.]+) to ([\d.]+)\): (\S+), \d+ servers, blocks of \d+ bytes; "
    r"(\d+) bytes, (\d+) on disk, (\d+) messages, (\d+) bytes of buffers; "
    r"bottleneck: (\S+); (simulation|closed form)(?:  <- (chosen|runner-up))?$",
    re.MULTILINE,
)
"""A row of an explained call: seconds, low, high, strategy, bytes, bytes on disk, messages, bytes
of buffers, bottleneck, way, mark."""


def array(held: Dealt, disk: ps.Disk | None) -> ps.Array:
    named = {} if disk is None else {"disk": disk}
    return ps.Array("u", (11, 9), "f8", memory=held.memory(0), **named)


def written(session: ps.Session, path: Path, disk: ps.Disk | None, **options):
    """Writes, reads back, and gives the forecast of the write."""
    held = Dealt("BLOCK,CYCLIC(2)", (2, 2))
    u, whole = array(held, disk), ramp((11, 9))
    local = local_of(u, held, session.rank, "C", whole)
    report = session.write(path, u, local.view, **options)
    out = np.zeros_like(local.view)
    session.read(path, u, out=out, **options)
    assert np.array_equal(out, local.view)
    return report.predicted


@pytest.mark.parametrize("disk", KNOWN)
def test_all_ranks_hear_what_was_chosen(place, disk):
    def main(session):
        return written(session, place / "u", disk)

    all_ranks = ps.run(main, 4, machine=MACHINE, sync=False)
    forecast = all_ranks[0]
    assert all(other == forecast for other in all_ranks)
    assert forecast.strategy in STRATEGIES and forecast.servers >= 1
    assert 0 < forecast.low <= forecast.seconds <= forecast.high
    assert forecast.bottleneck in ("disk", "network", "copying", "CPU", "metadata")
    assert forecast.by == "closed form"


@pytest.mark.parametrize("disk", CODED)
def test_codecs_are_predicted_with_a_remark_and_not_chosen_for(place, disk):
    held = Dealt("BLOCK,CYCLIC(2)", (2, 2))

    def main(session):
        text = session.explain(place / "u", array(held, disk))
        return text, written(session, place / "u", disk)

    for text, forecast in ps.run(main, 4, machine=MACHINE, sync=False):
        assert forecast.strategy == "disk-directed" and "codecs are not counted" in forecast.remark
        rows = ROW.findall(text)
        # Chunks that are coded are not written in parts: no rank does it alone.
        assert {row[3] for row in rows} == set(STRATEGIES) - {"independent"}
        assert "codecs are not counted" in text and "take the usual way" in text
        [taken] = [row for row in rows if row[10] == "chosen"]
        assert taken[3] == "disk-directed"


def test_a_codec_is_no_reason_to_leave_the_usual_way(place):
    """Where a plain array is written in another way, one with a codec is not."""

    def main(session, codec):
        disk = ps.Chunks((1, 64), codec=codec)
        u = ps.Array("u", (2048, 64), "f8", memory=ps.Distribution("BLOCK,*", (4,)), disk=disk)
        local = np.ones(u.local_shape(session.rank))
        return session.write(place / f"u-{codec}", u, local).predicted

    def written_by(codec):
        options = {"machine": MACHINE, "servers": 1, "sync": False}
        return ps.run(lambda session: main(session, codec), 4, **options)[0]

    plain, coded = written_by("none"), written_by("zstd:1")
    assert plain.remark == "" and plain.strategy != "disk-directed"
    assert coded.strategy == "disk-directed"


def test_lists_are_explained_and_not_predicted_by_calls(place):
    """A rank explains its own list; calls on lists are as they are without a machine."""

    def main(session, ranks):
        runs = ps.Runs(np.arange(session.rank, 100, ranks), 1)
        u = ps.Array("u", (100,), "f8", memory=runs, disk=ps.Chunks((10,)))
        text = session.explain(place / f"u-{ranks}", u)
        return text, session.write(place / f"u-{ranks}", u, np.ones(len(runs))).predicted

    for ranks in (1, 2):
        told = ps.run(lambda session, ranks=ranks: main(session, ranks), ranks, machine=MACHINE)
        for text, forecast in told:
            rows = ROW.findall(text)
            assert forecast is None and {row[3] for row in rows} >= {"disk-directed", "two-phase"}
            assert {row[9] for row in rows} == {"closed form"} and {row[5] for row in rows} == {
                "800"
            }
            assert ("this rank's only" in text) == (ranks == 2)
            assert "lists, and chunks with a codec, take the usual way" in text


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_that_is_named_is_taken_and_predicted(place, strategy):
    def main(session):
        return written(session, place / "u", ps.Chunks((4, 3)), strategy=strategy)

    forecast = ps.run(main, 4, machine=MACHINE, sync=False)[0]
    assert forecast.strategy == strategy


def test_explain_tells_what_each_strategy_would_take(place):
    held = Dealt("BLOCK,CYCLIC(2)", (2, 2))

    def main(session):
        u = array(held, ps.Chunks((4, 3)))
        chosen = session.explain(place / "u", u)
        named = session.explain(place / "u", u, strategy="two-phase")
        local = local_of(u, held, session.rank, "C", ramp((11, 9)))
        return chosen, named, session.write(place / "u", u, local.view).predicted

    texts = ps.run(main, 4, machine=MACHINE, sync=False)
    assert len({chosen for chosen, _, _ in texts}) == 1
    chosen, named, forecast = texts[0]
    rows = ROW.findall(chosen)
    assert len(rows) == chosen.count("bottleneck") == len(STRATEGIES)
    seconds = [float(row[0]) for row in rows]
    assert seconds == sorted(seconds) and {row[3] for row in rows} == set(STRATEGIES)
    for row in rows:
        assert 0 < float(row[1]) <= float(row[0]) <= float(row[2])
        # 9 chunks of 12 elements, which stand out from an array of 99.
        assert row[4:6] == ("792", "864") and row[9] == "simulation"
    assert sorted(row[10] for row in rows) == ["", "", "chosen", "runner-up"]
    [taken] = [row for row in rows if row[10] == "chosen"]
    assert taken[3] == forecast.strategy
    assert (forecast.bytes, forecast.disk_bytes) == (792, 864)
    [of_named] = [row for row in ROW.findall(named) if row[10] == "chosen"]
    assert of_named[3] == "two-phase" and "the strategy is given" in named


def test_the_choice_stands_below_the_table(place):
    """The choice goes by other numbers than the rows, and says so; explaining changes nothing."""
    u = ps.Array("u", (64, 64), "f8", disk=ps.Chunks((16, 64)))
    with ps.Session(machine=MACHINE, sync=False) as session:
        text = session.explain(place / "u", u)
        told = re.search(
            r"chosen by the closed form.*: (\S+) ([\d.]+) s, (\S+) ([\d.]+) s; .*less than 0.67 of "
            r"the usual way's ([\d.]+) s",
            text,
        )
        forecast = session.write(place / "u", u, ramp((64, 64))).predicted
        assert told[1] == forecast.strategy and forecast.by == "closed form"
        assert float(told[2]) == pytest.approx(forecast.seconds, abs=1e-6)
        assert told[1] == "disk-directed" or float(told[2]) < 0.67 * float(told[5])
        learned = session.explain(place / "u", u)
        again = re.search(r"chosen by the closed form.*: (\S+) ([\d.]+) s", learned)
        later = session.write(place / "u", u, ramp((64, 64))).predicted
        assert later.seconds != forecast.seconds, "a call has shown how long it takes"
        assert again[1] == later.strategy
        assert float(again[2]) == pytest.approx(later.seconds, abs=1e-6)
        assert ROW.findall(learned)[0][:3] == ROW.findall(text)[0][:3], "the rows are the model's"


def test_large_calls_are_explained_in_closed_form(place):
    u = ps.Array("u", (512, 512, 512), "f8", disk=ps.Chunks((8, 8, 512)))
    with ps.Session(machine=MACHINE, sync=False) as session:
        rows = ROW.findall(session.explain(place / "u", u))
    assert {row[9] for row in rows} == {"closed form"} and len(rows) == len(STRATEGIES)


def test_direct_calls_are_predicted_around_the_page_cache(place):
    u = ps.Array("u", (256, 256), "f8", disk=ps.Chunks((64, 256)))
    text = MACHINE.read_text()
    (place / "cached.toml").write_text(text[: text.index("[around")])

    def explained(machine, direct):
        with ps.Session(machine=machine, sync=False, direct=direct) as session:
            return ROW.findall(session.explain(place / "u", u))

    cached, around = explained(MACHINE, None), explained(MACHINE, True)
    seconds = [{row[3]: float(row[0]) for row in rows} for rows in (cached, around)]
    assert seconds[1]["disk-directed"] > 1.2 * seconds[0]["disk-directed"]
    assert explained(place / "cached.toml", True) == [], "direct I/O was not measured"
    assert explained(place / "cached.toml", None)


def test_a_session_learns_from_its_calls(place):
    def main(session):
        u = ps.Array("u", (64, 64), "f8", disk=ps.Chunks((16, 64)))
        data = ramp((64, 64))
        forecasts, took = [], []
        for _ in range(20):
            report = session.write(place / "u", u, data)
            forecasts.append(report.predicted)
            took.append(report.seconds)
        return forecasts, took

    forecasts, took = ps.run(main, 1, machine=MACHINE, sync=False)[0]
    # No calibration is of this machine: later forecasts of a way are nearer than its first.
    ways = [(each.strategy, each.servers, each.block_bytes) for each in forecasts]
    last = ways[-1]
    of_last = [nth for nth, way in enumerate(ways) if way == last]
    first = forecasts[of_last[0]]
    assert all(forecasts[nth].seconds != first.seconds for nth in of_last[1:])
    assert forecasts[-1].seconds < 10 * max(took)


@pytest.mark.parametrize("what", ["timestep", "checkpoint"])
@pytest.mark.parametrize("codec", ["none", "zstd:1"])
def test_saves_of_groups_are_predicted_and_learned_from(place, what, codec):
    def main(session):
        memory = ps.Distribution("BLOCK,*", (3,))
        arrays = [
            ps.Array("u", (12, 8), "f8", memory, ps.Chunks((4, 8), codec=codec)),
            ps.Array("n", (12,), "i4", ps.Distribution("BLOCK", (3,)), ps.Chunks((4,))),
        ]
        group = ps.Group("run", arrays, path=place / "run")
        local = {each.name: np.ones(each.local_shape(session.rank), each.dtype) for each in arrays}
        save = getattr(session, what)
        reports = [save(group, local) for _ in range(4)]
        split = getattr(session, f"begin_{what}")(group, local).end()
        assert split.predicted is None
        return [report.predicted for report in reports], [report.seconds for report in reports]

    told = ps.run(main, 3, machine=MACHINE)
    assert all(forecasts == told[0][0] for forecasts, _ in told)
    forecasts, took = told[0]
    for forecast in forecasts:
        assert (forecast.strategy, forecast.by) == ("disk-directed", "closed form")
        assert forecast.bytes == forecast.disk_bytes == 12 * 8 * 8 + 12 * 4
        assert "commit of the group is not counted" in forecast.remark
        assert ("codecs are not counted" in forecast.remark) == (codec != "none")
    # No calibration is of this machine: what saves took is in the later forecasts.
    assert len({forecast.seconds for forecast in forecasts}) > 1
    assert forecasts[-1].seconds < 10 * max(took)


def test_saves_by_lists_are_not_predicted(place):
    with ps.Session(machine=MACHINE, sync=False) as session:
        runs = ps.Runs(np.arange(6), 1)
        group = ps.Group("run", [ps.Array("u", (6,), "f8", runs, ps.Chunks((3,)))], place / "run")
        assert session.timestep(group, {"u": np.ones(6)}).predicted is None


def test_the_environment_names_a_machine(place, monkeypatch):
    def main(session):
        return written(session, place / "u", None)

    monkeypatch.setenv("PENSTOCK_MACHINE", str(MACHINE))
    assert ps.run(main, 4, sync=False)[0] is not None
    monkeypatch.delenv("PENSTOCK_MACHINE")
    assert ps.run(main, 4, sync=False) == [None] * 4


def test_without_a_machine_there_is_nothing_to_choose_by(place):
    def main(session):
        u = ps.Array("u", (8,), "f8")
        return caught(lambda: session.write(place / "u", u, np.ones(8), strategy="auto"))

    for error in ps.run(main, 1, sync=False):
        assert isinstance(error, ps.SchemaError) and "penstock calibrate" in str(error)
    assert not list(place.iterdir())


@pytest.mark.parametrize(
    "text",
    [None, "", "name = 3", MACHINE.read_text().replace("[host]", "[hosts]")],
    ids=["missing", "empty", "wrong", "unknown"],
)
def test_a_description_that_makes_no_sense_is_the_error_of_all(place, text):
    machine = place / "machine.toml"
    if text is not None:
        machine.write_text(text)

    def main(session):
        return caught(lambda: written(session, place / "u", None))

    for error in ps.run(main, 4, machine=machine, sync=False):
        assert isinstance(error, ps.SchemaError) and "machine.toml" in str(error)


def test_a_machine_of_the_papers_runs_no_program_of_today(place):
    text = (MACHINE.parents[3] / "sim" / "presets" / "tocs97.toml").read_text()
    machine = place / "machine.toml"
    machine.write_text(text)
    with ps.Session(machine=machine) as session:
        u = ps.Array("u", (8,), "f8")
        error = caught(lambda: session.write(place / "u", u, np.ones(8)))
    assert isinstance(error, ps.SchemaError) and "no section `host`" in str(error)


def test_split_collectives_are_disk_directed(place):
    with ps.Session(machine=MACHINE, sync=False) as session:
        u = ps.Array("u", (8, 8), "f8")
        report = session.begin_write(place / "u", u, ramp((8, 8))).end()
    assert report.bytes == 512 and report.predicted.strategy == "disk-directed"


def test_the_program_of_the_page_runs(place, monkeypatch, capsys):
    page = MACHINE.parents[4] / "docs" / "predict.md"
    programs = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (place / "this.toml").write_text(MACHINE.read_text())
    monkeypatch.chdir(place)
    exec(compile("\n".join(programs), "predict.md", "exec"), {})
    said = capsys.readouterr().out
    assert len(programs) == 2 and "<- chosen" in said
    assert re.search(r"^[\d.e-]+ [\d.e-]+ \w+$", said, re.MULTILINE), "took, said, the bottleneck"
    assert said.splitlines()[-1].startswith("predicted: ")
