"""Quality of the image miniature: attributes of its pictures, and entropy of its codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from . import target, world


def generate(
    model: Any,
    processor: Any,
    captions: Sequence[str],
    *,
    seed: int = 0,
    guidance: float | None = None,
    batch: int = 32,
) -> torch.Tensor:
    """Codes drawn by HF's own `generate` in image mode, `[captions, tokens]`.

    Args:
        model: the decoder.
        processor: its processor.
        captions: prompts.
        seed: of the sampling; torch's global generator is left as it was.
        guidance: classifier-free guidance scale; None is the checkpoint's, 1 is none.
        batch: captions at once.
    """
    # At 1 HF skips guidance but not the doubled batch, and fails; a hair above is the same.
    options = {} if guidance is None else {"guidance_scale": max(guidance, 1 + 1e-6)}
    made = []
    with torch.random.fork_rng(devices=[]):  # HF samples from the global generator
        torch.manual_seed(seed)
        for begin in range(0, len(captions), batch):
            inputs = processor(
                text=list(captions[begin : begin + batch]),
                generation_mode="image", padding=True, return_tensors="pt",
            )  # fmt: skip
            made.append(model.generate(**inputs, generation_mode="image", **options))
    return torch.cat(made)


def pixels(model: Any, codes: torch.Tensor, batch: int = 64) -> torch.Tensor:
    """Pictures of codes in 0..1, `[n, 3, side, side]`."""
    with torch.no_grad():
        made = [model.decode_image_tokens(some) for some in codes.split(batch)]
    return (torch.cat(made) / 2 + 0.5).clamp(0, 1).permute(0, 3, 1, 2).contiguous()


@torch.no_grad()
def openness(
    model: Any,
    pictures: Sequence[world.Picture],
    codes: torch.Tensor,
    guidance: float,
    batch: int = 32,
) -> dict[str, float]:
    """Cross-entropy and entropy of the model along given codes, in nats a token.

    Args:
        model: the decoder.
        pictures: whose captions are the prompts.
        codes: `[pictures, tokens]`.
        guidance: scale of the guided distribution.
        batch: pictures at once.

    Returns:
        "loss", the mean of -log p(code) under the caption; "entropy" of that distribution;
        "entropy_guided" of softmax(u + guidance (c - u)), c and u the logits with caption
        and without; "top_guided", the mean probability of the guided distribution's first code.
    """
    captions, parts = target.PaddedCaptions(), []
    for begin in range(0, len(pictures), batch):
        some, subset = codes[begin : begin + batch], list(pictures[begin : begin + batch])
        sides = []
        for blank in (False, True):
            prompt = captions.rows(subset, [blank] * len(subset))
            sides.append(target.predict(model, prompt, captions.mask(prompt), some).float())
        conditional, unsaid = sides  # [rows, tokens, entries]
        guided = functional.log_softmax(unsaid + guidance * (conditional - unsaid), dim=-1)
        plain = functional.log_softmax(conditional, dim=-1)
        parts.append(
            torch.stack([
                -plain.gather(-1, some[..., None])[..., 0], _entropy(plain), _entropy(guided),
                guided.max(-1).values.exp(),
            ])
        )  # fmt: skip
    mean = torch.cat(parts, dim=1).mean(dim=(1, 2)).tolist()  # over rows and tokens
    return dict(zip(("loss", "entropy", "entropy_guided", "top_guided"), mean, strict=True))


def _entropy(logs: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of log-probabilities over the last axis."""
    return -(logs.exp() * logs).sum(-1)
