"""The simulated cluster: closed forms, a second implementation by ticks, files, the command."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sooner.cli.main import app
from sooner.errors import SoonerError
from sooner_lab.theory.cluster import Cluster, PageTimes, StageTimes, fitted, scale, simulate
from sooner_lab.theory.cluster.stages import STAGES

PAGE = PageTimes(read=0.1, draft=0.4, prefill=0.3, decode=0.9, write=0.05)


def times(*pages: PageTimes, **shared: Any) -> StageTimes:
    return StageTimes(pages or (PAGE,), **shared)


def test_a_single_parser_is_as_fast_as_its_slowest_stage() -> None:
    run = simulate(times(), Cluster(cpus=2, in_flight=2), 400)
    assert run.rate == pytest.approx(1 / (0.3 + 0.9), rel=0.02)
    assert run.bottleneck == "parser"
    assert run.starved < 0.03
    drafts = simulate(times(replace(PAGE, draft=3.9)), Cluster(cpus=2, in_flight=2), 400)
    assert drafts.rate == pytest.approx(2 / (0.1 + 3.9 + 0.05), rel=0.01)
    assert drafts.bottleneck == "cpu"
    assert drafts.starved == pytest.approx(1 - 1.2 * drafts.rate, abs=0.02)


def test_a_page_alone_takes_the_sum_of_its_stages_and_the_start() -> None:
    run = simulate(times(start=7.0, driver=0.01), Cluster(), 1)
    assert run.seconds == pytest.approx(7.0 + 0.3 + 0.9 + 0.05)  # drafted while the worker starts
    run = simulate(times(driver=0.01), Cluster(), 1)
    assert run.seconds == pytest.approx(0.01 + 0.1 + 0.4 + 0.3 + 0.9 + 0.05)


def test_pages_that_share_rounds_decode_as_fast_as_was_measured() -> None:
    shared = times(sharing=((1, 1.0), (4, 2.5), (8, 3.0)))
    assert [shared.gain(count) for count in (1, 2, 4, 6, 8, 50)] == [1, 1.5, 2.5, 2.75, 3, 3]
    only = replace(PAGE, prefill=0.0, read=0.0, draft=0.0, write=0.0)
    for count in (1, 2, 4, 8):
        run = simulate(
            replace(shared, pages=(only,)), Cluster(cpus=4, in_flight=count), 100 * count
        )
        assert run.rate == pytest.approx(shared.gain(count) / 0.9, rel=0.02)


def test_driver_and_storage_cap_the_whole_cluster() -> None:
    many = Cluster(machines=30, cpus=2, in_flight=2)
    alone = simulate(times(), replace(many, machines=1), 300).rate
    run = simulate(times(driver=0.1), many, 1500)
    assert run.rate == pytest.approx(10, rel=0.02)
    assert run.rate < 30 * alone / 2
    assert run.bottleneck == "driver"
    run = simulate(times(storage=8.0), many, 1500)
    assert run.rate == pytest.approx(8, rel=0.02)
    assert run.bottleneck == "storage"


def test_jobs_have_a_driver_each() -> None:
    cluster = Cluster(machines=16, cpus=2, in_flight=2, machines_a_job=4)
    assert (cluster.drivers, replace(cluster, machines=17).drivers) == (4, 5)
    run = simulate(times(driver=0.5), cluster, 1500)
    assert run.rate == pytest.approx(4 / 0.5, rel=0.02)
    assert run.bottleneck == "driver"
    assert run.use["driver"] > 0.95


def by_ticks(pages: list[PageTimes], stages: StageTimes, in_flight: int, tick: float) -> float:
    """Seconds until one parser with any number of cores is done, counted tick by tick.

    Pages wait for the parser in order; one prefills, which stops the others' decoding.
    """
    now, waiting, prefill, decode, writing = 0.0, list(pages), [], [], []  # type: ignore[var-annotated]
    while waiting or prefill or decode or writing:
        while waiting and len(prefill) + len(decode) + len(writing) < in_flight:
            page = waiting.pop(0)
            prefill.append([page.prefill, page])
        if prefill:
            prefill[0][0] -= tick
            if prefill[0][0] <= 1e-9:
                page = prefill.pop(0)[1]
                decode.append([page.decode, page])
        elif decode:
            each = tick * stages.gain(len(decode)) / len(decode)
            for entry in decode:
                entry[0] -= each
        for entry in writing:
            entry[0] -= tick
        writing = [entry for entry in writing if entry[0] > 1e-9]
        writing += [[entry[1].write, entry[1]] for entry in decode if entry[0] <= 1e-9]
        decode = [entry for entry in decode if entry[0] > 1e-9]
        now += tick
    return now


@pytest.mark.parametrize("seed", range(12))
def test_the_same_as_a_second_implementation(seed: int) -> None:
    draw = random.Random(seed)
    in_flight = draw.randint(1, 4)
    stages = StageTimes(
        tuple(
            PageTimes(0.0, 0.0, draw.randint(1, 40) / 100, draw.randint(1, 90) / 100, 0.05)
            for _ in range(5)
        ),
        sharing=((1, 1.0), (4, draw.uniform(1.0, 4.0))),
    )
    cluster = Cluster(cpus=64, in_flight=in_flight, ahead=64)
    drawn = random.Random(seed).choices(stages.pages, k=20)
    run = simulate(stages, cluster, 20, seed)
    tick = 0.0005
    assert run.seconds == pytest.approx(by_ticks(drawn, stages, in_flight, tick), rel=0.01)


def test_scale_tells_where_machines_stop_to_pay_and_what_a_job_costs() -> None:
    cluster = Cluster(cpus=2, in_flight=2, price=3.0)
    made = scale(times(start=60.0, driver=0.05), cluster, (1, 4, 16, 64), 10**8)
    assert made.saturates == 64  # 20 pages a second of the driver; 16 machines do 13
    rates = [row.rate for row in made.rows]
    assert rates[2] == pytest.approx(16 / 1.2, rel=0.05)
    assert rates[3] == pytest.approx(20, rel=0.05)
    assert made.rows[3].bottleneck == "driver"
    for row in made.rows:
        assert row.hours == pytest.approx(10**8 / row.rate / 3600, rel=0.01)
        assert row.cost == pytest.approx(3 * row.machines * row.hours)
    assert scale(times(), cluster, (1, 2), 1000).saturates is None


def test_no_cluster_is_more_efficient_than_all_of_it() -> None:
    """One machine waits for the next page now and then where pages differ; many even it out, and
    do more than as many times one machine's rate."""
    uneven = times(*(replace(PAGE, read=seconds) for seconds in (0.05, 0.05, 0.05, 4.0)))
    made = scale(uneven, Cluster(), (1, 4, 16), 10**6)
    each = [row.rate / row.machines for row in made.rows]
    assert max(each) > 1.1 * each[0], "what the test is about"
    assert all(row.efficiency <= 1 for row in made.rows)
    assert made.rows[0].efficiency == 1
    assert made.rows[-1].efficiency == pytest.approx(each[-1] / max(each))


