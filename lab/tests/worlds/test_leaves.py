"""The world of leaves: textures, their codes, its recipe, and the confirmation that draws by it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner.methods import Autoregressive, CoupledJacobi
from sooner_lab.bench import report
from sooner_lab.bench.canvas.run import run
from sooner_lab.bench.canvas.settings import CanvasSettings
from sooner_lab.bench.canvas.trained import TrainedLaw
from sooner_lab.bench.imagine.arms import draw_rows
from sooner_lab.worlds.leaves import learn_leaves, world
from sooner_lab.worlds.leaves.recipe import LeafRecipe, LeafShape, LeafStage
from sooner_lab.worlds.leaves.train import train

TINY = LeafRecipe(
    LeafShape(layers=2, width=64, heads=2, intermediate=96),
    (LeafStage(30, 8, 3e-3, bf16=False),),
    fitted=16,
    check_every=0,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("leaves")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learn_leaves, "CARD_PICTURES", 8)
        train(out / "target", TINY, progress=False)
    return out


def test_discs_cover_a_picture_and_hide_each_other() -> None:
    made = world.picture(np.random.default_rng(3))
    assert made.shape == (world.SIDE, world.SIDE)
    assert np.isfinite(made).all()
    # Neighbours mostly lie on one leaf, and edges are sharp.
    steps = np.abs(np.diff(made, axis=1))
    assert np.median(steps) < 0.05
    assert (steps > 0.2).mean() > 0.02
    assert np.array_equal(made, world.picture(np.random.default_rng(3)))


def test_codes_are_the_nearest_patches() -> None:
    book = world.find_codes(1, 16)
    assert len(book.unique(dim=0)) == world.CODES
    drawn = world.codes(np.random.default_rng(5), 3, book)
    rng = np.random.default_rng(5)
    seen = torch.from_numpy(np.stack([world.picture(rng) for _ in range(3)]))
    by_hand = torch.cdist(world.patches(seen.numpy()).flatten(0, 1), book).argmin(1)
    assert torch.equal(drawn.flatten(), by_hand)
    error = (world.pixels(drawn, book) - seen).square().mean().sqrt()
    assert error < 0.15  # patches in raster order, or it would be that of other pictures
    assert error < (world.pixels(drawn.flip(1), book) - seen).square().mean().sqrt() / 2


@pytest.mark.slow
def test_it_learns_resumes_and_tells(folder: Path, tmp_path: Path) -> None:
    card = json.loads((folder / "target" / "checkpoint" / "card.json").read_text())
    assert card["steps"] == 30
    assert card["nats"] < np.log(world.CODES)
    whole = learn_leaves.load(folder / "target" / "checkpoint")[0]
    train(tmp_path / "target", TINY, progress=False, stop_after=11)
    train(tmp_path / "target", TINY, progress=False)
    again = learn_leaves.load(tmp_path / "target" / "checkpoint")[0]
    for one, two in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, two)
    other = dataclasses.replace(TINY, seed=9)
    with pytest.raises(SoonerError, match="another recipe"):
        train(folder / "target", other, progress=False)
    with pytest.raises(SoonerError, match="sooner train miniature leaves"):
        TrainedLaw(tmp_path / "nowhere")


def test_plain_drawings_have_the_likelihood_that_is_told(folder: Path) -> None:
    law = TrainedLaw(folder)
    drawn = draw_rows(law.subject, range(3), Autoregressive(shared_noise=True), 4)[0].tokens
    coupled = draw_rows(law.subject, range(3), CoupledJacobi(8), 4)[0].tokens
    assert torch.equal(drawn, coupled)  # the same noise: the same drawings
    by_hand = torch.zeros(3, dtype=torch.float64)
    opening = torch.full((3, 1), world.OPENING)
    for place in range(5):  # one code at a time
        logits = law.model(torch.cat([opening, drawn[:, :place]], 1)).logits[:, -1]
        by_hand += logits.log_softmax(-1).gather(1, drawn[:, place : place + 1])[:, 0]
    with torch.inference_mode():
        told = -learn_leaves.nats(law.model, drawn)[:, :5].double().sum(1)
    assert told.tolist() == pytest.approx(by_hand.tolist(), abs=1e-3)


@pytest.mark.slow
def test_the_confirmation_can_fail_and_is_told(folder: Path, monkeypatch) -> None:
    from sooner_lab.bench.canvas import run as running

    monkeypatch.setattr(running, "POOL", 64)
    settings = CanvasSettings(drawings=2, starts=("random",), windows=(32,), judged=32, nulls=4,
                              timed=1, model=folder)  # fmt: skip
    result = run(settings, progress=lambda line: None)
    assert result["model"] == "leaves"
    assert {one["kind"] for one in result["readings"]} == {"picture"}
    learnt = next(one for one in result["gate"] if "by its frequency" in one["gate"])
    assert not learnt["passed"]  # thirty steps teach next to nothing
    random = next(one for one in result["quality"]["arms"] if one["arm"] == "random codes")
    assert random["p"] < 0.01
    page = report.markdown(result, "canvas-leaves.json")
    assert "Dead leaves" in page
    assert "may not judge" in page
    assert str(folder) not in json.dumps(result["settings"])
