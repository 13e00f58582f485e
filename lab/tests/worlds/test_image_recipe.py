"""The recipe: each part resumes to the same weights, growth keeps the function."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner_lab.worlds import cards
from sooner_lab.worlds.image import (
    architecture,
    build,
    card,
    classifier,
    codes,
    hints,
    patches,
    target,
    words,
    world,
)
from sooner_lab.worlds.image.learn_codes import DirectionAverages
from sooner_lab.worlds.image.recipe import ImageRecipe, ImageStage
from sooner_lab.worlds.image.train import train
from sooner_lab.worlds.training import deepen

TINY_CODES = architecture.CodesShape(entries=32, dim=4)
TINY = architecture.ImageShape(layers=3, width=32, heads=2, kv_heads=1, intermediate=32)
PARTS = {
    "codes": ImageRecipe(
        "codes",
        stages=(
            ImageStage("free", 2, 2, 2e-3, bf16=False),
            ImageStage("quantised", 3, 2, 2e-3, bf16=False),
        ),
        shape=dataclasses.asdict(TINY_CODES),
        check_every=0,
    ),
    "classifier": ImageRecipe(
        "classifier", stages=(ImageStage("name", 3, 4, 2e-3, bf16=False),), bank=6, check_every=0
    ),
    "target": ImageRecipe(
        "target",
        stages=(
            ImageStage("predict", 2, 4, 1e-2, layers=2, bf16=False),
            ImageStage("predict", 2, 4, 1e-2, layers=3),
        ),
        shape=dataclasses.asdict(TINY),
        bank=6,
        captions=4,
        check_every=0,
    ),
}


def shorten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(hints, "PICTURES", 4)
    for name in ("PICTURES", "JUDGED", "SAMPLES"):
        patch.setattr(card, name, 2)


@pytest.fixture(autouse=True)
def quick_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards measured on next to nothing: the shipped weights have the real ones."""
    shorten(monkeypatch)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "state.pt", weights_only=True)["model"]


def same(first: dict, two: dict) -> bool:
    return first.keys() == two.keys() and all(torch.equal(first[key], two[key]) for key in first)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All three parts, each trained in one go."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        for name, config in PARTS.items():
            train(folder / name, config, progress=False)
    return folder


def run_folder(trained: Path, folder: Path, name: str) -> Path:
    """A folder for another run of a part, next to the trained parts before it."""
    for before in ("codes", "classifier"):
        if before != name:
            (folder / before).symlink_to(trained / before)
    return folder / name


@pytest.mark.parametrize("name", PARTS)
def test_resumed_run_equals_uninterrupted_run(name: str, trained: Path, tmp_path: Path) -> None:
    out, config = run_folder(trained, tmp_path, name), PARTS[name]
    seen: list[dict] = []
    for _ in range(sum(stage.steps for stage in config.stages)):
        assert not (out / "checkpoint").exists()
        train(out, config, progress=False, stop_after=1, on_step=seen.append)
    assert [(entry["kind"], entry["step"]) for entry in seen] == [
        (stage.kind, step + 1) for stage in config.stages for step in range(stage.steps)
    ]
    assert same(weights(out), weights(trained / name))
    info = json.loads((out / "checkpoint" / "card.json").read_text())
    assert info["part"] == name
    assert info["steps"] == len(seen)
    assert info["recipe"]["seed"] == config.seed


def test_checkpoint_is_whole(trained: Path) -> None:
    model, processor = build.load(trained / "target" / "checkpoint")
    assert model.config.text_config.num_hidden_layers == 3
    assert len(processor.tokenizer) == len(words.vocabulary())
    assert same(
        model.model.vqmodel.state_dict(),
        build.load_codes(trained / "codes" / "checkpoint").state_dict(),
    )
    info = json.loads((trained / "target" / "checkpoint" / "card.json").read_text())
    assert info["parameters"] == cards.parameters(model)
    assert set(info["accuracy_guided"]) == {"forms", "colours", "relation", "ground", "all"}


def test_checkpoints_hold_what_was_trained(trained: Path) -> None:
    """Every part's folder, read by its own loader, has the weights of its last state."""
    judge = classifier.load(trained / "classifier" / "checkpoint").state_dict()
    model = build.load(trained / "target" / "checkpoint")[0].state_dict()
    made = build.load_codes(trained / "codes" / "checkpoint").state_dict()
    for name, stored, mark in (
        ("codes", made, "codes.decoder."),
        ("codes", made, "codes.quantize."),
        ("classifier", judge, ""),
        ("target", model, "target.model.language_model."),
    ):
        state = weights(trained / name)
        keys = [key for key in state if key.startswith(mark)]
        assert keys
        for key in keys:
            half = state[key].half().float()
            torch.testing.assert_close(stored[key.removeprefix(f"{name}.")], half, rtol=0, atol=0)


