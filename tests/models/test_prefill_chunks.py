"""A prompt prefilled chunk by chunk leaves what the whole prompt at once would leave."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
import tiny_canvas
from live_memory import LiveMemory
from sooner.decoding.interface import Prompt
from sooner.decoding.runner import Forward, ModelRunner
from sooner.decoding.tree import Tree
from sooner.errors import UnsupportedError
from sooner.methods.guidance import GuidedRunner
from sooner.models import Adapter, adapt

TREES = Tree.from_lists(
    [[11, 22, 33, 44], [12, 23], [13, 24, 35]], [[-1, -1, 0, 1], [-1, 0], [-1, -1, 1]]
)
ROOTS = torch.tensor([7, 8, 9])
LAST = [(family, tiny.kinds(family)[-1]) for family in tiny.FAMILIES]
ROOM = 12


def embedded(family: str, kind: str, rows: int = 3) -> tuple[Adapter, Prompt]:
    adapter = adapt(tiny.model(family))
    return adapter, adapter.embed_prompt(tiny.inputs(family, kind, rows))


def prefilled(adapter: Adapter, prompt: Prompt, chunk: int | None) -> tuple[ModelRunner, Forward]:
    runner = ModelRunner(adapter, prompt.width + ROOM)
    return runner, runner.prefill(prompt, chunk)


def close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def real_slots(runner: ModelRunner) -> list[Tensor]:
    """Keys and values of each layer and row, without what lies behind the row's length."""
    return [
        store[row, :, :length]
        for layer in runner.cache.slot_layers
        for store in layer.stores
        for row, length in enumerate(runner.lengths)
    ]


def same(adapter: Adapter, prompt: Prompt, chunk: int) -> None:
    """Chunked and whole prefill agree on everything that decoding goes on from."""
    whole, expected = prefilled(adapter, prompt, None)
    runner, forward = prefilled(adapter, prompt, chunk)
    close((forward.logits, forward.hidden), (expected.logits, expected.hidden))
    close(real_slots(runner), real_slots(whole))
    assert runner.lengths == whole.lengths == prompt.lengths
    assert torch.equal(runner.next_position, prompt.next_position)


def sizes(width: int) -> list[int]:
    return [1, 3, 7, width - 1, width, width + 5]


@pytest.mark.parametrize(("family", "kind"), LAST)
@torch.no_grad()
def test_a_prompt_in_chunks_of_any_size_is_the_whole_prompt(family: str, kind: str) -> None:
    """Rows of different lengths: shorter ones are complete while the longest still goes on."""
    adapter, prompt = embedded(family, kind)
    assert len(set(prompt.lengths)) == 3
    for chunk in sizes(prompt.width):
        same(adapter, prompt, chunk)


@pytest.mark.parametrize(("family", "kind"), LAST)
@torch.no_grad()
def test_a_ragged_tree_behind_chunks_sees_what_it_sees_behind_a_whole_prompt(
    family: str, kind: str
) -> None:
    adapter, prompt = embedded(family, kind)
    whole, _ = prefilled(adapter, prompt, None)
    runner, _ = prefilled(adapter, prompt, 6)
    expected = whole.forward_tree(ROOTS, TREES).logits
    ours = runner.forward_tree(ROOTS, TREES).logits
    for row, nodes in enumerate(TREES.sizes):
        close(ours[row, : 1 + nodes], expected[row, : 1 + nodes])


@torch.no_grad()
def test_deepstack_features_reach_their_own_tokens_in_every_chunk() -> None:
    """With features on the wrong tokens the prompts above would not agree: swap two and see."""
    adapter, prompt = embedded("qwen3_vl", "mixed")
    _, expected = prefilled(adapter, prompt, 4)
    for features in prompt.extras["deepstack_visual_embeds"]:
        features[[0, 1]] = features[[1, 0]]
    _, swapped = prefilled(adapter, prompt, 4)
    assert (swapped.logits[0] - expected.logits[0]).abs().max() > 1e-3
    close(swapped.logits[1:], expected.logits[1:])


