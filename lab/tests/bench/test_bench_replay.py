"""`sooner bench replay`: every arm says the script, accepts as it says, and cheats are caught."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sooner.cli.main import main
from sooner.engine.acceptance import VerifyResult
from sooner.engine.interface import Drafter
from sooner.engine.loop import Rule
from sooner.engine.noise import RowNoise
from sooner.engine.sampling import Processing
from sooner.engine.stats.run import Stats
from sooner.engine.tree import Tree
from sooner.errors import SoonerError
from sooner.methods import Speculative
from sooner.methods.context import Context
from sooner_lab.bench.replay import arms as replay_arms
from sooner_lab.bench.replay import page
from sooner_lab.bench.replay.arms import Decoders, PointArms
from sooner_lab.bench.replay.models import ReplayAdapter
from sooner_lab.bench.replay.run import goals, realized, run
from sooner_lab.bench.replay.script import LogitTable, Process, Script
from sooner_lab.bench.replay.settings import METHODS, PATTERNS, ReplaySettings

SMALL = ReplaySettings(
    acceptance=(0.7,), rows=(1,), layers=2, width=32, draft_layers=1, draft_width=32, vocab=512,
    new_tokens=48, prompt_tokens=64, repeats=1, step_repeats=2,
)  # fmt: skip
ARGUMENTS = (
    "--layers 2 --width 32 --draft-layers 1 --draft-width 32 --vocab 512 --new-tokens 40 "
    "--prompt-tokens 64 --texts 1 --repeats 1 --rows 1,3 --acceptance 0.8"
)


@pytest.fixture(scope="module")
def decoders() -> Decoders:
    return Decoders(SMALL)


def quiet(settings: ReplaySettings) -> dict[str, Any]:
    return run(settings, progress=lambda line: None)


def script(acceptance: float, pattern: str = "independent") -> Script:
    process = Process(acceptance, PATTERNS[pattern])
    return Script.draw(process, SMALL.vocab, SMALL.new_tokens, seed=5)


def test_every_arm_generates_the_script_and_has_its_theory(tmp_path: Path) -> None:
    path = tmp_path / "replay.json"
    with pytest.raises(SystemExit) as end:
        main(["bench", "replay", *ARGUMENTS.split(), "--json", str(path)])
    assert not end.value.code
    result = json.loads(path.read_text())
    assert result["model"] == "replay"
    places = [(entry["rows"], entry["pattern"], entry["acceptance"]) for entry in result["points"]]
    assert places == [
        (1, "independent", 0.8), (1, "clustered", 0.8), (3, "independent", 0.8),
    ]  # fmt: skip
    undrafted = []
    for point in result["points"]:
        assert [arm["method"] for arm in point["arms"]] == list(METHODS)
        for arm in point["arms"]:
            name = arm["method"], point["rows"], point["pattern"]
            assert arm["parity"] == "identical", name
            assert arm["tokens"] == 40 * point["rows"], name
            if arm["method"] == "plain":
                assert arm["decode_speedup"] == 1
                continue
            if "acceptance_interval" not in arm:  # no draft paid: one costs most of a step here
                undrafted.append(name)
                continue
            low, high = arm["acceptance_interval"]
            assert 0 <= low <= arm["realized_acceptance"] <= high <= 1, name
            has_theory = arm["method"].startswith("speculative") or arm["method"] == "hsd"
            has_theory |= arm["method"] == "parallel" and point["rows"] == 1
            assert ("of_theory" in arm) == has_theory, name
            if arm["method"] == "speculative":  # theory walks along the same script
                rounds = arm["mean_acceptance_length"]
                assert arm["expected_tokens_a_round"] == pytest.approx(rounds), name
    assert {method for method, *_ in undrafted} <= {"speculative-auto", "parallel"}
    assert len(result["goals"]) == 3
    assert result["left_out"] == []
    assert page.faults(result) == []
    pytest.importorskip("matplotlib")
    with pytest.raises(SystemExit):
        main(["bench", "report", str(path)])
    text = path.with_suffix(".md").read_text()
    for words in ("No model here is trained", "## Goals", "Replay: speed-up, one row, clustered"):
        assert words in text
    for name in ("curves", "batches", "rows"):
        assert (tmp_path / "figures" / f"replay-{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("acceptance", [0.5, 0.9])
def test_fixed_drafts_accept_by_the_script_in_each_round(
    decoders: Decoders, acceptance: float, pattern: str
) -> None:
    """The rounds that came out are those of a walk along the script, one by one."""
    made = script(acceptance, pattern)
    point = PointArms(decoders, made, SMALL, 2, best=3)
    lengths = {"speculative": SMALL.num_draft_tokens, "speculative-best": 3}
    with point.arms() as arms:
        ran = {arm.name: arm.run(1) for arm in arms if arm.name in lengths}
    for name, length in lengths.items():
        walked: dict[int, int] = {}
        for segment in made.segments_of(1, 2):
            text = made.text(segment)
            place, end = text[1], text[-1]
            while place <= end:
                accepted = min(made.agreement.run_from(place), length, end - place)
                walked[accepted] = walked.get(accepted, 0) + 1
                place += accepted + 1
        stats = ran[name].stats
        assert stats is not None
        assert dict(stats.acceptance_histogram) == walked, name
        assert ran[name].tokens == point.texts(1)


@pytest.mark.parametrize("acceptance", [0.5, 0.8, 0.95])
def test_realized_acceptance_is_the_scripts(decoders: Decoders, acceptance: float) -> None:
    """Every arm whose draft is a chain is measured over ten texts; of a Jacobi window, its
    guesses.
    """
    made = script(acceptance)
    point = PointArms(decoders, made, SMALL, 5, best=2)
    with point.arms() as arms:
        for arm in arms:
            stats = [arm.run(index).stats for index in range(2)]
            counts = realized(arm.name, [entry for entry in stats if entry], made.process, seed=0)
            if arm.name == "plain":
                assert "judged" not in counts
            elif arm.name in ("sd-tree", "eagle"):
                assert counts["realized_acceptance"] > acceptance - 0.03
            elif arm.name == "jacobi":
                assert counts["realized_acceptance"] < acceptance + 0.1
            elif arm.name == "hsd":
                assert counts["realized_acceptance"] == pytest.approx(acceptance, abs=0.1)
            else:
                assert counts["as_scripted"], (arm.name, counts)


def test_a_draft_that_reads_the_targets_script_is_caught(
    decoders: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is right and its speed is great, so nothing but acceptance can tell.

    How much of a text a parallel run judges depends on this machine's load (8 of 48 tokens were
    seen), and ten accepted tokens are the least that tell 1 from 0.5 with 99.9 %.
    """

    def cheat(self: Decoders, script: Script) -> ReplayAdapter:
        return ReplayAdapter(self.draft_model, LogitTable.of_target(script.vocab))

    monkeypatch.setattr(Decoders, "draft", cheat)
    settings = replace(
        SMALL, methods=("plain", "speculative", "parallel"), acceptance=(0.5,),
        new_tokens=240, prompt_tokens=320,
    )  # fmt: skip
    result = quiet(settings)
    plain, *cheats = result["points"][0]["arms"]
    assert "decode_speedup" in plain
    caught = [arm for arm in cheats if arm.get("judged", 0) > 10]
    assert [arm["method"] for arm in caught][:1] == ["speculative"]
    for arm in cheats:
        assert arm["parity"] == "identical"
        assert arm.get("realized_acceptance", 1.0) == 1.0
    for arm in caught:
        assert not arm["as_scripted"]
        assert "decode_speedup" not in arm
        assert "of_theory" not in arm
    assert len(page.faults(result)) == len(caught)
    assert "100.0% of the judged draft tokens" in page.PAGE.markdown(result, "replay.json")
    assert result["goals"] == []


