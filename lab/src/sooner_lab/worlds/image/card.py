"""Cards of the trained parts: how good each is, how large, how it came about."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.janus.modeling_janus import JanusVQVAE

from .. import cards
from . import bank, classifier, evaluate, world
from . import codes as coding

TEST_SEED = 70_001  # world of the pictures that only cards and tests see
PICTURES = 256  # real ones, for the codes and the target
JUDGED = 1024  # real ones, for the classifier
SAMPLES = 128  # generated for the target, with guidance and without


def codes_figures(model: JanusVQVAE, pictures: int) -> dict[str, float]:
    """The autoencoder on held-out pictures: how well it rebuilds, how much of the book it uses."""
    pixels = coding.to_pixels([world.drawn(i, TEST_SEED)[1] for i in range(pictures)])
    made = coding.encode(model, pixels)  # [pictures, tokens]
    error = coding.decode(model, made) - (pixels / 2 + 0.5)
    return {
        "mean_absolute_error": round(float(error.abs().mean()), 4),
        "psnr_db": round(float(-10 * error.square().mean().log10()), 2),
        **usage(made, model.config.num_embeddings),
    }


def classifier_figures(
    judge: classifier.Classifier, codes: JanusVQVAE, pictures: int
) -> dict[str, dict[str, float]]:
    """The classifier on held-out pictures through `codes`, as `accuracy` tells."""
    figures = {}
    for name, look in (("rebuilt", world.CALM), ("rebuilt_rough", world.ROUGH)):
        made = bank.encode(codes, pictures, TEST_SEED, look=look)
        rebuilt = coding.decode(codes, made.codes)
        figures[f"accuracy_{name}"] = cards.rounded(judge.accuracy(rebuilt, made.pictures))
    return figures


def target_figures(
    model: Any, processor: Any, judge: classifier.Classifier
) -> dict[str, dict[str, float] | float]:
    """The decoder on held-out captions and pictures, with guidance and without."""
    scale = model.generation_config.guidance_scale
    real = bank.encode(model.model.vqmodel, PICTURES, TEST_SEED)
    figures: dict[str, Any] = {
        "parameters_decoder": cards.parameters(model.model.language_model),
        "accuracy_real": cards.rounded(
            judge.accuracy(evaluate.pixels(model, real.codes), real.pictures)
        ),
        "real": cards.rounded(evaluate.openness(model, real.pictures, real.codes, scale)),
        **usage(real.codes, model.config.vq_config.num_embeddings),
    }
    pictures = world.prompts(SAMPLES, TEST_SEED)
    captions = [picture.caption for picture in pictures]
    for name, guidance in (("guided", scale), ("unguided", 1.0)):
        codes = evaluate.generate(model, processor, captions, guidance=guidance)
        pixels = evaluate.pixels(model, codes)
        figures[f"accuracy_{name}"] = cards.rounded(judge.accuracy(pixels, pictures))
        figures[name] = cards.rounded(evaluate.openness(model, pictures, codes, scale))
    return figures | {"guidance_scale": scale, "samples": SAMPLES}


def usage(codes: torch.Tensor, entries: int) -> dict[str, float]:
    """Share of the codebook in use and its perplexity, exp of the entropy of single codes."""
    share = torch.bincount(codes.flatten(), minlength=entries).double()
    share = share / share.sum()
    entropy = -(share * share.clamp_min(1e-30).log()).sum()
    return {
        "codebook_used": round(float((share > 0).double().mean()), 4),
        "codebook_perplexity": round(float(entropy.exp()), 1),
    }