def test_checks_measure_and_change_nothing(trained: Path, tmp_path: Path) -> None:
    expected = {"codes": "psnr_db", "classifier": "ground", "target": "entropy_guided"}
    for name, figure in expected.items():
        seen: list[dict] = []
        config = dataclasses.replace(PARTS[name], check_every=2)
        (tmp_path / name).mkdir()
        out = run_folder(trained, tmp_path / name, name)
        train(out, config, progress=False, on_step=seen.append)
        assert same(weights(out), weights(trained / name))
        checks = [entry["check"] for entry in seen if "check" in entry]
        assert np.isfinite(checks[-1][figure])


def test_parts_before_are_required(tmp_path: Path) -> None:
    for name in ("classifier", "target"):
        with pytest.raises(SoonerError, match="train the part 'codes' first"):
            train(tmp_path / name, PARTS[name], progress=False)


@pytest.mark.parametrize("name", PARTS)
def test_another_recipe_is_refused(name: str, trained: Path) -> None:
    before = (trained / name / "state.pt").read_bytes()
    first = dataclasses.replace(PARTS[name].stages[0], lr=5e-3)
    for change in ({"seed": 5}, {"stages": (first, *PARTS[name].stages[1:])}):
        other = dataclasses.replace(PARTS[name], **change)
        with pytest.raises(SoonerError, match="another recipe"):
            train(trained / name, other, progress=False)
    assert (trained / name / "state.pt").read_bytes() == before


def test_training_lowers_the_loss(trained: Path, tmp_path: Path) -> None:
    losses: list[float] = []
    config = dataclasses.replace(
        PARTS["target"], stages=(ImageStage("predict", 30, 4, 1e-2, layers=1, bf16=False),)
    )
    train(
        run_folder(trained, tmp_path, "target"), config, progress=False, stop_after=29,
        on_step=lambda entry: losses.append(entry["loss"]),
    )  # fmt: skip
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_training_leaves_torch_as_it_was(tmp_path: Path) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    train(tmp_path / "codes", PARTS["codes"], progress=False, threads=1, stop_after=3)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_dead_entries_move_to_the_data() -> None:
    averages = DirectionAverages(4, 2)
    averages.begin(torch.eye(2).repeat(2, 1))
    averages.count[:] = torch.tensor([1.0, 0.01, 1.0, 0.07])
    latent = torch.tensor([[0.6, 0.8]]).repeat(5, 1)
    assert averages.revive(latent, np.random.default_rng(0)) == 1
    torch.testing.assert_close(
        averages.book(), torch.tensor([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0], [0.0, 1.0]])
    )
    assert averages.count.tolist() == pytest.approx([1.0, 1.0, 1.0, 0.07])


def test_entries_follow_what_they_stand_for() -> None:
    averages = DirectionAverages(2, 2)
    averages.begin(torch.eye(2))
    there = torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.6, 0.8], [0.0, 1.0]])
    for _ in range(400):
        averages.take(there, torch.tensor([0, 0, 0, 1]))
    torch.testing.assert_close(averages.book(), there[2:], rtol=0, atol=1e-3)
    torch.testing.assert_close(averages.count, torch.tensor([1.5, 0.5]), rtol=0, atol=1e-3)


def tiny_model(layers: int = 2) -> torch.nn.Module:
    torch.manual_seed(0)
    shape = dataclasses.replace(TINY, layers=layers)
    return architecture.build_model(shape, architecture.build_codes(TINY_CODES)).eval()


@pytest.mark.parametrize("layers", [2, 5])
def test_growth_keeps_the_function(layers: int) -> None:
    model = tiny_model()
    prompt = target.PaddedCaptions().rows(world.prompts(2, 0), [False, True])
    made = torch.randint(32, (2, architecture.TOKENS))
    mask = target.PaddedCaptions().mask(prompt)
    before = target.predict(model, prompt, mask, made)
    deepen(model, layers)
    torch.testing.assert_close(target.predict(model, prompt, mask, made), before, rtol=0, atol=0)
    with pytest.raises(ValueError, match="cannot grow to 1"):
        deepen(model, 1)


