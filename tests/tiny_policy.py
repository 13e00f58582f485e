"""A tiny random OpenVLA policy with everything that acting needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from sooner.models.openvla.config import OpenVLAConfig
from sooner.models.openvla.model import OpenVLAForActionPrediction
from sooner.models.openvla.processing import OpenVLAProcessor
from sooner.tasks.act import Observation, Policy

SIDE, WORDS, BINS, PADDING, DIMS, HORIZON = 28, 60, 32, 8, 4, 2
INSTRUCTIONS = ("reach the red ball", "push the block to the green ball", "open the drawer")
TABLE = {
    "q01": [-0.1, -0.2, -0.3, 0.0],
    "q99": [0.1, 0.2, 0.3, 1.0],
    "mask": [True, True, True, False],
    "names": ["dx", "dy", "dz", "gripper"],
}
ARM = {"q01": [-1.0] * 7, "q99": [1.0] * 7}


def config(horizon: int = HORIZON, **stats: Any) -> OpenVLAConfig:
    """A policy of the data sets `stats`, by default of `table` alone."""
    tower = {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SIDE, "patch_size": 7}
    text = LlamaConfig(
        vocab_size=WORDS + BINS + PADDING,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return OpenVLAConfig(
        dino_config={**tower, "hidden_size": 24, "mlp_ratio": 2},
        siglip_config={**tower, "hidden_size": 32, "intermediate_size": 48},
        text_config=text,
        image_token_id=WORDS + BINS,
        trailing_token_id=4,
        n_action_bins=BINS,
        pad_to_multiple_of=PADDING,
        action_horizon=horizon,
        norm_stats={
            name: {"action": statistics} for name, statistics in (stats or {"table": TABLE}).items()
        },
    )


def model(horizon: int = HORIZON, **stats: Any) -> OpenVLAForActionPrediction:
    """Random weights that prefer action tokens, and now and then say another."""
    torch.manual_seed(0)
    made = OpenVLAForActionPrediction(config(horizon, **stats)).float().eval()
    with torch.no_grad():
        made.lm_head.weight[WORDS : WORDS + BINS] *= 4
    return made


def tokenizer() -> PreTrainedTokenizerFast:
    texts = " ".join(INSTRUCTIONS).split()
    words = ["<pad>", "<s>", "</s>", "<unk>", "<space>", *dict.fromkeys(texts)]
    bare = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    bare.normalizer = normalizers.Lowercase()
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=bare, unk_token="<unk>", pad_token="<pad>", bos_token="<s>",
        eos_token="</s>",
    )  # fmt: skip


def policy(
    horizon: int = HORIZON, allowance: int | None = None, *, head: bool = False, **stats: Any
) -> Policy:
    """See `Policy`; `head` gives it a random one."""
    made = model(horizon, **stats)
    draft = None
    if head:
        from sooner.methods.eagle.head import EagleHead

        draft = EagleHead.for_target(made).eval()
    processor = OpenVLAProcessor.of(tokenizer(), made.config)
    options = {"nodes": 12, "depth": 3}  # not what this machine measures to pay
    return Policy(made, processor, draft, allowance=allowance, name="tiny", options=options)


def image(seed: int = 0, height: int = 20, width: int = 24) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def observations(count: int, **options: Any) -> list[Observation]:
    """Different pictures, instructions of different length."""
    return [
        Observation(image(seed), INSTRUCTIONS[seed % len(INSTRUCTIONS)], **options)
        for seed in range(count)
    ]
