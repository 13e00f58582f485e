"""`sooner bench marks` on random models: what is kept, what is read, what is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner.generation import generate
from sooner.methods.parallel.method import target_depth
from sooner_lab.bench import report
from sooner_lab.bench.marks import reading, settings
from sooner_lab.bench.marks import run as running
from sooner_lab.bench.marks.by_turns import PrunedSpeculative
from sooner_lab.bench.marks.reading import MarkReader, TokenChoice, states_after
from sooner_lab.bench.marks.run import MarkSettings, run
from sooner_lab.bench.marks.speed import SpeedBench
from sooner_lab.bench.parallel.untimed import listen
from sooner_lab.worlds.marks import architecture, draw, world
from sooner_lab.worlds.video.evaluate import build_inputs

TINY = architecture.MarkShape(4, 32, 2, 2, 16, 64, 192, 1, 32, 2)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marks")
    torch.manual_seed(0)
    architecture.save(architecture.build_model(TINY), folder / "target" / "checkpoint")
    for name in ("checkpoint", "checkpoint-30"):
        small = dataclasses.replace(TINY, layers=2)
        architecture.save(architecture.build_model(small), folder / "draft" / name)
    return folder


@pytest.fixture(autouse=True)
def short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST", 12)


def test_arms_of_the_gate_keep_what_they_are_named_for() -> None:
    clip = world.sample_clip(np.random.default_rng(0))
    rng, visual = np.random.default_rng(1), 64 * 64 + 1
    shown, told = (set(np.flatnonzero(world.places(clip, one))) for one in (False, True))
    kept = {
        name: reading.controlled(name, clip, visual, 410, rng)
        for name in (settings.ORACLE, settings.RANDOM, settings.BLIND)
    }
    for one in kept.values():
        assert one == sorted(set(one))
        assert len(one) == 410
        assert one[-1] == visual - 1, "what closes the clip stays"
    assert shown <= set(kept[settings.ORACLE])
    assert not shown & set(kept[settings.BLIND])
    assert 5 < len(shown & set(kept[settings.RANDOM])) < 60
    few = set(reading.controlled(settings.ORACLE, clip, visual, 101, rng)) - {visual - 1}
    assert told <= few <= shown


def test_arms_keep_equally_many(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like with like: at an alpha every way to choose keeps the same number of tokens."""
    seen: dict[str, list[int] | None] = {}
    kept = MarkReader.kept

    def watch(self, one, *rest):  # type: ignore[no-untyped-def]
        seen[one.label] = kept(self, one, *rest)
        return seen[one.label]

    monkeypatch.setattr(MarkReader, "kept", watch)
    reader = MarkReader(models, ["checkpoint"])
    clip = world.sample_clip(np.random.default_rng(2))
    choices = [*reading.GATE, *reading.JUDGED]
    found = reader.read(clip, choices, 0)
    sizes = {label: None if one is None else len(one) for label, one in seen.items()}
    assert sizes.pop(settings.WHOLE) is None
    assert sizes.pop(settings.NONE) == 0
    wanted = {0.5: 2048, 0.9: 410, 0.95: 205}
    for one in choices:
        if one.label in sizes:
            assert seen[one.label][-1] == 64 * 64, "what closes the clip stays"
            assert sizes[one.label] == wanted[one.alpha]
    assert found["checkpoint"].keys() == {one.label for one in choices}
    lengths = {len(told) for told in found["checkpoint"].values()}
    assert lengths == {found["target"]["tokens"] - 1}
    again = reader.read(clip, [TokenChoice(settings.RANDOM, 0.9)], 0)
    assert again["checkpoint"]["random"] == found["checkpoint"]["random"]


def test_a_run_has_a_gate_for_each_draft(models: Path) -> None:
    asked = MarkSettings(models, ("checkpoint-30", "checkpoint"), clips=2)
    result = run(asked, progress=lambda line: None)
    assert [one["draft"] for one in result["drafts"]] == ["checkpoint-30", "checkpoint"]
    for one in result["drafts"]:
        assert [arm["arm"] for arm in one["gate"]["arms"]] == ["oracle", "random", "blind"]
        assert all(arm["clips"] == 2 for arm in one["gate"]["arms"])
    (table,) = report.tables(result)
    assert len(table.rows) == 10
    assert report.markdown(result, "marks.json").startswith("# Marks")


def test_states_after_a_layer_are_those_that_the_method_ranks_by(models: Path) -> None:
    reader = MarkReader(models, ["checkpoint"])
    clip = world.sample_clip(np.random.default_rng(4))
    inputs = build_inputs(reader.processor, [draw.render(clip)], clip.frames, architecture.PROMPT)
    heard = listen(reader.target, reader.drafts["checkpoint"], inputs, "uv-prune")
    own = target_depth(TINY.layers)
    states = states_after(reader.target, inputs, (own, TINY.layers))
    torch.testing.assert_close(states[own], heard[1])
    assert not torch.equal(states[own], states[TINY.layers])
    assert not any(layer._forward_hooks for layer in reader.target.get_decoder().layers)


