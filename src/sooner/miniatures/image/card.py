"""Cards of the trained parts: how good, how large, how they came about."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path
from typing import Any

import torch
import transformers

from . import architecture, world
from .recipe import AnyRecipe

HELD_OUT_SEED = 70_001  # world of the pictures that only cards and tests see
PICTURES = 256  # real ones, for the codes and the target
JUDGED = 1024  # real ones, for the classifier
SAMPLES = 128  # generated for the target, with guidance and without


def write(folder: Path, recipe: AnyRecipe, seconds: float, told: dict[str, Any]) -> Path:
    """Write `card.json`: what was measured, and how it came about."""
    told = told | {
        "training_seconds": round(seconds),
        "recipe": dataclasses.asdict(recipe),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "card.json"
    path.write_text(json.dumps(told, indent=1) + "\n")
    return path


def write_codes(folder: Path, recipe: AnyRecipe, seconds: float) -> Path:
    """Measure the autoencoder in `folder` on held-out pictures, and write its card."""
    from . import build, codes

    model = build.load_codes(folder)
    pixels = codes.to_pixels([world.drawn(i, HELD_OUT_SEED)[1] for i in range(PICTURES)])
    made = codes.encode(model, pixels)  # [pictures, tokens]
    error = codes.decode(model, made) - (pixels / 2 + 0.5)
    told = {
        "parameters": architecture.parameters(model),
        "mean_absolute_error": round(float(error.abs().mean()), 4),
        "psnr_db": round(float(-10 * error.square().mean().log10()), 2),
        **usage(made, model.config.num_embeddings),
    }
    return write(folder, recipe, seconds, told)


def write_classifier(folder: Path, codes: Any, recipe: AnyRecipe, seconds: float) -> Path:
    """Measure the classifier in `folder` on held-out pictures through `codes`, and write."""
    from . import bank, classifier
    from . import codes as coding

    judge = classifier.load(folder)
    told: dict[str, Any] = {"parameters": architecture.parameters(judge)}
    for name, look in (("rebuilt", world.CALM), ("rebuilt_rough", world.ROUGH)):
        made = bank.encode(codes, JUDGED, HELD_OUT_SEED, look=look)
        rebuilt = coding.decode(codes, made.codes)
        told[f"accuracy_{name}"] = _rounded(judge.accuracy(rebuilt, made.pictures))
    return write(folder, recipe, seconds, told)


def write_target(folder: Path, judge_folder: Path, recipe: AnyRecipe, seconds: float) -> Path:
    """Measure the decoder in `folder` on held-out captions and pictures, and write its card."""
    from . import bank, build, classifier, evaluate

    model, processor = build.load(folder)
    judge = classifier.load(judge_folder)
    scale = model.generation_config.guidance_scale
    real = bank.encode(model.model.vqmodel, PICTURES, HELD_OUT_SEED)
    told: dict[str, Any] = {
        "parameters": architecture.parameters(model),
        "parameters_decoder": architecture.parameters(model.model.language_model),
        "accuracy_real": _rounded(
            judge.accuracy(evaluate.pixels(model, real.codes), real.pictures)
        ),
        "real": _rounded(evaluate.openness(model, real.pictures, real.codes, scale)),
        **usage(real.codes, model.config.vq_config.num_embeddings),
    }
    asked = world.prompts(SAMPLES, HELD_OUT_SEED)
    captions = [picture.caption for picture in asked]
    for name, guidance in (("guided", scale), ("unguided", 1.0)):
        codes = evaluate.generate(model, processor, captions, guidance=guidance)
        pixels = evaluate.pixels(model, codes)
        told[f"accuracy_{name}"] = _rounded(judge.accuracy(pixels, asked))
        told[name] = _rounded(evaluate.openness(model, asked, codes, scale))
    told |= {"guidance_scale": scale, "samples": SAMPLES}
    return write(folder, recipe, seconds, told)


def _rounded(found: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in found.items()}


def usage(codes: torch.Tensor, entries: int) -> dict[str, float]:
    """Share of the codebook in use and its perplexity, exp of the entropy of single codes."""
    share = torch.bincount(codes.flatten(), minlength=entries).double()
    share = share / share.sum()
    entropy = -(share * share.clamp_min(1e-30).log()).sum()
    return {
        "codebook_used": round(float((share > 0).double().mean()), 4),
        "codebook_perplexity": round(float(entropy.exp()), 1),
    }
