"""Cards of the trained parts: how good each is, how large, how it came about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from sooner.models.clip_tokenizer import MotionTokenizer
from sooner.models.cosmos_ar.model import CosmosARForCausalLM

from .. import cards
from . import evaluate, world
from . import probe as probing
from .pixels import to_pixels

CLIPS = 64


@torch.no_grad()
def tokenizer_figures(tokenizer: MotionTokenizer, clips: int) -> dict[str, float]:
    """Reconstruction of held-out clips and use of the codebook.

    Returns:
        `psnr` against the clip as filmed and `psnr_clean` against the same clip without grain
        (dB); `codes_used` (share of the codebook) and `perplexity` (of the codes' frequencies).
    """
    noisy_error = clean_error = 0.0
    counts = torch.zeros(tokenizer.config.codes)
    for index in range(clips):
        clip, frames = world.film(world.TEST_SEED, index)
        pixels = to_pixels(torch.from_numpy(frames)[None])
        clean = to_pixels(torch.from_numpy(world.render(clip, None))[None])
        codes = tokenizer.encode(pixels)
        painted = tokenizer.decode(codes)
        noisy_error += float((painted - pixels).square().mean()) / clips
        clean_error += float((painted - clean).square().mean()) / clips
        counts += torch.bincount(codes.flatten(), minlength=len(counts))
    share = counts / counts.sum()
    entropy = float(-(share * share.clamp(min=1e-12).log()).sum())
    return {
        "psnr": round(10 * float(np.log10(4 / noisy_error)), 2),
        "psnr_clean": round(10 * float(np.log10(4 / clean_error)), 2),
        "codes_used": round(float((counts > 0).float().mean()), 4),
        "perplexity": round(float(np.exp(entropy)), 1),
    }


def holdout(clips: int) -> tuple[list[world.MotionClip], torch.Tensor]:
    """Held-out clips and their frames, uint8 [clips, 33, H, W, 3]."""
    drawn = [world.film(world.TEST_SEED, index) for index in range(clips)]
    return [clip for clip, _ in drawn], torch.from_numpy(np.stack([film for _, film in drawn]))


def probe_figures(
    probe: probing.MotionProbe, tokenizer: MotionTokenizer, clips: int
) -> dict[str, float]:
    """The probe on held-out clips, through the tokenizer and (`filmed_*`) as filmed."""
    drawn, frames = holdout(clips)
    pixels = to_pixels(frames)
    decoded = probing.accuracy(probe, tokenizer.decode(tokenizer.encode(pixels)), drawn)
    filmed = probing.accuracy(probe, pixels, drawn)
    figures = {**decoded, **{f"filmed_{name}": value for name, value in filmed.items()}}
    return {name: round(value, 4) for name, value in figures.items()}


def target_figures(
    model: CosmosARForCausalLM,
    tokenizer: MotionTokenizer,
    probe_folder: Path | None,
    clips: int = CLIPS,
) -> dict[str, Any]:
    """The AR model on held-out clips: how well it predicts their codes, and continues them.

    Returns:
        `evaluate.foresight`'s figures over all latent frames to generate; with a probe also
        `continued` and, as the ceiling, `reconstructed` (`probe.accuracy` of both), and
        `frechet` of continuations against reconstructions of the true futures, beside
        `frechet_frozen`, that of clips which stop at the last given frame.
    """
    drawn, frames = holdout(clips)
    codes = tokenizer.encode(to_pixels(frames))
    figures: dict[str, Any] = cards.rounded(evaluate.foresight(model, codes))
    figures["clips"] = clips
    if probe_folder is None:
        return figures
    probe = probing.load(probe_folder)
    truth = tokenizer.decode(codes)
    prefix = evaluate.prefix_length(tuple(codes.shape))
    whole = evaluate.continue_codes(model, codes.flatten(1)[:, :prefix])
    continued = tokenizer.decode(whole.view(codes.shape))
    figures["continued"] = cards.rounded(probing.accuracy(probe, continued, drawn))
    figures["reconstructed"] = cards.rounded(probing.accuracy(probe, truth, drawn))
    frozen = truth[:, :, world.PREFIX - 1 : world.PREFIX].expand_as(truth)
    features = probing.features(probe, truth)
    for name, video in (("frechet", continued), ("frechet_frozen", frozen)):
        figures[name] = round(probing.frechet(probing.features(probe, video), features), 5)
    return figures
