"""All recipes in small: they learn, resume to the same weights, deepen without a change."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner_lab.worlds import cards
from sooner_lab.worlds.document import architecture as documents
from sooner_lab.worlds.document.recipe import DocumentRecipe, DocumentStage
from sooner_lab.worlds.image import architecture as images
from sooner_lab.worlds.image import build, card, classifier, hints
from sooner_lab.worlds.image.recipe import ImageRecipe, ImageStage
from sooner_lab.worlds.motion import card as motion_card
from sooner_lab.worlds.motion.recipe import MotionRecipe, MotionStage
from sooner_lab.worlds.recipes import Recipe, Stage
from sooner_lab.worlds.robot import architecture as robots
from sooner_lab.worlds.robot.recipe import RobotRecipe
from sooner_lab.worlds.training import deepen
from sooner_lab.worlds.video import architecture as videos
from sooner_lab.worlds.video import evaluate as captioning
from sooner_lab.worlds.video.pacing import ScenePacing
from sooner_lab.worlds.video.recipe import VideoRecipe, VideoStage

DOCUMENT = documents.DocumentShape(4, 32, 2, 1, 16, 32, 704, 2, 32, 2)
CODES = images.CodesShape(entries=32, dim=4)
IMAGE = images.ImageShape(layers=3, width=32, heads=2, kv_heads=1, intermediate=32)
ROBOT = robots.RobotShape(4, 32, 2, 32, 1, 16, 2)
VIDEO = videos.VideoShape(3, 32, 2, 1, 64, 192, 1, 32, 2)
MIXED = ScenePacing(0.5, 0.2, 0.2, 0.1, maximum=24)
RECIPES: dict[str, tuple[Recipe, ...]] = {
    "document": (
        DocumentRecipe(
            stages=(
                DocumentStage("vision", 2, 32, 2e-3, sizes=((1, 16),), layers=2),
                DocumentStage("language", 2, 32, 1e-3, sizes=((1, 16), (2, 8)), pages=3, guide=0.3),
                DocumentStage(
                    "language", 1, 32, 1e-3, sizes=((2, 8),), layers=4, pages=2, bf16=True
                ),
                DocumentStage("joint", 1, 32, 1e-3, sizes=((2, 8),)),
            ),
            shape=DOCUMENT,
            card_pages=1,
        ),
    ),
    "image": (
        ImageRecipe(
            "codes",
            stages=(
                ImageStage("free", 2, 2, 2e-3, bf16=False),
                ImageStage("quantised", 3, 2, 2e-3, bf16=False),
            ),
            shape=CODES,
        ),
        ImageRecipe("classifier", stages=(ImageStage("name", 3, 4, 2e-3, bf16=False),), bank=6),
        ImageRecipe(
            stages=(
                ImageStage("predict", 2, 4, 1e-2, layers=2, bf16=False),
                ImageStage("predict", 2, 4, 1e-2, layers=3),
            ),
            shape=IMAGE,
            bank=6,
            captions=4,
        ),
    ),
    "motion": (
        MotionRecipe(
            "tokenizer",
            stages=(
                MotionStage("plain", 2, 2, 2e-3, latents=2),
                MotionStage("quantised", 3, 2, 1e-3, latents=2),
            ),
            shape={"channels": 16, "blocks": 1, "codes": 32, "code_width": 8},
        ),
        MotionRecipe(
            "probe",
            stages=(MotionStage("name", 3, 2, 1e-3, latents=2, bf16=False),),
            shape={"channels": 8},
        ),
        MotionRecipe(
            stages=(
                MotionStage("predict", 2, 2, 2e-3, latents=2, layers=1),
                MotionStage(
                    "predict", 2, 1, 2e-3, latents=3, layers=3, focus=2.0, front=5.0, lattice=4
                ),
            ),
            shape={"layers": 4, "width": 32, "heads": 2, "kv_heads": 1, "intermediate": 32},
            bank=5,
        ),
    ),
    "robot": (
        RobotRecipe(
            stages=(
                Stage("vision", 2, 4, 2e-3),
                Stage("policy", 2, 4, 1e-3, layers=2),
                Stage("policy", 2, 2, 1e-3, layers=4),
            ),
            shape=ROBOT,
            records={"table": 24},
            check_count=4,
        ),
    ),
    "video": (
        VideoRecipe(
            stages=(
                VideoStage("vision", 2, 8, 2e-3),
                VideoStage("language", 2, 200, 2e-3, scenes=(1, 2), layers=2),
                VideoStage("language", 2, 200, 1e-3, scenes=(1, 2), layers=3, pace=MIXED),
                VideoStage("language", 2, 800, 1e-3, scenes=(1, 2), pace=MIXED, pruned=0.5),
            ),
            shape=VIDEO,
            bank=12,
        ),
    ),
}
PARTS = [(world, recipe.part) for world, recipes in RECIPES.items() for recipe in recipes]


def recipe_of(world: str, part: str) -> Any:
    """A tiny recipe, without checks in between."""
    recipe = next(recipe for recipe in RECIPES[world] if recipe.part == part)
    return dataclasses.replace(recipe, check_every=0)


def train(world: str, out: Path, recipe: Any, **options: Any) -> Path:
    module = importlib.import_module(f"sooner_lab.worlds.{world}.train")
    return module.train(out, recipe, progress=False, **options)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "state.pt", weights_only=True)["model"]


def same(first: dict, two: dict) -> bool:
    return first.keys() == two.keys() and all(torch.equal(first[key], two[key]) for key in first)


@pytest.fixture(scope="module", autouse=True)
def quick_cards() -> Iterator[None]:
    """Cards measured on next to nothing: the shipped weights have the real ones."""
    holdout = motion_card.holdout
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captioning, "SCENES", (1,))
        patch.setattr(captioning, "CLIPS", 1)
        patch.setattr(hints, "PICTURES", 4)
        for name in ("PICTURES", "JUDGED", "SAMPLES"):
            patch.setattr(card, name, 2)
        patch.setattr(motion_card, "holdout", lambda clips: holdout(min(clips, 2)))
        patch.setattr(motion_card, "tokenizer_figures", lambda tokenizer, clips: {})
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """All parts of a world, each trained in one go, once."""
    folder = tmp_path_factory.mktemp("whole")

    def of(world: str) -> Path:
        if not (folder / world).exists():
            for recipe in RECIPES[world]:
                recipe = recipe_of(world, recipe.part)
                train(world, folder / world / recipe.part, recipe)
        return folder / world

    return of


def beside(home: Path, folder: Path, world: str, part: str) -> Path:
    """A folder for another run of a part, next to the trained parts."""
    folder.mkdir(exist_ok=True)
    for recipe in RECIPES[world]:
        if recipe.part != part:
            (folder / recipe.part).symlink_to(home / recipe.part)
    return folder / part


@pytest.mark.parametrize(("world", "part"), PARTS)
def test_resumed_run_equals_uninterrupted_run(
    home: Callable[[str], Path], tmp_path: Path, world: str, part: str
) -> None:
    recipe, whole = recipe_of(world, part), home(world) / part
    out, seen = beside(home(world), tmp_path, world, part), list[dict[str, Any]]()
    for _ in range(sum(stage.steps for stage in recipe.stages)):
        assert not (out / "checkpoint").exists()
        train(world, out, recipe, stop_after=1, on_step=seen.append)
    assert [(entry["kind"], entry["step"]) for entry in seen] == [
        (stage.kind, step + 1) for stage in recipe.stages for step in range(stage.steps)
    ]
    assert same(weights(out), weights(whole))
    info = json.loads((out / "checkpoint" / "card.json").read_text())
    assert (info["part"], info["steps"], info["recipe"]["seed"]) == (part, len(seen), recipe.seed)
    stored = [path / "checkpoint" / "model.safetensors" for path in (out, whole)]
    assert stored[0].read_bytes() == stored[1].read_bytes()


@pytest.mark.parametrize(("world", "part"), PARTS)
def test_another_recipe_is_refused_and_can_begin_anew(
    home: Callable[[str], Path], tmp_path: Path, world: str, part: str
) -> None:
    recipe, out = recipe_of(world, part), beside(home(world), tmp_path, world, part)
    train(world, out, recipe, stop_after=2)
    before, first = (out / "state.pt").read_bytes(), weights(out)
    later = dataclasses.replace(recipe.stages[0], lr=5e-3)
    for change in ({"seed": 5}, {"stages": (later, *recipe.stages[1:])}):
        with pytest.raises(SoonerError, match="another recipe"):
            train(world, out, dataclasses.replace(recipe, **change))
    assert (out / "state.pt").read_bytes() == before
    train(world, out, dataclasses.replace(recipe, seed=5), stop_after=2, resume=False)
    assert not same(first, weights(out))


@pytest.mark.parametrize(("world", "part"), PARTS)
def test_checks_measure_and_change_nothing(
    home: Callable[[str], Path], tmp_path: Path, world: str, part: str
) -> None:
    out, seen = beside(home(world), tmp_path, world, part), list[dict[str, Any]]()
    recipe = dataclasses.replace(recipe_of(world, part), check_every=2)
    train(world, out, recipe, on_step=seen.append)
    assert same(weights(out), weights(home(world) / part))
    assert sum("check" in entry for entry in seen) == sum(s.steps // 2 for s in recipe.stages)


@pytest.mark.parametrize(
    ("world", "part", "before"),
    [
        ("image", "classifier", "codes"),
        ("image", "target", "codes"),
        ("motion", "target", "tokenizer"),
        ("motion", "probe", "tokenizer"),
    ],
)
def test_parts_before_are_required(world: str, part: str, before: str, tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match=f"train the part '{before}' first"):
        train(world, tmp_path / part, recipe_of(world, part))


@pytest.mark.parametrize("world", ["document", "video"])
def test_a_run_starts_from_a_checkpoint(
    home: Callable[[str], Path], tmp_path: Path, world: str
) -> None:
    begun, recipe = home(world) / "target" / "checkpoint", recipe_of(world, "target")
    stages = (dataclasses.replace(recipe.stages[0], steps=1, layers=0, lr=1e-9),)
    more = dataclasses.replace(recipe, stages=stages, start=str(begun), seed=7)
    train(world, tmp_path / "more", more, stop_after=0)
    decoder = {"document": "reader.", "video": "captioner."}[world]
    first, two = weights(home(world) / "target"), weights(tmp_path / "more")
    for key in (key for key in first if key.startswith(decoder)):
        assert torch.equal(first[key].half().float(), two[key]), key
    text = (train(world, tmp_path / "more", more) / "card.json").read_text()
    card = json.loads(text)
    assert card["start"]["recipe"]["seed"] == recipe.seed
    assert card["recipe"]["start"] == "checkpoint"
    assert str(begun.parents[1]) not in text
    wide = dataclasses.replace(recipe.shape, width=64)
    with pytest.raises(SoonerError, match="not of the shape"):
        train(world, tmp_path / "wide", dataclasses.replace(more, shape=wide))
    with pytest.raises(SoonerError, match=r"no checkpoint at '.*nowhere'"):
        train(world, tmp_path / "no", dataclasses.replace(more, start="nowhere"))


def test_layers_that_no_stage_trains_are_silent(tmp_path: Path) -> None:
    """Two are trained and stored; the checkpoint runs four."""
    recipe = recipe_of("document", "target")
    folder = train("document", tmp_path, dataclasses.replace(recipe, stages=recipe.stages[:1]))
    config = json.loads((folder / "config.json").read_text())
    assert config["text_config"]["num_hidden_layers"] == 2
    card = json.loads((folder / "card.json").read_text())
    assert (card["layers"], card["trained_layers"]) == (4, 2)


def test_an_image_checkpoint_is_whole(home: Callable[[str], Path]) -> None:
    """Every part's folder, read by its own loader, has the weights of its last state."""
    folder = home("image")
    codes = build.load_codes(folder / "codes" / "checkpoint").state_dict()
    judge = classifier.load(folder / "classifier" / "checkpoint").state_dict()
    model, processor = build.load(folder / "target" / "checkpoint")
    assert len(processor.tokenizer) == model.config.text_config.vocab_size
    assert same(model.model.vqmodel.state_dict(), codes)
    for name, stored, mark in (
        ("codes", codes, "codes.decoder."),
        ("codes", codes, "codes.quantize."),
        ("classifier", judge, ""),
        ("target", model.state_dict(), "target.model.language_model."),
    ):
        state = weights(folder / name)
        keys = [key for key in state if key.startswith(mark)]
        assert keys
        for key in keys:
            half = state[key].half().float()
            torch.testing.assert_close(stored[key.removeprefix(f"{name}.")], half, rtol=0, atol=0)
    info = json.loads((folder / "target" / "checkpoint" / "card.json").read_text())
    assert info["parameters"] == cards.parameters(model)
    assert set(info["accuracy_guided"]) == {"forms", "colours", "relation", "ground", "all"}


