"""What the image recipe is made of: codebook, training rows, hints, the written encoder, scores."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from sooner_lab.worlds import cards
from sooner_lab.worlds.image import (
    architecture,
    build,
    classifier,
    codes,
    hints,
    patches,
    target,
    words,
    world,
)
from sooner_lab.worlds.image.learn_codes import DirectionAverages

TINY_CODES = architecture.CodesShape(entries=32, dim=4)


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


def test_a_code_depends_on_its_pixels_alone() -> None:
    torch.manual_seed(1)
    model = architecture.build_codes(TINY_CODES).eval()
    patches.write_into(model, patches.PatchEncoder(TINY_CODES))
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
