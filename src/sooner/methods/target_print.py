"""Compares the target at hand with the one that a head was trained for.

A head of another target only drafts badly, so what is compared is cheap: the shapes, and the logits
of a fixed probe. They tell another checkpoint from the same one in another number format; a target
with a small LoRA passes.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..engine.interface import Prompt
from ..engine.runner import ModelRunner
from ..errors import SoonerError

LOGITS = 0.3
"""Root mean square by which probe logits may be off, in shares of their own: ten times what int8
does, as bf16 alone does 0.22 to a target with biases of 100 on its keys."""
PROBE = 32
"""Tokens of the probe."""
VOCABULARY = 16
"""Logits that are kept of each of its places."""


def fingerprint(adapter: Any) -> dict[str, Any]:
    """Returns what a head depends on: the target's shapes, and logits of a probe."""
    logits = base64.b64encode(probe_logits(adapter).numpy().astype("<f4").tobytes()).decode()
    return {**_shapes(adapter), "logits": logits}


def check_target(trained_for: dict[str, Any], adapter: Any) -> None:
    """Refuse a target that a head was not trained for, by the fingerprint in the head's config.

    Raises:
        SoonerError: names what differs.
    """
    if apart := differences(trained_for, adapter):
        raise SoonerError(
            f"draft head was trained for another target ({'; '.join(apart)}); give that target, or "
            "train a head with `sooner train draft --model ...`"
        )


def differences(trained_for: dict[str, Any], adapter: Any) -> list[str]:
    """Returns in what a target differs from the one with this fingerprint."""
    apart = [
        f"{name} {trained_for.get(name)}, not {value}"
        for name, value in _shapes(adapter).items()
        if trained_for.get(name) != value
    ]
    # Formats of 4 bits move logits too far for a comparison.
    if apart or "logits" not in trained_for or getattr(adapter.model, "is_quantized", False):
        return apart
    data = np.frombuffer(base64.b64decode(trained_for["logits"]), "<f4").copy()
    expected = torch.from_numpy(data).view(PROBE, -1)
    off = float((probe_logits(adapter) - expected).norm() / expected.norm())
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