@pytest.mark.parametrize("hook", ["prune_extras", "repeat_extras"])
@torch.no_grad()
def test_extras_are_never_lost(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, prompt = embedded("qwen3_vl", "mixed")
    monkeypatch.setattr(type(adapter), hook, getattr(Adapter, hook))
    change = {
        "prune_extras": lambda: adapter.prune_prompt(prompt, [torch.arange(2)] * prompt.rows),
        "repeat_extras": lambda: adapter.repeat_prompt(prompt, 2),
    }
    with pytest.raises(UnsupportedError, match="deepstack_visual_embeds, visual_pos_masks"):
        change[hook]()


@torch.no_grad()
def test_extras_that_can_not_be_cut_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, prompt = embedded("qwen3_vl", "mixed")
    monkeypatch.setattr(type(adapter), "prune_extras", Adapter.prune_extras)
    with pytest.raises(UnsupportedError, match="deepstack_visual_embeds, visual_pos_masks") as told:
        prefilled(adapter, prompt, 4)
    assert "leave prefill_chunk_size unset" in str(told.value)
    prefilled(adapter, prompt, prompt.width)  # nothing to cut, nothing to refuse


@pytest.mark.parametrize("family", tiny_canvas.GUIDED)
@pytest.mark.parametrize("chunk", [1, 3])
@torch.no_grad()
def test_guided_prompts_can_be_cut(
    family: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are doubled: with their condition, and without."""
    adapter = tiny_canvas.canvas(family)
    decode, entries = adapter.decode, []

    def counted(embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        entries.append(embeds.shape[1])
        return decode(embeds, positions, **kwargs)

    monkeypatch.setattr(adapter, "decode", counted)
    prompt = adapter.embed_prompt(adapter.guided_inputs(tiny_canvas.inputs(family, 3)))
    assert prompt.rows == 6
    results = []
    for size in (None, chunk):
        runner = GuidedRunner(adapter, prompt.width + ROOM, 3.0)
        results.append(runner.prefill(prompt, size))
        tokens = torch.full((3, 2), int(results[0].logits[0].argmax()))
        results.append(runner.forward_chain(tokens))
    assert results[0].logits.shape[0] == 3
    assert entries[0] == prompt.width
    assert max(entries[2:-1]) == chunk
    # What guidance mixes is three times as far apart.
    for ours, theirs in zip(results[2:], results[:2], strict=True):
        torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-4, rtol=1e-4)


# Memory

WIDE, HIDDEN, LONG, CHUNK = 1024, 48, 256, 16
FLOAT = 4


def wide_model() -> Any:
    """A text model whose MLPs are much wider than its states, as those of real ones are."""
    torch.manual_seed(0)
    text = {**tiny.TEXT, "num_hidden_layers": 3, "intermediate_size": WIDE}
    return tiny.BUILDERS["qwen2"](text).eval()


def memory_of(chunk: int | None, width: int = LONG) -> LiveMemory:
    """What one prefill of a prompt allocates besides the weights, the prompt and the cache."""
    adapter = adapt(wide_model())
    prompt = adapter.embed_prompt({"input_ids": torch.ones(1, width, dtype=torch.long)})
    runner = ModelRunner(adapter, width + ROOM)
    runner.prefill(prompt)  # so that the cache is there
    runner.cache.set_lengths([])
    with LiveMemory() as memory:
        runner.prefill(prompt, chunk)
    return memory


@torch.no_grad()
def test_all_that_is_held_at_once_is_that_of_one_chunk_and_the_keys_it_sees() -> None:
    """Keys and values, repeated for each head, and a mask are as long as the prompt, but no wider
    than states and chunk."""
    whole, chunked = memory_of(None), memory_of(CHUNK)
    keys = 2 * LONG * HIDDEN * FLOAT
    mask = CHUNK * LONG * FLOAT
    assert chunked.peak < 3 * CHUNK * WIDE * FLOAT + 2 * keys + 2 * mask
    assert whole.peak > 8 * chunked.peak


def test_the_mask_of_a_later_chunk_is_no_square() -> None:
    runner = ModelRunner(adapt(wide_model()), LONG)
    runner.cache.set_lengths([LONG - CHUNK] * 4)
    with LiveMemory() as memory:
        mask = runner._mask(torch.zeros(4, CHUNK, HIDDEN), None)
    assert mask is not None
    assert mask.shape == (1, 1, CHUNK, LONG)
    assert memory.largest == CHUNK * LONG * FLOAT
