"""How far a lossy run is from the model itself: the acceptance ratio of ParallelVLM's table 2 at
temperature 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from sooner.engine.runner import ModelRunner
from sooner.errors import SoonerError
from sooner.methods.context import to_device
from sooner.models import adapt


@torch.inference_mode()
def acceptance_ratio(model: Any, inputs: Mapping[str, Any], tokens: Sequence[int]) -> float:
    """Return the share of a text's tokens that are the model's own argmax behind the same prefix.

    The prompt is prefilled and the text is one block behind it, at the positions that incremental
    decoding gives it.

    Args:
        model: the target, without any context around it.
        inputs: the prompt that the text was generated from, one row.
        tokens: the new tokens, which were chosen greedily by a lossy run.

    Raises:
        SoonerError: no tokens, or more than one prompt.
    """
    adapter = adapt(model)
    model_inputs = to_device(inputs, adapter.device)
    rows = model_inputs["input_ids"].shape[0]
    if rows != 1 or not len(tokens):
        raise SoonerError(
            f"fidelity reads one text behind one prompt, but got {len(tokens)} tokens and {rows} "
            "prompts; call it once for each"
        )
    prompt = adapter.embed_prompt(model_inputs)
    runner = ModelRunner(adapter, prompt.width + len(tokens))
    logits = [runner.prefill(prompt).logits]
    ids = torch.as_tensor(tokens, device=adapter.device)
    if len(tokens) > 1:
        logits.append(runner.forward_chain(ids[None, :-1]).logits)
    chosen = torch.cat(logits, 1)[0].argmax(1)  # [tokens]
    return float((chosen == ids).float().mean())
