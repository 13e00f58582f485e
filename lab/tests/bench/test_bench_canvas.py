"""`sooner bench canvas`: the law, the target that draws by it, the judge, the command."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import torch

from fakes import ERROR, chi_square
from sooner.cli.main import main
from sooner.methods import GSD, Autoregressive, CoupledJacobi
from sooner_lab.bench import report
from sooner_lab.bench.canvas.judge import judge
from sooner_lab.bench.canvas.judging import gate, goals
from sooner_lab.bench.canvas.settings import CanvasSettings
from sooner_lab.bench.canvas.target import law_subject
from sooner_lab.bench.imagine.arms import draw_rows
from sooner_lab.worlds.canvas.law import CanvasLaw, binned, sigma_of

TINY = CanvasLaw(2, 2, 1, 3, 0.9, 0.8)
TINY_CLIP = CanvasLaw(1, 2, 3, 3, 0.9, 0.8)
ROWS, BATCHES = 250, 24


def joint(law: CanvasLaw, given: tuple[int, ...] = ()) -> dict[tuple[int, ...], float]:
    """The chance of every drawing behind what is given, from the density's integral, not the
    table."""
    found = {}
    centre = (law.codes - 1) / 2
    for rest in itertools.product(range(law.codes), repeat=law.length - len(given)):
        line, chance = (*given, *rest), 1.0
        for place in range(len(given), law.length):
            frame, within = divmod(place, law.frame)
            row, column = divmod(within, law.width)
            near = [line[place - 1]] if column else []
            near += [line[place - law.width]] if row else []
            near += [line[place - law.frame]] if frame else []
            lean = sum(near) / len(near) - centre if near else 0.0
            mean = centre + law.rho * lean
            edges = [-math.inf, *(code + 0.5 for code in range(law.codes - 1)), math.inf]
            low, high = edges[line[place]], edges[line[place] + 1]
            chance *= (math.erf((high - mean) / law.sigma / math.sqrt(2))
                       - math.erf((low - mean) / law.sigma / math.sqrt(2))) / 2  # fmt: skip
        found[line] = chance
    return found


def test_the_law_sums_to_one_and_its_drawings_follow_it() -> None:
    chances = joint(TINY)
    assert sum(chances.values()) == pytest.approx(1)
    told = TINY.log_likelihood(torch.tensor(list(chances)))
    assert told.exp().tolist() == pytest.approx(list(chances.values()))
    assert chi_square(TINY.sample(20_000, 3), chances) > ERROR
    clip = joint(TINY_CLIP)
    told = TINY_CLIP.log_likelihood(torch.tensor(list(clip)))
    assert told.exp().tolist() == pytest.approx(list(clip.values()))
    assert chi_square(TINY_CLIP.sample(20_000, 3), clip) > ERROR
    # Another dependence is another law, and the test can tell.
    assert chi_square(CanvasLaw(2, 2, 1, 3, 0.7, 0.8).sample(20_000, 3), chances) < ERROR


def test_bins_far_from_the_mean_keep_their_chances() -> None:
    told = binned(torch.tensor([0.0, 63.0], dtype=torch.float64), 3.0, 64)
    assert told[0].flip(0).tolist() == pytest.approx(told[1].tolist())
    falls = told[0, 1:] < told[0, :-1]
    assert falls[told[0, 1:] > -700].all()  # below, fp64 ends
    assert told[0, 60] == pytest.approx(-0.5 * (59.5 / 3) ** 2, rel=0.05)


def test_two_and_a_half_nats_are_about_three_bins() -> None:
    assert sigma_of(2.5, 64) == pytest.approx(math.exp(2.5) / math.sqrt(2 * math.pi * math.e), 0.01)


EXACT = [
    ("picture", None, "", 0, "ratio"),
    *(("picture", coupling, start, 3, "ratio")
      for coupling in ("independent", "maximal", "gumbel")
      for start in ("random", "last", "left", "above")),
    ("picture", "gumbel", "above", 3, "noise"),
    ("clip", "independent", "random", 2, "ratio"),
    ("clip", "maximal", "previous-frame", 3, "ratio"),
    ("clip", "gumbel", "previous-frame", 8, "ratio"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "coupling", "start", "window", "verify"), EXACT)
def test_drawings_of_exact_arms_follow_the_law(
    kind: str, coupling: str | None, start: str, window: int, verify: str
) -> None:
    law, given = (TINY, 0) if kind == "picture" else (TINY_CLIP, 2)
    subject = law_subject(law, 1, 32, 5, given)
    method = (
        Autoregressive()
        if coupling is None
        else CoupledJacobi(window, coupling, init=start, verify=verify)
    )
    drawn = torch.cat(
        [draw_rows(subject, range(ROWS), method, seed)[0].tokens for seed in range(BATCHES)]
    )
    first = drawn[:, :given]
    for known in {tuple(one) for one in first.tolist()}:
        own = drawn[(first == torch.tensor(known, dtype=torch.long)).all(1)]
        if len(own) >= 400:
            assert chi_square(own, joint(law, known)) > ERROR, known
    assert len(drawn) == ROWS * BATCHES


def test_drawings_of_groups_do_not() -> None:
    subject = law_subject(TINY, 1, 32, 5)
    drawn = [draw_rows(subject, range(ROWS), GSD(3, 2), seed)[0].tokens for seed in range(BATCHES)]
    assert chi_square(torch.cat(drawn), joint(TINY)) < ERROR


def test_rows_of_any_batch_draw_the_same() -> None:
    """Rows do not see each other in the buffer, nor what an earlier run left there."""
    law = CanvasLaw(4, 4, 2, 16, 0.9, 1.5)
    subject, method = law_subject(law, 1, 32, 5, 16), CoupledJacobi(8)
    together = draw_rows(subject, range(5), method, 3)[0].tokens
    assert torch.equal(together[:1], draw_rows(subject, [0], method, 3)[0].tokens)
    assert torch.equal(together[:3], draw_rows(subject, range(3), method, 3)[0].tokens)
    plain = draw_rows(subject, range(5), Autoregressive(shared_noise=True), 3)[0].tokens
    assert torch.equal(together, plain)


def test_the_judge_rejects_what_is_wrong_and_nothing_else() -> None:
    law = CanvasLaw(8, 8, 1, 32, 0.9, 2.0)
    one, two = law.sample(256, 1), law.sample(256, 2)
    assert judge(one, two, law)["p"] > 0.01
    other = CanvasLaw(8, 8, 1, 32, 0.5, 2.0).sample(256, 3)
    assert judge(other, two, law)["classifier"] < 0.01
    narrow = CanvasLaw(8, 8, 1, 32, 0.9, 1.8).sample(256, 3)
    found = judge(narrow, two, law)
    assert found["likelihood"] < 0.01
    assert found["gap"] > 0
    alarms = [judge(law.sample(64, seed), law.sample(64, 999 - seed), law)["p"] < 0.05
              for seed in range(100)]  # fmt: skip
    assert sum(alarms) <= 13  # of 5 expected: by chance in one run of a thousand


def _reading(arm: str, forwards: list[int], **more: object) -> dict:
    return {"part": "counts", "kind": "picture", "arm": arm, "start": "random", "window": 32,
            "tokens": 256, "forwards": forwards, **more}  # fmt: skip


def test_the_gate_and_the_goals_can_fail() -> None:
    settings = CanvasSettings(starts=("random",))
    readings = [_reading("sjd", [100, 110]), _reading("gumbel", [60, 50])]
    (goal,) = goals(readings, settings)
    assert goal["value"] == pytest.approx(210 / 110)
    assert goal["met"]
    readings[1] = _reading("gumbel", [60, 90])  # 1.4 and unsure
    assert not goals(readings, settings)[0]["met"]
    readings[1] = _reading("gumbel", [65, 66], start="last")  # another start is no partner
    assert goals(readings, settings) == []
    readings.append(_reading("plain", [256, 256], start=None, window=None))
    arms = [{"arm": name, "exact": False, "p": p} for name, p in (("GSD", 0.02), ("plain", 0.5))]
    quality = {"arms": arms, "nulls": 200, "false_alarms": 0.075}
    result = {"quality": quality, "entropy": {"picture": 2.5}, "readings": readings}
    passed = {one["gate"].split(" from")[0]: one["passed"] for one in gate(result, settings)}
    assert passed == {
        "judge: GSD": False,
        "judge: plain": True,
        "judge: false alarms of 200 null splits, share": False,
        "pictures: nats of a code": True,
        "pictures: forwards, plain over SJD": True,
        "pictures: forwards of plain decoding": True,
    }


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [("--drawings", "300", "256"), ("--judged", "30", "multiple"), ("--rho", "1", "below 1")],
)
def test_what_makes_no_sense_is_refused(
    option: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "canvas", option, value])
    assert end.value.code
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_measures_every_part(tmp_path: Path) -> None:
    path = tmp_path / "canvas.json"
    asked = "--drawings 2 --judged 32 --nulls 10 --timed 0"
    with pytest.raises(SystemExit) as end:
        main(["bench", "canvas", *asked.split(), "--json", str(path)])
    assert not end.value.code
    result = json.loads(path.read_text())
    oracle = [one for one in result["readings"] if one["part"] == "oracle"]
    assert len(oracle) == 6
    assert all(set(one["forwards"]) == {one["wanted"]} for one in oracle)
    assert {one["kind"]: one["wanted"] for one in oracle} == {"picture": 9, "clip": 8}
    assert len(result["goals"]) == 10
    page = report.markdown(result, "canvas.json")
    for title in ("Gate", "Goals", "Start × coupling × L", "Dependence", "Judge of quality"):
        assert f"## {title}" in page