def test_training_lowers_the_loss(home: Callable[[str], Path], tmp_path: Path) -> None:
    losses: list[float] = []
    stages = (ImageStage("predict", 30, 4, 1e-2, layers=1, bf16=False),)
    recipe = dataclasses.replace(recipe_of("image", "target"), stages=stages)
    out = beside(home("image"), tmp_path, "image", "target")
    train("image", out, recipe, stop_after=29, on_step=lambda entry: losses.append(entry["loss"]))
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_training_leaves_torch_as_it_was(tmp_path: Path) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    train("image", tmp_path / "codes", recipe_of("image", "codes"), threads=1, stop_after=3)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


STATISTICS = {"q01": [-1.0] * 4, "q99": [1.0] * 4, "mask": [True] * 4}
BUILDERS: dict[str, Callable[[], Any]] = {
    "document": lambda: documents.build_model(dataclasses.replace(DOCUMENT, layers=2)),
    "image": lambda: images.build_model(
        dataclasses.replace(IMAGE, layers=2), images.build_codes(CODES)
    ),
    "robot": lambda: robots.build_model(dataclasses.replace(ROBOT, layers=2), STATISTICS),
    "video": lambda: videos.build_model(dataclasses.replace(VIDEO, layers=2)),
}


@pytest.mark.parametrize("layers", [2, 5, 7])
@pytest.mark.parametrize("world", BUILDERS)
def test_deepening_keeps_the_function(world: str, layers: int) -> None:
    torch.manual_seed(0)
    model = BUILDERS[world]().eval()
    states = torch.randn(2, 9, 32)
    with torch.no_grad():
        before = model.get_decoder()(inputs_embeds=states, use_cache=True).last_hidden_state
        deepen(model, layers)
        decoder = model.eval().get_decoder()
        after = decoder(inputs_embeds=states, use_cache=True)
        assert torch.equal(after.last_hidden_state, before)
        assert len(decoder.layers) == layers
        # Every layer has its own cache slot, so that decoding step by step agrees too.
        assert after.past_key_values.get_seq_length(layers - 1) == 9
        first = decoder(inputs_embeds=states[:, :5], use_cache=True)
        rest = decoder(inputs_embeds=states[:, 5:], past_key_values=first.past_key_values)
    torch.testing.assert_close(rest.last_hidden_state, before[:, 5:], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="cannot grow to 1"):
        deepen(model, 1)


def test_what_was_learnt_is_done_in_the_lower_part() -> None:
    """A third of the shipped depth holds three of four old layers."""
    model = videos.build_model(dataclasses.replace(VIDEO, layers=4))
    old = list(model.get_decoder().layers)
    deepen(model, 28, videos.LOW)
    layers = list(model.get_decoder().layers)
    assert [layers.index(layer) for layer in old] == [0, 3, 6, 9]
    assert not any(np.any(layers[at].mlp.down_proj.weight.detach().numpy()) for at in (1, 5, 27))
