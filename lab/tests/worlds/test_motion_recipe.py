"""What the motion recipes are made of: tokenizer, codebook, waking layers, hints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner.models.clip_tokenizer import (
    MotionTokenizer,
    MotionTokenizerConfig,
)
from sooner_lab.worlds.motion import (
    architecture,
    evaluate,
    hints,
    learn_target,
    world,
)
from sooner_lab.worlds.motion.learn_tokenizer import CodebookAverages
from sooner_lab.worlds.motion.pixels import to_pixels

# --- the tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> MotionTokenizer:
    torch.manual_seed(0)
    fresh = MotionTokenizer(MotionTokenizerConfig(channels=24, codes=64)).eval()
    with torch.no_grad():  # codes where a fresh encoder's latents are
        fresh.codebook.weight.mul_(0.2)
    return fresh


def test_nothing_hangs_on_later_frames(tokenizer: MotionTokenizer) -> None:
    frames = torch.from_numpy(np.stack([world.film(1, index)[1] for index in range(2)]))
    pixels = to_pixels(frames)
    codes = tokenizer.encode(pixels)
    assert codes.shape == (2, *tokenizer.config.latent_shape(world.FRAMES)) == (2, 9, 10, 12)
    assert codes.unique().numel() > 8
    painted = tokenizer.decode(codes)
    assert painted.shape == pixels.shape
    for length, latents in ((1, 1), (9, 3), (29, 8)):
        assert torch.equal(tokenizer.encode(pixels[:, :, :length]), codes[:, :latents])
        alone = tokenizer.decode(codes[:, :latents])
        torch.testing.assert_close(alone, painted[:, :, :length], rtol=0, atol=1e-5)
    other = pixels.clone()
    other[:, :, 9:] = -other[:, :, 9:]
    assert torch.equal(tokenizer.encode(other)[:, :3], codes[:, :3])
    # And what comes before does matter to the decoder.
    assert not torch.allclose(tokenizer.decode(codes[:, 1:])[:, :, 1:5], painted[:, :, 5:9])


def test_pixels_and_blocks_stay_in_place(tokenizer: MotionTokenizer) -> None:
    """A changed block changes its own code alone."""
    pixels = to_pixels(torch.from_numpy(world.film(1, 0)[1][None, :9]))
    latent = tokenizer.embed(pixels)
    other = pixels.clone()
    other[:, :, 5:9, 8:12, 20:24] *= -1  # latent frame 2, row 2, column 5
    moved = (tokenizer.embed(other) != latent).any(-1)[0].nonzero().tolist()
    assert moved == [[2, 2, 5]]


def test_wrong_clips_are_named(tokenizer: MotionTokenizer) -> None:
    with pytest.raises(SoonerError, match=r"10 frames.*1 \+ 4 \* n"):
        tokenizer.encode(torch.zeros(1, 3, 10, 40, 48))
    with pytest.raises(SoonerError, match=r"48 x 40 pixels.*scale them to 40 x 48"):
        tokenizer.encode(torch.zeros(1, 3, 9, 48, 40))


def test_dead_codes_move_to_the_data() -> None:
    averages = CodebookAverages(4, 2)
    averages.begin(torch.zeros(4, 2))
    averages.count[:] = torch.tensor([1.0, 0.001, 1.0, 0.01])
    latent = torch.full((5, 2), 7.0)
    assert averages.revive(latent, np.random.default_rng(0)) == 2
    assert averages.book().tolist() == [[0, 0], [7, 7], [0, 0], [7, 7]]


# --- the AR model


def test_waking_keeps_the_function() -> None:
    torch.manual_seed(0)
    shape = architecture.MotionShape(6, 32, 2, 1, 32, 50, (9, 10, 12))
    model = architecture.build_model(shape).eval()
    architecture.sleep(model, architecture.spread(2, 6))
    assert list(architecture.awake(model)) == [0, 3]
    ids = torch.randint(0, 50, (2, 200))
    before = model(input_ids=ids, use_cache=False).logits
    architecture.wake(model, architecture.spread(4, 6))
    assert list(architecture.awake(model)) == [0, 1, 3, 4]
    architecture.wake(model, range(6))
    after = model(input_ids=ids, use_cache=False).logits
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    first = model(input_ids=ids[:, :150], use_cache=True)
    rest = model(input_ids=ids[:, 150:], past_key_values=first.past_key_values)
    torch.testing.assert_close(rest.logits, before[:, 150:], rtol=1e-3, atol=1e-4)
    after.square().mean().backward()
    assert model.model.layers[5].self_attn.o_proj.weight.grad.abs().sum() > 0
    with pytest.raises(SoonerError, match="7 layers can't be awake of 6"):
        architecture.spread(7, 6)


def test_shallow_checkpoints_are_written_whole(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = architecture.build_model(
        architecture.MotionShape(4, 32, 2, 1, 32, 50, (9, 10, 12))
    ).eval()
    architecture.sleep(model, [0, 2])
    learn_target.write(model, tmp_path)
    loaded = evaluate.load_target(tmp_path)
    assert list(architecture.awake(loaded)) == [0, 1, 2, 3]
    assert (loaded.generation_config.top_p, loaded.generation_config.do_sample) == (0.8, True)
    ids = torch.randint(0, 50, (1, 100))
    torch.testing.assert_close(
        loaded(input_ids=ids).logits, model(input_ids=ids, use_cache=False).logits,
        rtol=0.02, atol=0.02,
    )  # fmt: skip


def test_shapes_pass_where_they_are_drawn() -> None:
    for clip in (world.clip(3, 0), world.clip(3, 1, 1)):
        bare = world.MotionClip(clip.background, clip.texture, ())
        drawn = (world.render(clip, None) != world.render(bare, None)).any(-1)  # [33, H, W]
        groups = [drawn[:1], *(drawn[begin : begin + 4] for begin in range(1, 33, 4))]
        blocks = np.stack([group.any(0).reshape(10, 4, 12, 4).any((1, 3)) for group in groups])
        passed = np.any([learn_target.passes(m, (9, 10, 12)) for m in clip.movers], axis=0)
        assert passed[blocks].all()
        assert blocks[passed].mean() > 0.7  # the rest are corners that the shapes don't fill


def test_hints_name_what_is_where() -> None:
    mover = world.Mover("square", "blue", (14, 22), (1, -1))
    other = world.Mover("circle", "red", (34, 34), (0, 0))
    clip = world.MotionClip("sand", 1, (mover, other))
    passed = [learn_target.passes(each, (9, 10, 12)) for each in clip.movers]
    labels = hints.label(clip, (9, 10, 12), passed)
    assert torch.equal(labels[..., 0] != hints.ABSENT, passed[0] | passed[1])
    x, y = mover.at(4)  # the last frame of the second latent frame
    assert labels[1, y // 4, x // 4].tolist() == [1, 2, 2, 0, hints.REACH, hints.REACH]
    assert labels[1, y // 4, x // 4 - 1].tolist()[4:] == [hints.REACH - 1, hints.REACH]
    assert labels[1, 8, 8].tolist() == [0, 0, 1, 1, hints.REACH, hints.REACH]
    bounced = next(frame for frame in range(33) if mover.heading(frame)[1] == 1)
    latent = -(-bounced // 4)
    x, y = mover.at(4 * latent)
    assert labels[latent, y // 4, x // 4, 3] == 2  # downwards after the wall


def test_hints_count_named_blocks_alone() -> None:
    head = hints.MoverHeads(4)
    states = torch.randn(2, 3, 4)
    labels = torch.full((2, 3, 6), hints.ABSENT, dtype=torch.int8)
    assert float(head(states, labels)) == 0
    labels[1, 2] = torch.tensor([2, 3, 0, 1, 6, 0])
    logits = head.linear(states[1, 2]).split(hints.HEADS)
    picked = zip(logits, labels[1, 2].tolist(), strict=True)
    expected = -sum(each.log_softmax(0)[at] for each, at in picked) / 6
    torch.testing.assert_close(head(states, labels), expected)


def test_nucleus() -> None:
    chances = torch.tensor([[0.1, 0.5, 0.25, 0.15]])
    torch.testing.assert_close(evaluate.top_p(chances, 0.6), torch.tensor([[0, 2 / 3, 1 / 3, 0]]))
    torch.testing.assert_close(evaluate.top_p(chances, 0.5), torch.tensor([[0.0, 1, 0, 0]]))
    torch.testing.assert_close(evaluate.top_p(chances, 1.0), chances)
