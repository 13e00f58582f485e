"""`sooner train draft --format dflash`: blocks, their loss, and a training that goes on."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import sooner
import tiny
from sooner.methods.dflash.model import DFlashModel
from sooner.methods.trained import load_for
from sooner.models import adapt
from sooner.tasks.train_draft.blocks import (
    BlockTask,
    denoise_blocks,
    drafter_config,
)
from sooner.tasks.train_draft.recording import DataSet, record
from sooner.tasks.train_draft.settings import BlockTraining, make_recipe
from sooner.tasks.train_draft.training import train

RECIPE = BlockTraining(
    steps=6, warmup=1, batch=4, layers=1, block_size=5, anchors=3, decay=2.0, save_every=3
)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    model = tiny.model("llama")
    batches = [tiny.inputs("llama", "text", 4, seed=seed) for seed in range(2)]
    layers = drafter_config(RECIPE, adapt(model)).layers
    folder: Path = tmp_path_factory.mktemp("recording")
    return record(model, batches, folder, 12, layers=layers, eos_token_id=None)


def test_a_block_sees_nothing_after_its_anchor(recording: DataSet) -> None:
    """Changed states and tokens from the anchor on change no marginal."""
    model, adapter = tiny.block_drafter("llama", 5), adapt(tiny.model("llama"))
    batch = BlockTask(model, adapter, replace(RECIPE, anchors=1)).batch([recording[0]], 2)
    width = model.fc.in_features
    batch.states.resize_(1, batch.states.shape[1], width).normal_()
    anchor = int(batch.anchors[0, 0])
    with torch.no_grad():
        before = denoise_blocks(model, adapter, batch)
        batch.states[:, anchor:] += 1.0
        torch.testing.assert_close(denoise_blocks(model, adapter, batch), before)
        batch.states[:, anchor - 1] += 1.0
        assert not torch.allclose(denoise_blocks(model, adapter, batch), before)


def test_blocks_side_by_side_do_not_mix(recording: DataSet) -> None:
    """Two blocks give what each gives alone, also where convolutions mix entries of a block."""
    recipe, adapter = replace(RECIPE, format="dflash2", chain_rank=4), adapt(tiny.model("llama"))
    model = DFlashModel(drafter_config(recipe, adapter)).eval()
    for name, weight in model.named_parameters():
        if "conv" in name or "codebook" in name:
            weight.data.normal_(0, 0.3)
    batch = BlockTask(model, adapter, recipe).batch([recording[0]], 2)
    with torch.no_grad():
        together = denoise_blocks(model, adapter, batch)
        for block in range(batch.anchors.shape[1]):
            here = slice(block, block + 1)
            alone = replace(batch, anchors=batch.anchors[:, here], targets=batch.targets[:, here])
            torch.testing.assert_close(denoise_blocks(model, adapter, alone), together[:, here])


@pytest.mark.parametrize("kind", ["dflash", "dflash2", "dspark", "domino"])
def test_drafters_learn_in_float32_beside_a_target_in_bfloat16(
    kind: str, recording: DataSet
) -> None:
    recipe = replace(RECIPE, format=kind, chain_rank=4)
    adapter = adapt(copy.deepcopy(tiny.model("llama")).bfloat16())
    task = BlockTask(DFlashModel(drafter_config(recipe, adapter)), adapter, recipe)
    task(task.batch([recording[0]], 0))["loss"].backward()
    gradients = [weight.grad for weight in task.head.parameters() if weight.grad is not None]
    assert gradients
    assert all(each.isfinite().all() for each in gradients)


def test_an_interrupted_training_ends_as_a_whole_training(
    recording: DataSet, tmp_path: Path
) -> None:
    model = tiny.model("llama")
    whole = train(model, recording, tmp_path / "whole", RECIPE, progress=False)
    train(model, recording, tmp_path / "part", RECIPE, progress=False, stop_after=2)
    parts = train(model, recording, tmp_path / "part", RECIPE, progress=False)
    for parameter, other in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(parameter, other, rtol=0, atol=0)
    read = load_for("dflash", tmp_path / "part" / "head")
    assert read.config.provenance["step"] == 6
    made = sooner.generate(
        model, tiny.inputs("llama"), sooner.load_drafter(tmp_path / "part" / "head"),
        max_new_tokens=6, do_sample=False, eos_token_id=None,
    )  # fmt: skip
    assert len(made.tokens[0]) == 6


@pytest.mark.parametrize("kind", ["dflash2", "dspark", "domino"])
def test_a_chain_head_learns_what_the_token_before_a_place_says(
    kind: str, recording: DataSet, tmp_path: Path
) -> None:
    recipe = replace(
        RECIPE, format=kind, steps=60, lr=5e-3, warmup=4, anchors=8, chain_rank=8, holdout=0.01
    )
    model, losses = tiny.model("llama"), list[float]()
    head = train(
        model, recording, tmp_path, recipe, progress=False,
        on_step=lambda entry: losses.append(entry["loss"]),
    )  # fmt: skip
    assert losses[-1] < 0.8 * losses[0]
    assert head.config.drafts == recipe.block_size - (kind == "dflash2")
    learnt = [weight for name, weight in head.named_parameters() if "chain." in name]
    assert learnt
    assert all((weight != 0).any() for weight in learnt)
    read = load_for("dflash", tmp_path / "head")
    assert read.config.chain == head.config.chain
    for name, weight in head.state_dict().items():
        assert torch.equal(weight, read.state_dict()[name]), name


def test_a_state_from_before_a_setting_goes_on(recording: DataSet, tmp_path: Path) -> None:
    model = tiny.model("llama")
    train(model, recording, tmp_path, RECIPE, progress=False, stop_after=2)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    del state["settings"]["chain_rank"], state["settings"]["format"]
    torch.save(state, tmp_path / "state.pt")
    assert train(model, recording, tmp_path, RECIPE, progress=False).config.provenance["step"] == 6
    with pytest.raises(sooner.SoonerError, match="was trained with other settings"):
        train(model, recording, tmp_path, replace(RECIPE, chain_rank=3), progress=False)


def test_settings_of_blocks_are_read_by_their_format() -> None:
    recipe = make_recipe("dflash", {"block_size": 8, "steps": 900, "layers": (3,)})
    assert isinstance(recipe, BlockTraining)
    assert (recipe.block_size, recipe.steps, recipe.layers) == (8, 900, 3)
    with pytest.raises(sooner.SoonerError, match="unroll"):
        make_recipe("dflash", {"unroll": 3})
    with pytest.raises(sooner.SoonerError, match="give one number"):
        make_recipe("dflash", {"layers": (1, 2, 3)})
    with pytest.raises(sooner.SoonerError, match="--chain-rank is of formats dflash2"):
        make_recipe("dflash", {"chain_rank": 4})
    recipe = make_recipe("domino", {"chain_rank": 4})
    assert (recipe.format, drafter_config(recipe, adapt(tiny.model("llama"))).drafts) == (
        "domino", 16
    )  # fmt: skip
    with pytest.raises(sooner.SoonerError, match="layout is 'speculators', which format 'dspark'"):
        make_recipe("dspark", {"layout": "speculators"})
    with pytest.raises(sooner.SoonerError, match="block_size"):
        BlockTraining(block_size=1)


def test_layers_are_spread_as_the_authors_spread_them() -> None:
    assert BlockTraining(layers=5).recorded_layers(36) == (2, 10, 18, 26, 34)
    assert BlockTraining(layers=2).recorded_layers(4) == (2, 3)
    assert BlockTraining(layers=1).recorded_layers(4) == (2,)