def test_a_short_job_pays_for_the_start_of_its_workers() -> None:
    with_start = scale(times(start=600.0), Cluster(cpus=2, in_flight=2), (1, 2), 100)
    without = scale(times(), Cluster(cpus=2, in_flight=2), (1, 2), 100)
    for row, other in zip(with_start.rows, without.rows, strict=True):
        assert row.hours == pytest.approx(other.hours + 600 / 3600)
        assert row.rate == other.rate


def record(**changed: Any) -> dict[str, Any]:
    seconds = {"drafter": 0.4, "processor": 0.01, "vision": 0.09, "prefill": 0.2, "decode": 0.9}
    return {"status": "SUCCESS", "truncated": None, "seconds": seconds, **changed}


def test_stage_times_come_from_the_records_of_a_run(tmp_path: Path) -> None:
    cut = record(status="PARTIAL", truncated="length")
    lines = [record(), record(), record(status="FAILED"), cut]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    stage_times = StageTimes.read(tmp_path)
    assert stage_times.pages == (PageTimes(0, 0.4, 0.01 + 0.09 + 0.2, 0.9, 0),) * 2
    assert stage_times.notes[0] == "2 pages without a whole text are left out"
    assert any("seconds to read" in note for note in stage_times.notes)
    assert StageTimes.read(tmp_path / "manifest.jsonl").pages == stage_times.pages


