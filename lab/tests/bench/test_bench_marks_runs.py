"""`sooner bench marks` on random models: what is kept, what is read, what is told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner_lab.bench import report
from sooner_lab.bench.marks import reading, settings
from sooner_lab.bench.marks.reading import MarkReader, TokenChoice
from sooner_lab.bench.marks.run import MarkSettings, run
from sooner_lab.worlds.marks import architecture, world

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


def test_the_oracle_keeps_marks_first() -> None:
    clip = world.sample_clip(np.random.default_rng(0))
    rng, visual = np.random.default_rng(1), 64 * 64 + 1
    shown, told = (set(np.flatnonzero(world.places(clip, one))) for one in (False, True))
    kept = reading.oracle(clip, visual, 410, rng)
    assert kept == sorted(set(kept))
    assert len(kept) == 410
    assert shown <= set(kept)
    few = set(reading.oracle(clip, visual, 100, rng))
    assert told <= few <= shown


def test_arms_keep_equally_many(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like with like: at an alpha every way to choose keeps the same number of tokens."""
    seen: dict[str, list[int] | None] = {}
    kept = MarkReader._kept

    def watch(self, one, *rest):  # type: ignore[no-untyped-def]
        seen[one.label] = kept(self, one, *rest)
        return seen[one.label]

    monkeypatch.setattr(MarkReader, "_kept", watch)
    reader = MarkReader(models, ["checkpoint"])
    clip = world.sample_clip(np.random.default_rng(2))
    choices = [*reading.GATE, *reading.JUDGED]
    found = reader.read(clip, choices, 0)
    sizes = {label: None if one is None else len(one) for label, one in seen.items()}
    assert sizes.pop(settings.WHOLE) is None
    assert sizes.pop(settings.BLIND) == 0
    wanted = {0.5: 2048, 0.9: 410, 0.95: 205}
    for one in choices:
        if one.label in sizes:
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
    assert len(table.rows) == 8
    assert report.markdown(result, "marks.json").startswith("# Marks")


def test_calibration_looks_at_the_blind_draft_alone(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "CLEAR_TRIED", (1.0, 0.5))
    asked = MarkSettings(models, ("checkpoint",), clips=1, calibrate=True)
    result = run(asked, progress=lambda line: None)
    assert "drafts" not in result
    assert [one["clear"] for one in result["calibration"]["tried"]] == [1.0, 0.5]
    assert result["calibration"]["clear"] in (1.0, 0.5)
    (table,) = report.tables(result)
    assert len(table.rows) == 2


def test_clips_of_another_contrast_show_the_same_marks() -> None:
    one, two = (next(reading.clips(1, 7, clear)) for clear in (1.0, 0.5))
    for clear, dim in zip(one.marks, two.marks, strict=True):
        assert dataclasses.replace(clear, contrast=0) == dataclasses.replace(dim, contrast=0)
        assert dim.contrast == pytest.approx(clear.contrast / 2)


def test_a_missing_checkpoint_gets_one_line(models: Path) -> None:
    with pytest.raises(SoonerError, match=r"draft/checkpoint-10'; train it: sooner train"):
        MarkReader(models, ["checkpoint-10"])
