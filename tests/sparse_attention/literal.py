"""A literal reference of pruning: nothing is taken out, each layer gets an explicit mask instead.

The model runs over the whole prompt and the text at full length, eagerly, so that the attention
weights are its own; a dropped token is one that no later layer lets anybody look at.
"""

from __future__ import annotations

import copy
import functools
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import tiny
from sooner.engine.runner import ModelRunner
from sooner.models import adapt

LAYERS = 6


@functools.cache
def eager(family: str) -> Any:
    """A copy of the six-layer tiny model that shows its attention."""
    copied = copy.deepcopy(tiny.model(family, layers=LAYERS))
    copied.set_attn_implementation("eager")
    return copied


@dataclass
class Reading:
    """One full-length forward.

    Attributes:
        logits: behind the prompt and behind each token but the last, `[tokens, vocab]`.
        attention: of each layer, averaged over heads, `[width, width]`.
        inputs: what entered each layer, `[width, hidden]`.
    """

    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    attention: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)


def read(
    family: str,
    inputs: dict[str, Any],
    tokens: list[int],
    hidden: dict[int, set[int]] | None = None,
    rows: dict[int, dict[int, set[int]]] | None = None,
    states: dict[int, dict[int, Tensor]] | None = None,
) -> Reading:
    """Read a text with tokens hidden.

    Args:
        hidden: layer -> places that nobody sees from that layer on.
        rows: layer -> query place -> places that this query does not see, in that layer alone.
        states: layer -> place -> state that replaces the token's own on entering it.
    """
    model = eager(family)
    adapter, result, handles = adapt(model), Reading(), []
    with torch.inference_mode():
        prompt = adapter.embed_prompt(inputs)
        token_ids = torch.tensor([tokens[:-1]], dtype=torch.long)
        embeds = torch.cat([prompt.embeds, adapter.embed_tokens(token_ids)], 1)
        later = prompt.next_position[..., None] + torch.arange(token_ids.shape[1])
        positions = torch.cat([prompt.positions, later], -1)
        masks = _masks(embeds.shape[1], hidden or {}, rows or {})
        for number, layer in enumerate(adapter.decoder.layers):
            enter = functools.partial(_enter, masks[number], (states or {}).get(number, {}), result)
            handles.append(layer.register_forward_pre_hook(enter, with_kwargs=True))
            keep = functools.partial(_keep, result)
            handles.append(layer.self_attn.register_forward_hook(keep))
        extras = dict(prompt.extras)
        if "visual_pos_masks" in extras:
            text = torch.zeros(1, token_ids.shape[1], dtype=torch.bool)
            extras["visual_pos_masks"] = torch.cat([extras["visual_pos_masks"], text], 1)
        try:
            out = adapter.decode(embeds, positions, attention_mask=None, **extras)
        finally:
            for handle in handles:
                handle.remove()
        result.logits = adapter.logits(out)[0, prompt.width - 1 :]
    return result


def _masks(width: int, hidden: dict, rows: dict) -> list[Tensor]:
    masks = []
    for number in range(LAYERS):
        seen = torch.ones(width, width, dtype=torch.bool).tril()
        for layer, places in hidden.items():
            if layer <= number:
                seen[:, sorted(places)] = False
        for query, places in rows.get(number, {}).items():
            seen[query, sorted(places)] = False
        # A hidden token's own row may see nothing; its state is never looked at again.
        masks.append(torch.zeros(width, width).masked_fill(~seen, torch.finfo().min)[None, None])
    return masks


def _enter(mask: Tensor, states: dict, result: Reading, layer: Any, args: Any, kwargs: Any) -> Any:
    hidden = args[0].clone()
    for place, state in states.items():
        hidden[0, place] = state
    result.inputs.append(hidden[0])
    return (hidden, *args[1:]), {**kwargs, "attention_mask": mask}


def _keep(result: Reading, module: Any, args: Any, output: Any) -> None:
    result.attention.append(output[1][0].mean(0))


@torch.inference_mode()
def forced(
    model: Any,
    inputs: dict[str, Any],
    tokens: list[int],
    prefill: Any = None,
    stepwise: bool = False,
) -> Tensor:
    """Probabilities behind the prompt and behind each of `tokens` but the last, `[tokens, vocab]`.

    Args:
        prefill: of the prompt; plain without one.
        stepwise: the text token by token, instead of as one block.
    """
    with nullcontext() if prefill is None else prefill(model):
        prompt = adapt(model).embed_prompt(inputs)
        runner = ModelRunner(adapt(model), prompt.width + len(tokens))
        logits = [runner.prefill(prompt).logits]
        for block in torch.tensor([tokens[:-1]]).split(1 if stepwise else len(tokens), 1):
            logits.append(runner.forward_chain(block).logits)
            runner.commit([list(range(block.shape[1]))])
    return torch.cat(logits, 1)[0].float().softmax(-1)