@dataclass(frozen=True)
class Credulous(Speculative):
    """Takes every draft token for right."""

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        def believe(
            tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
        ) -> VerifyResult:
            path = torch.arange(1, 1 + tree.nodes).expand(tree.rows, -1)
            best = scores.argmax(-1).gather(1, tree.sizes[:, None])[:, 0]
            return VerifyResult(path, tree.sizes, best)

        return super().build(context)[0], believe


def test_a_rule_that_accepts_wrong_tokens_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_arms, "Speculative", Credulous)
    result = quiet(replace(SMALL, methods=("plain", "speculative")))
    _, arm = result["points"][0]["arms"]
    assert arm["parity"] == "bug"
    assert "decode_speedup" not in arm
    assert any("not the script's" in line for line in page.faults(result))


def test_acceptance_counts_what_was_judged() -> None:
    stats = Stats()
    for accepted in (3, 0, 3, 1):
        stats.record_step(0, drafted=3, accepted=accepted, committed=accepted + 1)
    stats.record_step(0, drafted=0, accepted=0, committed=1)
    counts = realized("speculative", [stats], Process(0.8), seed=0)
    assert (counts["judged"], counts["rejections"]) == (9, 2)
    assert counts["realized_acceptance"] == pytest.approx(7 / 9)
    assert counts["as_scripted"]
    assert "as_scripted" not in realized("speculative", [stats], Process(0.8, 0.5), seed=0)
    assert "as_scripted" not in realized("hsd", [stats], Process(0.8), seed=0)


