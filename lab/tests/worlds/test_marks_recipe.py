"""The recipe of the world of marks: patches apart, segments apart, resumed runs."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner_lab.worlds.marks import architecture, card, data, draw, evaluate, losses, recipe, world
from sooner_lab.worlds.marks.recipe import MarkRecipe, MarkStage
from sooner_lab.worlds.marks.train import train
from sooner_lab.worlds.video.data import IGNORE, normalise
from sooner_lab.worlds.video.evaluate import build_inputs, load
from sooner_lab.worlds.video.losses import see

TINY = architecture.MarkShape(3, 32, 2, 2, 16, 64, 192, 1, 32, 2)
MICRO = MarkRecipe(
    shape=TINY,
    stages=(
        MarkStage("vision", 3, 4, 2e-3),
        MarkStage("joint", 4, 2, 1e-3, layers=2, caption=False, pairs=2, repeated=True),
        MarkStage("joint", 4, 1, 1e-3, 4),
    ),
    check_every=0,
    keep=(0.25,),
)


@pytest.fixture(autouse=True)
def quick_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "CLIPS", 1)
    monkeypatch.setattr(card, "FRAMES", (4,))


@pytest.fixture(scope="module")
def model():  # type: ignore[no-untyped-def]
    torch.manual_seed(1)
    return architecture.build_model(TINY).eval()


def rows_of(seed: int, count: int = 2) -> tuple[list[world.MarkClip], data.PackedRows]:
    rng = np.random.default_rng(seed)
    clips = [world.sample_clip(rng, 4) for _ in range(count)]
    return clips, data.PackedRowWriter().write(rng, clips)


@pytest.mark.parametrize("shape", [TINY, architecture.TARGET, architecture.DRAFT])
def test_a_patch_changes_its_own_token_alone(shape: architecture.MarkShape) -> None:
    torch.manual_seed(0)
    small = dataclasses.replace(shape, layers=1)
    tower = architecture.build_model(small).eval()
    pixels = torch.randn(1, 3, draw.SIDE, draw.SIDE)
    cell = 19  # line 2, column 3
    other = pixels.clone()
    other[..., 2 * draw.CELL : 3 * draw.CELL, 3 * draw.CELL : 3 * draw.CELL + 5] += 1
    with torch.no_grad():
        moved = (see(tower, pixels) != see(tower, other)).any(-1)[0]
    assert moved.nonzero()[:, 0].tolist() == [cell]


def test_patches_stay_apart_while_the_tower_learns(tmp_path: Path) -> None:
    train(tmp_path, MICRO, progress=False, stop_after=6)
    state = torch.load(tmp_path / "state.pt", weights_only=True)["model"]
    added = [key for key in state if "self_attn.out_proj" in key]
    assert len(added) == 2
    assert not any(state[key].any() for key in added)


def test_no_segment_sees_another(model) -> None:  # type: ignore[no-untyped-def]
    """Each segment alone behind the clip gets the logits that it gets in the pack."""
    rng = np.random.default_rng(2)
    clips = [world.sample_clip(rng, 4)]
    writer = data.PackedRowWriter()
    asked = world.sample_questions(rng, clips[0], 3)
    segments = [writer.caption(clips[0]), *map(writer.question, asked)]
    _, _, features = evaluate.look(model, clips)
    positions, first = data.prefix_positions(len(writer.head), np.array([0, 5, 9, 63]))

    def said(rows: data.PackedRows) -> losses.Verdicts:
        return losses.predict(model, rows, writer.head, features, positions, first)

    with torch.no_grad():
        whole = said(data.pack([segments]))
        alone = [said(data.pack([[one]])) for one in segments]
    sizes = [len(one.answer) for one in segments]
    assert whole.right.shape == (1, sum(sizes))
    assert whole.right[0].tolist() == [r for one in alone for r in one.right[0].tolist()]
    mean = sum(float(one.loss) * size for one, size in zip(alone, sizes, strict=True)) / sum(sizes)
    assert float(whole.loss) == pytest.approx(mean, rel=1e-5)


def test_masks_part_requests_and_answers() -> None:
    _, rows = rows_of(3)
    seen = data.sees(rows, 7)
    assert seen[:, :7].all()
    text = seen[:, 7:]
    for owner in range(9):
        mine = rows.owner == owner
        assert not text[mine][:, ~mine].any()
        own = text[mine][:, mine]
        assert torch.equal(own, torch.ones_like(own).tril())
        assert torch.equal(rows.places[mine], torch.arange(int(mine.sum())))


def test_rows_hold_a_caption_and_eight_questions() -> None:
    clips, rows = rows_of(4)
    writer = data.PackedRowWriter()
    assert rows.owner.max() == 8
    for index, clip in enumerate(clips):
        first = rows.labels[index][(rows.owner == 0) & (rows.labels[index] != IGNORE)]
        assert writer.tokenizer.decode(first[:-1]) == writer.tokenizer.decode(
            writer.tokenizer(world.caption(clip)).input_ids
        )
        assert len(first) == 150
    told = rows.labels != IGNORE
    assert (rows.need & ~told).sum() == 0
    assert rows.need.sum() == 2 * (54 + 8)
    assert torch.equal(rows.ids[told], rows.labels[told])
    with pytest.raises(ValueError, match="first row's lengths"):
        data.pack([[writer.caption(clips[0])], [writer.caption(clips[0], "describe")]])


def test_frames_keep_their_places_in_a_long_clip() -> None:
    positions, first = data.prefix_positions(2, np.array([0, 63]))
    assert positions[:3].tolist() == [0, 1, 2]
    assert positions[2 + 64].item() == 2 + 63 * 64
    assert positions[-1].item() == 2 + 64 * 64 == first - 1
    whole, _ = data.prefix_positions(2, np.arange(64))
    assert torch.equal(whole, torch.arange(2 + 4096 + 1))


def test_training_rows_are_what_the_processor_gives(tmp_path: Path, model) -> None:  # type: ignore[no-untyped-def]
    """The captioner's own forward on the processor's inputs: the same logits as packed rows'."""
    architecture.save(model, tmp_path)
    loaded, processor = load(tmp_path)
    clip = world.sample_clip(np.random.default_rng(6))
    film = draw.render(clip)
    inputs = build_inputs(processor, [film], world.FRAMES, architecture.PROMPT)
    writer = data.PackedRowWriter()
    segment = writer.caption(clip)
    wanted = [*writer.head, *[writer.video] * (4096 + 1), *segment.request]
    assert inputs["input_ids"][0].tolist() == wanted
    pixels = normalise(torch.from_numpy(film).permute(0, 3, 1, 2).float() / 255)
    torch.testing.assert_close(inputs["pixel_values_videos"][0], pixels, rtol=0, atol=1e-6)
    answer = torch.tensor([segment.answer])
    inputs["input_ids"] = torch.cat([inputs["input_ids"], answer], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    with torch.no_grad():
        logits = loaded(**inputs).logits[0, len(wanted) - 1 : -1]
        features = see(loaded, pixels).flatten(0, 1)[None]
        told = evaluate.ask(loaded, writer, data.pack([[segment]]), features, np.arange(64))
    truth = answer[0]
    loss = torch.nn.functional.cross_entropy(logits, truth)
    assert float(told.loss) == pytest.approx(float(loss), rel=1e-4)
    assert told.need[0].tolist() == segment.need


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", MICRO, progress=False)
    for steps in (2, 1, 3, 2, 2):  # inside each stage and exactly between two
        train(tmp_path / "parts", MICRO, progress=False, stop_after=steps)
        assert not (tmp_path / "parts" / "checkpoint").exists()
    parts = train(tmp_path / "parts", MICRO, progress=False)
    for name in ("checkpoint", "checkpoint-25"):
        one, two = (load(tmp_path / run / name)[0].state_dict() for run in ("whole", "parts"))
        assert one.keys() == two.keys()
        assert all(torch.equal(one[key], two[key]) for key in one)
    told = json.loads((parts / "card.json").read_text())
    assert (told["steps"], told["layers"], told["trained_layers"]) == (11, 3, 2)
    assert json.loads((whole.parent / "checkpoint-25" / "card.json").read_text())["steps"] == 8
    assert set(told["accuracy"]["frames_4"]) == {"text", "seen", "guessed"}
    with pytest.raises(SoonerError, match="another recipe"):
        train(tmp_path / "parts", dataclasses.replace(MICRO, seed=9), progress=False)


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    seen: list[float] = []
    config = dataclasses.replace(
        MICRO, stages=(MarkStage("joint", 30, 2, 5e-3, 4, layers=2),), keep=()
    )
    train(
        tmp_path, config, progress=False, stop_after=29,
        on_step=lambda entry: seen.append(entry["loss"]),
    )  # fmt: skip
    assert sum(seen[-5:]) / 5 < 0.7 * seen[0]


def test_pruned_prompts_are_nowhere_in_the_recipes() -> None:
    """Target and draft are trained on whole clips, up to the length that is judged."""
    for config in recipe.RECIPES.values():
        frames = [stage.frames for stage in config.stages if stage.kind == "joint"]
        assert frames == sorted(frames)
        assert frames[-1] == world.FRAMES
    assert recipe.TARGET.seed != recipe.DRAFT.seed
    assert recipe.DRAFT.keep == (0.1, 0.3)


def test_stages_are_checked() -> None:
    with pytest.raises(ValueError, match="'vision' or 'joint'"):
        MarkStage("language", 1, 1, 1e-3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1"):
        MarkStage("joint", 0, 1, 1e-3)
