"""A prompt prefilled chunk by chunk leaves what the whole prompt at once would leave."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
import tiny_canvas
from sooner.engine.interface import Prompt
from sooner.engine.runner import Forward, ModelRunner
from sooner.errors import UnsupportedError
from sooner.methods.guidance import GuidedRunner
from sooner.models import Adapter, adapt

ROOM = 12


def embedded(family: str, kind: str, rows: int = 3) -> tuple[Adapter, Prompt]:
    adapter = adapt(tiny.model(family))
    return adapter, adapter.embed_prompt(tiny.inputs(family, kind, rows))


def prefilled(adapter: Adapter, prompt: Prompt, chunk: int | None) -> tuple[ModelRunner, Forward]:
    runner = ModelRunner(adapter, prompt.width + ROOM)
    return runner, runner.prefill(prompt, chunk)


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
    with pytest.raises(
        UnsupportedError, match="deepstack_visual_embeds, visual_pos_masks"
    ) as caught:
        prefilled(adapter, prompt, 4)
    assert "leave prefill_chunk_size unset" in str(caught.value)
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
    for ours, reference in zip(results[2:], results[:2], strict=True):
        torch.testing.assert_close(ours.logits, reference.logits, atol=1e-4, rtol=1e-4)
