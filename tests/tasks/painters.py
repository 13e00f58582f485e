"""Random models that draw, in real folders, as small as they can be."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, JanusImageProcessor, JanusProcessor

import tiny_canvas
from sooner.models.clip_tokenizer import MotionTokenizer, MotionTokenizerConfig


def painter(folder: Path, scale: float = 0.1) -> Path:
    """A Janus that draws 4 x 4 codes from the image miniature's words.

    Args:
        scale: of the logits; small ones leave the draws open.
    """
    words = pytest.importorskip("sooner_lab.worlds.image.words")
    model = copy.deepcopy(tiny_canvas.janus())
    model.model.generation_head.vision_head.weight.data.mul_(scale)
    ids = words.ids()
    model.generation_config = GenerationConfig(
        bos_token_id=ids[words.BOS],
        pad_token_id=ids[words.PAD],
        generation_kwargs={"boi_token_id": ids[words.BOI]},
        do_sample=True,
        top_k=0,
        guidance_scale=2.0,
    )
    model.save_pretrained(folder)
    side = tiny_canvas.SIDE
    pixels = {"height": 4 * side, "width": 4 * side}
    pictures = JanusImageProcessor(size=pixels, min_size=1)
    JanusProcessor(
        image_processor=pictures, tokenizer=words.build_tokenizer(), num_image_tokens=side * side
    ).save_pretrained(folder)
    return folder


def camera(folder: Path, side: int = 2) -> Path:
    """A Cosmos AR model that continues clips of 17 frames, `side` x `side` codes of 24."""
    architecture = pytest.importorskip("sooner_lab.worlds.motion.architecture")
    torch.manual_seed(0)
    shape = architecture.MotionShape(
        layers=2, width=32, heads=2, kv_heads=1, intermediate=32, vocab=24,
        latent_shape=(5, side, side),
    )  # fmt: skip
    architecture.build_model(shape).save_pretrained(folder / "target")
    sizes = MotionTokenizerConfig(
        height=4 * side, width=4 * side, channels=16, blocks=1, codes=24, code_width=4
    )
    MotionTokenizer(sizes).save_pretrained(folder / "tokenizer")
    return folder / "target"


@pytest.fixture(scope="session")
def painter_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return painter(tmp_path_factory.mktemp("painters") / "janus")


@pytest.fixture(scope="session")
def camera_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return camera(tmp_path_factory.mktemp("painters") / "cosmos")