def test_points_beyond_the_budget_are_left_out_and_reported() -> None:
    settings = replace(SMALL, methods=("plain",), acceptance=(0.6, 0.9), budget=1e-9)
    result = quiet(settings)
    assert [point["acceptance"] for point in result["points"]] == [0.6]
    assert result["left_out"][0] == "rows 1, a = 0.9, independent"
    assert len(result["left_out"]) == 3
    assert "Left out, since the budget" in page.PAGE.markdown(result, "replay.json")


def figures(rows: int, acceptance: float, **speeds: float) -> dict[str, Any]:
    arms = [
        {"method": name.replace("_", "-"), "decode_speedup": value, "of_theory": value / 2}
        for name, value in speeds.items()
    ]
    return {"rows": rows, "pattern": "independent", "acceptance": acceptance, "arms": arms}


def test_goals_take_the_worst_point_and_the_strongest_rival() -> None:
    points = [
        figures(1, 0.5, speculative_auto=0.98, speculative=0.8, parallel=0.7),
        figures(1, 0.9, speculative_auto=2.0, speculative=2.2, parallel=2.1),
        figures(8, 0.9, speculative_auto=0.9, parallel=0.2),
    ]
    slower, theory, parallel = goals(points)
    assert (slower["reached"], slower["met"]) == (0.9, False)
    assert slower["missed"] == [["rows 8, a = 0.9, independent", 0.9]]
    assert (theory["reached"], theory["points"], theory["met"]) == (1.0, 1, True)
    assert parallel["reached"] == pytest.approx(2.1 / 2.2)
    assert (parallel["met"], parallel["points"]) == (False, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"acceptance": (0.4,)}, "--acceptance is 0.4"),
        ({"acceptance": (1.0,)}, "--acceptance is 1"),
        ({"rows": (1, 32)}, "32 rows of 48 tokens each need 1536"),
        ({"width": 40}, "multiple of 32"),
        ({"prompt_tokens": 48}, "holds a copy of the text"),
    ],
)
def test_what_makes_no_script_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SoonerError, match=words):
        replace(SMALL, **changes)


def test_points_of_a_default_run() -> None:
    settings = ReplaySettings()
    assert {rows for rows, _, _ in settings.points()} == {1, 8, 32}
    assert len(settings.points()) == 3 * 2 + 3 * 2
    assert settings.inputs(32) == 1