def test_stage_times_survive_a_file(tmp_path: Path) -> None:
    made = times(PAGE, replace(PAGE, decode=2.0), sharing=((1, 1.0), (8, 4.0)), storage=50.0)
    file = tmp_path / "times.json"
    file.write_text(json.dumps(made.as_dict()))
    assert StageTimes.read(file) == made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format is 2"),
        ({"pages": []}, "no page has stage times"),
        ({"pages": [{"decod": 1.0}]}, "decode"),
        ({"pages": [{"decode": -1.0}]}, "decode is -1.0 s"),
        ({"pages": [{}]}, "all stage times are 0"),
        ({"sharing": [[1, 1.0], [4, 5.0]]}, "sharing at 4 pages is 5.0"),
        ({"sharing": [[2, 1.0]]}, "sharing is known at [2]"),
        ({"storage": 0}, "storage is 0"),
        ({"drivers": 1}, "driver"),
    ],
)
def test_stage_times_that_cannot_be(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    file.write_text(json.dumps({**times().as_dict(), **change}))
    with pytest.raises(SoonerError) as error:
        StageTimes.read(file)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_without_accelerators_a_core_does_all_of_a_page() -> None:
    page = 0.1 + 0.4 + 0.3 + 0.9 + 0.05
    single = simulate(times(), Cluster(accelerators=0), 400)
    assert single.rate == pytest.approx(1 / page, rel=0.01)
    assert single.use["cpu"] > 0.99
    two = simulate(times(), Cluster(machines=2, accelerators=0), 400)
    assert two.rate == pytest.approx(2 / page, rel=0.01)
    cores = simulate(times(), Cluster(accelerators=0, cpus=2, in_flight=2), 400)
    assert cores.rate == pytest.approx(1 / 1.2, rel=0.02)  # the one parser, beside reading and OCR


@pytest.mark.parametrize("cluster", [Cluster(accelerators=0), Cluster(cpus=2, in_flight=2)])
@pytest.mark.parametrize("share", [0.8, 1.2])
def test_stage_times_are_fitted_to_the_measured_run(cluster: Cluster, share: float) -> None:
    """What stages leave out is added to the parser's; what they count twice is taken from all."""
    several = times(PAGE, replace(PAGE, decode=1.5), start=5.0)
    rate = share * simulate(replace(several, start=0.0), cluster, 1000).rate
    result = fitted(several, cluster, rate)
    assert simulate(replace(result, start=0.0), cluster, 1000).rate == pytest.approx(rate, rel=2e-3)
    assert result.start == 5.0
    assert ("to prefill" if share < 1 else "alike") in result.notes[-1]
    changed = {name for name in STAGES if getattr(result.pages[0], name) != getattr(PAGE, name)}
    assert changed == ({"prefill"} if share < 1 else {*STAGES})
    with pytest.raises(SoonerError, match="measured rate is 0"):
        fitted(several, cluster, 0)


def test_the_command_prints_and_writes_the_table(tmp_path: Path) -> None:
    file = tmp_path / "times.json"
    file.write_text(json.dumps(times(driver=0.05).as_dict()))
    arguments = ["predict", "--cluster", "--stage-times", str(file), "--machines", "1,64"]
    shared = [*arguments, "--cpus", "2", "--in-flight", "2", "--price", "3", "--pages", "1000000"]
    result = CliRunner().invoke(app, [*shared, "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    assert "At 64 machines the driver saturates" in result.output
    made = json.loads((tmp_path / "out.json").read_text())
    assert made["saturates"] == 64
    assert [row["machines"] for row in made["rows"]] == [1, 64]
    assert set(made["stage_times"]["pages"][0]) == set(STAGES)
    assert StageTimes.from_dict(made["stage_times"]) == times(driver=0.05)
    fit = CliRunner().invoke(app, [*shared, "--fit", "0.5", "--machines", "1", "--json", "-"])
    assert json.loads(fit.output)["rows"][0]["rate"] == pytest.approx(0.5, rel=0.03)
    piped = CliRunner().invoke(app, [*shared, "--json", "-"])
    assert json.loads(piped.output)["saturates"] == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster"], "--stage-times"),
        (["--machines", "3"], "add --cluster"),
        (["--cluster", "--stage-times", "nowhere"], "can't be read"),
    ],
)
def test_the_command_refuses_in_a_single_line(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["predict", *arguments])
    assert isinstance(result.exception, SoonerError)
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
