"""Measures how well the AR model predicts the codes of true clips."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional

from sooner.models.clip_tokenizer import MotionTokenizer
from sooner.models.cosmos_ar.model import CosmosARForCausalLM

from . import world


def load_target(folder: Path | str) -> CosmosARForCausalLM:
    """The AR model of a checkpoint folder, in fp32."""
    return CosmosARForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def load_tokenizer(folder: Path | str) -> MotionTokenizer:
    """The tokenizer of a checkpoint folder, in fp32."""
    return MotionTokenizer.from_pretrained(folder, dtype=torch.float32).eval()


def to_pixels(frames: torch.Tensor) -> torch.Tensor:
    """Return uint8 frames `[rows, frames, H, W, 3]` as pixels `[rows, 3, frames, H, W]`, ±1."""
    return frames.permute(0, 4, 1, 2, 3).float() / 127.5 - 1


@torch.no_grad()
def foresight(model: CosmosARForCausalLM, codes: torch.Tensor) -> dict[str, float]:
    """How well true codes [rows, t, h, w] are predicted, over the latent frames to generate.

    Returns:
        Means a token: `nats` (cross-entropy), `entropy` of the model's distribution (nats),
        `entropy_top_p` of the same after nucleus filtering at the checkpoint's `top_p`,
        `certain` (share of tokens whose nucleus is a single code) and `top_1` (accuracy).
    """
    was = model.training
    model.eval()
    flat = codes.flatten(1)
    logits = model(input_ids=flat, use_cache=False).logits.float()
    model.train(was)
    begin = prefix_length(codes.shape)
    targets, logits = flat[:, begin:], logits[:, begin - 1 : -1]
    chances = logits.softmax(-1)
    nucleus = top_p(chances, model.generation_config.top_p or 1.0)
    return {
        "nats": float(functional.cross_entropy(logits.flatten(0, 1), targets.flatten())),
        "entropy": float(_entropy(chances).mean()),
        "entropy_top_p": float(_entropy(nucleus).mean()),
        "certain": float((nucleus.max(-1).values > 0.999).float().mean()),
        "top_1": float((logits.argmax(-1) == targets).float().mean()),
    }


def prefix_length(shape: tuple[int, ...]) -> int:
    """Tokens of the frames that are given, for codes of `shape` [rows, t, h, w]."""
    group = (world.FRAMES - 1) // (shape[1] - 1)
    return (1 + (world.PREFIX - 1) // group) * shape[2] * shape[3]


def top_p(chances: torch.Tensor, share: float) -> torch.Tensor:
    """The fewest most likely codes that together reach `share`, renormalised: [..., vocab]."""
    ordered, order = chances.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    nucleus = torch.where(before < share, ordered, 0.0)
    nucleus = nucleus / nucleus.sum(-1, keepdim=True)
    return torch.zeros_like(chances).scatter(-1, order, nucleus)


def _entropy(chances: torch.Tensor) -> torch.Tensor:
    return -(chances * chances.clamp(min=1e-20).log()).sum(-1)