def test_training_rows_are_what_the_processor_makes() -> None:
    """Prompt ids and mask of a training batch equal those of a user's captions."""
    pictures = world.prompts(5, 3)
    captions = target.PaddedCaptions()
    rows = captions.rows(pictures, [False] * 5)
    made = build.build_processor()(
        text=[picture.caption for picture in pictures],
        generation_mode="image", padding=True, return_tensors="pt",
    )  # fmt: skip
    assert torch.equal(rows, made["input_ids"])
    assert torch.equal(captions.mask(rows), made["attention_mask"])
    blank = captions.rows(pictures, [True] * 5)
    is_start = (rows == captions.ids[words.BOS]) | (rows == captions.ids[words.BOI])
    assert torch.equal(blank, torch.where(is_start, rows, captions.ids[words.PAD]))
    assert torch.equal(captions.mask(blank), captions.mask(rows))


def test_family_loss_is_cross_entropy_of_sums() -> None:
    logs = torch.randn(5, 6).log_softmax(-1)
    family = torch.tensor([0, 2, 1, 0, 2, 2])
    picked = torch.tensor([0, 1, 2, 3, 4])
    shares = torch.stack([logs.exp()[:, family == kind].sum(1) for kind in range(3)], dim=1)
    expected = -shares[torch.arange(5), family[picked]].log().mean()
    torch.testing.assert_close(hints.family_loss(logs, picked, family), expected)


def test_hints_skip_blank_captions() -> None:
    torch.manual_seed(0)
    head, pictures = hints.AttributeHeads(8), world.prompts(3, 1)
    states = torch.randn(3, 5, 8)
    actual = head(states, hints.label(pictures, [False, True, False]))
    expected = head(states[[0, 2]], hints.label([pictures[0], pictures[2]], [False, False]))
    torch.testing.assert_close(actual, expected)
    assert head(states, hints.label(pictures, [True] * 3)) == 0


def test_the_written_encoder_is_the_trained_encoder() -> None:
    """Janus's own encoder, with its norms and attention, finds what the patch encoder finds."""
    torch.manual_seed(0)
    model, trained = architecture.build_codes(TINY_CODES), patches.PatchEncoder(TINY_CODES)
    pixels = codes.to_pixels([world.drawn(index, 0)[1] for index in range(2)])
    patches.write_into(model, trained)
    model.half().float()  # as checkpoints are written
    with torch.no_grad():
        output = model.quant_conv(model.encoder(pixels))
        torch.testing.assert_close(output, trained(pixels), rtol=0, atol=2e-3)


def test_a_code_depends_on_its_pixels_alone(trained: Path) -> None:
    model = build.load_codes(trained / "codes" / "checkpoint")
    first, two = codes.to_pixels([world.drawn(index, 0)[1] for index in range(2)])
    mixed = first.clone()
    mixed[:, 16:32, 24:28] = two[:, 16:32, 24:28]  # rows 4 to 7 of column 6
    made = codes.encode(model, torch.stack([first, two, mixed])).view(3, 16, 16)
    swapped = torch.zeros(16, 16, dtype=torch.bool)
    swapped[4:8, 6] = True
    assert torch.equal(made[2], torch.where(swapped, made[1], made[0]))
    assert not torch.equal(made[0], made[1])


def test_shapes_without_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="twice as wide"):
        architecture.CodesShape(multiplier=(1, 1, 1))


def test_scores_of_the_judge() -> None:
    truth = world.Attributes(("circle", "cross"), ("red", "blue"), "right of", "green")
    right = world.Attributes(("cross", "circle"), ("blue", "red"), "left of", "green")
    assert classifier.score(right, truth) == dict.fromkeys(classifier.score(right, truth), 1.0)
    swapped = dataclasses.replace(right, forms=right.forms[::-1], colours=right.colours[::-1])
    assert classifier.score(swapped, truth)["relation"] == 0
    half = dataclasses.replace(right, forms=("cross", "square"))
    assert classifier.score(half, truth)["forms"] == 0.5
    assert classifier.score(half, truth)["relation"] == 1
    alone = world.Attributes(("cross",), ("blue",), None, "green")
    assert classifier.score(alone, truth)["relation"] == classifier.score(alone, truth)["all"] == 0
    assert classifier.labels(alone)[-2:] == [classifier.ABSENT] * 2
    assert cards.parameters(classifier.Classifier()) < 100_000
    assert np.shape(classifier.labels(truth)) == (len(classifier.HEADS),)
