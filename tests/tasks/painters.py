"""Random models that draw, in real folders, as small as they can be."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig, JanusImageProcessor, JanusProcessor

import tiny_canvas
from sooner import miniatures
from sooner_miniatures.motion_tokenizer import MotionTokenizer, MotionTokenizerConfig


def painter(folder: Path, scale: float = 0.1) -> Path:
    """A Janus that draws 4 x 4 codes from the image miniature's words.

    Args:
        scale: of the logits; small ones leave the draws open.
    """
    tokenizer = AutoTokenizer.from_pretrained(miniatures.find("image").target)
    model = copy.deepcopy(tiny_canvas.janus())
    model.model.generation_head.vision_head.weight.data.mul_(scale)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        generation_kwargs={"boi_token_id": tokenizer.boi_token_id},
        do_sample=True,
        top_k=0,
        guidance_scale=2.0,
    )
    model.save_pretrained(folder)
    side = tiny_canvas.SIDE
    pixels = {"height": 4 * side, "width": 4 * side}
    pictures = JanusImageProcessor(size=pixels, min_size=1)
    JanusProcessor(
        image_processor=pictures, tokenizer=tokenizer, num_image_tokens=side * side
    ).save_pretrained(folder)
    return folder


def camera(folder: Path, side: int = 2) -> Path:
    """A Cosmos AR model that continues clips of 17 frames, `side` x `side` codes of 24."""
    model = copy.deepcopy(tiny_canvas.cosmos_ar((5, side, side)))
    model.generation_config = GenerationConfig(do_sample=True, top_p=0.8, top_k=0)
    model.save_pretrained(folder / "target")
    torch.manual_seed(0)
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