def test_ways_are_told_by_layer_and_beside_the_random_choice(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = target_depth(TINY.layers)
    monkeypatch.setattr(settings, "LAYERS", (own, 3))
    by_layer = tuple(TokenChoice("uv-prune", 0.9, layer) for layer in (own, 3))
    monkeypatch.setattr(running, "BY_LAYER", by_layer)
    monkeypatch.setattr(running, "JUDGED", (TokenChoice("uv-prune", 0.9),))
    asked = MarkSettings(models, ("checkpoint",), ("gate", "criteria", "layers"), clips=2)
    result = run(asked, progress=lambda line: None)
    (draft,) = result["drafts"]
    (plain,), (first, third) = draft["criteria"], draft["layers"]
    assert (first["layer"], third["layer"]) == (own, 3)
    assert {key: first[key] for key in plain} == plain, "the method's own layer by another way"
    random = next(one for one in draft["gate"]["arms"] if one["arm"] == settings.RANDOM)
    over = 100 * plain["run_length"] / random["run_length"]
    assert plain["over_random"]["share"] == pytest.approx(over)
    tables = report.tables(result)
    assert [len(one.rows) for one in tables] == [5, 1, 2]
    assert len({len(row) for one in tables[1:] for row in [one.heads, *one.rows]}) == 1


def test_the_papers_baselines_say_what_plain_decoding_says(models: Path) -> None:
    asked = MarkSettings(models, ("checkpoint",), parts=("baselines",), clips=1)
    result = run(asked, progress=lambda line: None)
    arms = result["baselines"]["arms"]
    assert {arm["parity"] for arm in arms} == {"identical"}
    own = {arm["arm"] for arm in arms if arm["is_self"]}
    assert own == {"onsd", "specvlm", "sparse-to-dense", "parallel"}
    (table,) = report.tables(result)
    assert [len(row) for row in table.rows] == [len(table.heads)] * 10


def test_calibration_looks_at_the_blind_draft_alone(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CLEAR_TRIED", (1.0, 0.5))
    monkeypatch.setattr(settings, "CALIBRATED", 1e3)
    asked = MarkSettings(models, ("checkpoint",), clips=1, calibrate=True)
    result = run(asked, progress=lambda line: None)
    assert "drafts" not in result
    assert [one["clear"] for one in result["calibration"]["tried"]] == [1.0, 0.5]
    assert result["calibration"]["clear"] in (1.0, 0.5)
    (table,) = report.tables(result)
    assert len(table.rows) == 2
    monkeypatch.setattr(settings, "CALIBRATED", 0.0)
    result = run(asked, progress=lambda line: None)
    assert result["calibration"]["clear"] == 1.0, "no fainter one is tried behind the share wanted"
    assert len(result["calibration"]["tried"]) == 1


def test_clips_of_another_contrast_show_the_same_marks() -> None:
    one, two = (next(reading.clips(1, 7, clear)) for clear in (1.0, 0.5))
    for clear, dim in zip(one.marks, two.marks, strict=True):
        assert dataclasses.replace(clear, contrast=0) == dataclasses.replace(dim, contrast=0)
        assert dim.contrast == pytest.approx(clear.contrast / 2)


def test_a_missing_checkpoint_gets_one_line(models: Path) -> None:
    with pytest.raises(SoonerError, match=r"draft/checkpoint-10'; train it: sooner train"):
        MarkReader(models, ["checkpoint-10"])


@pytest.mark.slow
def test_speed_is_told_beside_the_strongest_baseline(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "WINDOWS", (2, 4))
    monkeypatch.setattr(settings, "SPEED_REPEATS", 1)
    monkeypatch.setattr(settings, "BATCHES", (1, 2))
    asked = MarkSettings(models, ("checkpoint",), parts=("speed",), clips=1)
    result = run(asked, progress=lambda line: None)
    speed = result["speed"]
    assert [(one["rows"], one["temperature"]) for one in speed["runs"]] == [(1, 0), (1, 1), (2, 0)]
    for one in (speed["runs"][0], speed["runs"][2]):
        assert {arm["parity"] for arm in one["arms"]} == {"identical"}
    arms = {arm["label"]: arm for arm in speed["runs"][0]["arms"]}
    assert arms["plain"]["over_plain"]["value"] == 1
    wanted = {"parallel, α 0", "parallel, α 0.5", "parallel, α 0.9"}
    assert wanted | {"parallel, its own draft, α 0.9"} <= arms.keys()
    assert all(arm["mean_acceptance_length"] >= 1 for arm in arms.values())
    pruned = [one for label, one in arms.items() if label.startswith("by-turns, α 0.9")]
    assert {one["window"] for one in pruned} - {None} <= {2, 4}
    assert all(one["draft_step_seconds"] > 0 for one in pruned)
    assert len(speed["goals"]) == 4
    assert len(report.tables(result)) == 5


def test_a_pruned_draft_by_turns_reads_what_it_is_told(models: Path) -> None:
    """A tenth of the visual tokens, and all of the words."""
    bench = SpeedBench(MarkReader(models, ["checkpoint"]), "checkpoint")
    (batch,) = bench.batches(1, 1, 3, (0.0, 0.9), has_reference=False)
    drafters = []
    build = PrunedSpeculative.build

    class Seen(PrunedSpeculative):
        def build(self, context):  # type: ignore[no-untyped-def]
            drafter, rule = build(self, context)
            drafters.append(drafter)
            return drafter, rule

    for alpha in (0.0, 0.9):
        method = Seen(bench.draft, 2, kept=batch.kept[alpha])
        generate(bench.target, batch.inputs, method, max_new_tokens=4, do_sample=False)
    whole, few = (one.prompt_lengths[0] for one in drafters)
    assert whole - few == 64 * 64 + 1 - 410  # one closes the clip
