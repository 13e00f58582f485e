"""Tells for which target a head was trained.

A head is of use to the very target whose states it learnt from. What tells that target from a
fine-tuned one must not tell it from itself in another number format, so three things are compared:

1. The shapes.
2. 64 weights of every matrix of the decoder, of the embedding and of the LM head, as the modules
   apply them (`matrices.py`), and 8 of every norm. A weight may be off by what the number format
   explains: the rounding of bf16; for 8 bits also half a step, which is the largest weight of its
   row over 254. Which format it is follows from what most of the matrices show. Any float and int8
   so pass for certain. A LoRA of rank 8 in one matrix moves some of its 64 weights farther, as
   soon as its update has one per cent of the matrix's norm (of an int8 target; a tenth of that of
   a float one).
3. The logits of a fixed probe of 32 tokens through the text decoder, for whatever is no matrix
   (attention, rotary base, scales). They may be off by `LOGITS`, ten times what int8 does. They
   alone could not tell a LoRA: it may move them by a hundredth of what int8 does (`docs/act.md`
   has the measurement).

Weights in formats coarser than 8 bits get an allowance of 4 bits, behind which a small LoRA hides.
"""

from __future__ import annotations

import base64
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...engine.interface import Prompt
from ...engine.runner import ModelRunner
from ...errors import SoonerError
from .matrices import WeightSample, is_quantised, sample_matrices

FORMATS = {"float": 0.0, "8-bit": 1 / 254, "4-bit": 0.16}
"""Half the widest step of a number format, in shares of the row's largest weight: of symmetric
int8, and of NF4, whose last step goes from 0.696 to 1."""
PLAIN_FORMATS = ("float", "8-bit")
"""Formats of plain floats, which may have been rounded to 8 bits before."""
ROUNDING = 2.0**-8
"""The tolerance of bf16, twice: when the weight was stored and when its module multiplied by it."""
SMALLEST = torch.finfo(torch.float32).tiny
LOGITS = 0.3
"""Root mean square by which probe logits may be off, in shares of their own: ten times what int8
does, as bf16 alone does 0.22 to a target with biases of 100 on its keys."""
PROBE = 32
"""Tokens of the probe."""
VOCABULARY = 16
"""Logits that are kept of each of its places."""

SHAPES = ("model_type", "hidden_size", "layers", "vocab_size")


def fingerprint(adapter: Any) -> dict[str, Any]:
    """What a head depends on: the target's shapes, samples of its matrices, logits of a probe.

    Args:
        adapter: the target's adapter.
    """
    samples = sample_matrices(adapter, with_largest=True)
    return {
        **_shapes(adapter),
        "quantised": is_quantised(adapter),
        "matrices": {name: sample.encode() for name, sample in samples.items()},
        "logits": base64.b64encode(probe_logits(adapter).numpy().astype("<f4").tobytes()).decode(),
    }


def check_target(trained_for: dict[str, Any], adapter: Any) -> None:
    """Refuse a target that a head was not trained for.

    Args:
        trained_for: fingerprint in the head's config.
        adapter: of the target at hand.

    Raises:
        SoonerError: names what differs.
    """
    apart = differences(trained_for, adapter)
    if apart:
        more = f"; and {len(apart) - 3} more" if len(apart) > 3 else ""
        raise SoonerError(
            f"draft head was trained for another target ({'; '.join(apart[:3])}{more}); give that "
            "target, or train a head with `sooner train draft --model ...`"
        )


def differences(trained_for: dict[str, Any], adapter: Any) -> list[str]:
    """In what a target differs from the one with this fingerprint; empty where it is the same."""
    shapes = _shapes(adapter)
    apart = [
        f"{name} {trained_for[name]}, not {shapes[name]}"
        for name in SHAPES
        if trained_for.get(name) != shapes[name]
    ]
    if apart:
        return apart
    if "matrices" not in trained_for:
        return ["the head is of sooner 0.1 and knows too little of its target; train it again"]
    ours = {name: WeightSample.decode(text) for name, text in trained_for["matrices"].items()}
    samples = sample_matrices(adapter, with_largest=False)
    if lacking := [f"no {name}" for name in ours if name not in samples]:
        return lacking
    known = list(FORMATS) if trained_for["quantised"] or is_quantised(adapter) else PLAIN_FORMATS
    # Norms stay floats, and zeros (of a layer that does nothing) are the same in any format.
    telling = [
        name for name, sample in ours.items() if len(sample.largest) > 1 and sample.largest.any()
    ]
    for kind in known:
        excess = _excess(ours, samples, FORMATS[kind])
        if median(excess[name] for name in telling or ours) <= 1:
            break
    names = sorted((name for name in excess if excess[name] > 1), key=lambda name: -excess[name])
    if names or kind == "4-bit":  # which moves logits too far for a comparison
        return [f"{name} is off by {excess[name]:.1f} times {kind} rounding" for name in names]
    off = _logits_off(trained_for, adapter)
    return [f"probe logits are off by {off:.1%}, not {LOGITS:.0%} at most"] if off > LOGITS else []


@torch.no_grad()
def probe_logits(adapter: Any) -> Tensor:
    """Returns logits of `PROBE` fixed tokens at `VOCABULARY` fixed ids, `[PROBE, VOCABULARY]` fp32.

    The tokens are spread over the vocabulary, without those that stand for pixels, and go through
    the text decoder as a prompt of text alone. Each place's mean, which no token depends on, is
    taken out.
    """
    ids = [token for token in range(adapter.vocab_size) if token not in adapter.visual_ids]
    chosen = torch.tensor(ids)[torch.linspace(0, len(ids) - 1, PROBE).long()]
    tokens = chosen[None].to(adapter.device)
    prompt = adapter.embed_prompt({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)})
    outputs: list[Tensor] = []

    def keep(prompt: Prompt, start: int, states: Tensor) -> None:
        outputs.append(states)

    ModelRunner(adapter, PROBE).prefill(prompt, on_states=keep)
    logits = adapter.logits(outputs[0]).float()[0]  # [PROBE, vocab]
    logits = logits - logits.mean(-1, keepdim=True)
    columns = torch.linspace(0, logits.shape[-1] - 1, VOCABULARY).long()
    return logits[:, columns.to(logits.device)].cpu()


def _shapes(adapter: Any) -> dict[str, Any]:
    return {
        "model_type": str(adapter.config.model_type),
        "hidden_size": int(adapter.text_config.hidden_size),
        "layers": adapter.layers,
        "vocab_size": adapter.vocab_size,
    }


def _excess(
    ours: dict[str, WeightSample], reference: dict[str, WeightSample], step: float
) -> dict[str, float]:
    """Largest difference of each matrix's samples, in shares of what a half `step` allows."""
    excess = {}
    for name, sample in ours.items():
        other = reference[name]
        if sample.weights.shape != other.weights.shape:
            excess[name] = float("inf")
            continue
        blurred = ROUNDING * sample.weights.abs() + (sample.noise + other.noise)[:, None]
        allowed = (step * sample.largest[:, None] + blurred).clamp(min=SMALLEST)
        excess[name] = float(((sample.weights - other.weights).abs() / allowed).max())
    return excess


def _logits_off(trained_for: dict[str, Any], adapter: Any) -> float:
    data = np.frombuffer(base64.b64decode(trained_for["logits"]), "<f4").copy()
    ours = torch.from_numpy(data).view(PROBE, -1)
    return float((probe_logits(adapter) - ours).norm() / ours.norm())
