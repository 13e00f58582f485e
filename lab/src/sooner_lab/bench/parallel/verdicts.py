"""Which tokens of a text a draft predicts: acceptance independent of timing and draft length.

Under greedy decoding a draft token is accepted where the draft, having read the text so far, would
say what the target says. That is a property of draft, prompt and text. The run lengths of real runs
follow from it *and* from how long the windows were, so they can't tell criteria of pruning apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch

from sooner.decoding.runner import ModelRunner
from sooner.methods.calls import to_device
from sooner.methods.chain_draft import match_vocabulary, readable
from sooner.methods.parallel.server import pruned
from sooner.methods.visual_match import VisualGrids, views
from sooner.models import adapt


@torch.inference_mode()
def verdicts(
    draft: Any,
    inputs: Mapping[str, Any],
    tokens: Sequence[int],
    vocab: int,
    kept: tuple[list[int], VisualGrids] | None = None,
    repack: bool = False,
) -> list[bool]:
    """For each token behind the first, which the prefill decides: would the draft say it?

    The draft reads the text in one forward behind its pruned prompt.

    Args:
        draft: its model.
        inputs: one prompt, as the draft's processor gives it.
        tokens: what the target said.
        vocab: size of the target's vocabulary.
        kept: the kept ones among the target's visual tokens, and how the target sees them all;
            `None`: all are kept.
        repack: number the kept tokens anew, see `ParallelVLM`.
    """
    if len(tokens) < 2:
        return []
    adapter = adapt(draft)
    prompt = adapter.embed_prompt(to_device(inputs, adapter.device))
    if kept is not None:
        indices, seen = kept
        prompt = pruned(adapter, prompt, [indices], [seen], views(adapter, inputs), repack)
    runner = ModelRunner(adapter, prompt.width + len(tokens))
    runner.prefill(prompt)
    said = torch.tensor([list(tokens)], device=adapter.device)  # [1, tokens]
    logits = runner.forward_chain(readable(said[:, :-1], adapter)).logits
    chosen = match_vocabulary(logits, vocab).argmax(-1)  # [1, tokens - 1]
    return (chosen == said[:, 1:])[0].tolist()


def run_length(texts: Sequence[Sequence[bool]]) -> float | None:
    """The paper's M: mean tokens between two rejections of a text, the target's own included.

    A text's last run, which its end cuts short, counts as `Stats.runs` counts it. `None` where
    nothing was judged.
    """
    lengths = [length for text in texts for length in runs(text)]
    return sum(lengths) / len(lengths) if lengths else None


def runs(text: Sequence[bool]) -> list[int]:
    """Lengths of a text's runs: accepted tokens and the correction behind them."""
    found, length = [], 0
    for right, group in groupby(text):
        many = len(list(group))
        if right:
            length = many
            continue
        found += [length + 1] + [1] * (many - 1)
        length = 0
    return [*found, length] if length else found


def rate(texts: Sequence[Sequence[bool]]) -> float | None:
    """Share of tokens that the draft would say; `None` where nothing was judged."""
    judged = [right for text in texts for right in text]
    return sum(judged) / len(judged) if judged else None
