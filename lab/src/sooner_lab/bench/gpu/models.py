"""Random models of real shapes whose greedy text is known, and drafts right as often as asked.

Speed needs no trained weights, but acceptance must be set. Here the residual stream carries little
more than the last token's embedding, and the head's row of token `t + 1` is the embedding of `t`:
greedy decoding counts upwards, by a margin far above bf16's rounding, after every computation that
a trained model makes. In a draft's head a script, drawn once by a seed, puts some tokens elsewhere:
there the draft is wrong. Every method then accepts as the script says, whatever its drafter does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..step.engine import QWEN2_5_7B

QUIET = 2e-4
"""Standard deviation of the weights by which attention and MLP write to the residual stream, whose
embeddings have 1: 28 layers of a 7B's width add less than a tenth."""

QWEN2_7B = {**QWEN2_5_7B, "tie_word_embeddings": False, "max_position_embeddings": 262_144}
TINY: dict[str, Any] = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "max_position_embeddings": 1024,
}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-vl-7b": QWEN2_7B,
    "llava-onevision-7b": {**QWEN2_7B, "vocab_size": 152_000},
    "llava-onevision-0.5b": {
        **QWEN2_7B,
        "vocab_size": 152_000,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "tiny": TINY,
    "tiny-draft": {**TINY, "num_hidden_layers": 1},
}
"""Text models, as Qwen2's config describes them. The 0.5B's head is tied to its embedding in the
checkpoint; here it is a copy of the same size, which costs the same time."""


VIDEO = "/video"
"""Behind the name of a shape: with a vision tower."""

PATCH, MERGE = 14, 2
"""Pixels of a patch's side, and patches of a token's side."""

DRAFTED = 32_000
"""Tokens that an EAGLE-3 head drafts."""


def build(name: str, device: torch.device, dtype: torch.dtype, seed: int) -> Any:
    """The model of `SHAPES[name]`, made on the device; its greedy text counts upwards.

    Args:
        name: with `VIDEO` behind it the model is Qwen2.5-VL of that text shape.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, Qwen2Config

    torch.manual_seed(seed)
    kind: Any = AutoModelForCausalLM
    config: Any = Qwen2Config(**SHAPES[name.removesuffix(VIDEO)])
    if name.endswith(VIDEO):
        kind, config = AutoModelForImageTextToText, video_config(config)
    with torch.device(device):
        model = kind.from_config(config, dtype=dtype, attn_implementation="sdpa")
    model = model.eval().requires_grad_(False)
    with torch.no_grad():
        for layer in model.get_decoder().layers:
            for weights in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
                weights.normal_(0, QUIET)
        model.get_input_embeddings().weight.normal_()
    # Of no prompt: `generate` takes a prompt's padding ids for padding.
    vocab = config.get_text_config().vocab_size
    model.generation_config.pad_token_id = vocab - 1
    set_script(model, torch.ones(vocab, dtype=torch.bool))
    return model


def video_config(text: Any) -> Any:
    """Qwen2.5-VL around a text shape; its vision tower has one layer of the real width, as pixels
    are encoded once a prompt."""
    from transformers import Qwen2_5_VLConfig

    half = text.hidden_size // text.num_attention_heads // 2
    sections = [half // 4, 3 * half // 8, 3 * half // 8]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections}
    width = min(1280, text.hidden_size)
    return Qwen2_5_VLConfig(
        text_config={**text.to_dict(), "rope_parameters": rope},
        vision_config={
            "depth": 1, "hidden_size": width, "intermediate_size": 2 * width, "num_heads": 16,
            "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": 2,
            "out_hidden_size": text.hidden_size, "fullatt_block_indexes": [0],
        },
        vision_start_token_id=text.vocab_size - 5,
        vision_end_token_id=text.vocab_size - 4,
        video_token_id=text.vocab_size - 3,
        image_token_id=text.vocab_size - 2,
        tie_word_embeddings=False,
    )  # fmt: skip


def video_prompt(model: Any, grid: tuple[int, int, int], seed: int) -> dict[str, Tensor]:
    """A prompt with one video between a few words, as Qwen2.5-VL's processor gives it.

    Args:
        grid: frame pairs, and patches down and across; `MERGE ** 2` patches are one token.
    """
    time, height, width = grid
    config, generator = model.config, torch.Generator().manual_seed(seed)
    count = time * height * width // MERGE**2
    video = [config.vision_start_token_id, *[config.video_token_id] * count]
    ids = torch.tensor([[5, 6, 7, *video, config.vision_end_token_id, 8, 9, 0]])
    patches = torch.randn(time * height * width, 3 * 2 * PATCH**2, generator=generator)
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": 2 * (ids == config.video_token_id).long(),
        "pixel_values_videos": patches.to(model.dtype),
        "video_grid_thw": torch.tensor([grid]),
        "second_per_grid_ts": torch.tensor([1.0]),
    }
    return {name: value.to(model.device) for name, value in inputs.items()}


def draft_head(kind: str, model: Any) -> Any:
    """An untrained head of the published sizes: what a round costs does not depend on its weights.

    Args:
        kind: `eagle`, `eagle3` (three layers read, a vocabulary of 32k) or `dflash` (five layers,
            blocks of 16).
    """
    import sooner
    from sooner.methods.eagle.eagle3 import Eagle3Config, Eagle3Head
    from sooner.models import adapt
    from sooner.tasks.train_draft.blocks import drafter_config
    from sooner.tasks.train_draft.settings import BlockTraining

    adapter = adapt(model)
    if kind == "eagle":
        head: Any = sooner.EagleHead.for_target(model)
    elif kind == "eagle3":
        layers = (1, adapter.layers // 2, adapter.layers - 1)
        drafted = min(DRAFTED, adapter.vocab_size)
        head = Eagle3Head(Eagle3Config.like(adapter, layer_ids=layers, draft_vocab_size=drafted))
    else:
        recipe = BlockTraining(layers=min(5, adapter.layers), block_size=16)
        head = sooner.DFlashModel(drafter_config(recipe, adapter))
    return head.to(model.device, model.dtype).eval().requires_grad_(False)


def set_script(model: Any, right: Tensor) -> None:
    """Write the head of a model from `build`: behind token `t` it says `t + 1` where `right[t]`
    (`[vocab]` bool), else `t + 2`."""
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    vocab = embedding.shape[0]
    after = torch.arange(vocab, device=embedding.device) + torch.where(right, 1, 2).to(
        embedding.device
    )
    with torch.no_grad():
        head.zero_()
        # Two tokens may be followed by the same one, whose row is then the sum of both.
        head.index_add_(0, after % vocab, embedding)


def script(acceptance: float, vocab: int, seed: int) -> Tensor:
    """Where a draft is right, each place by chance `acceptance`: `[vocab]` bool."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(vocab, generator=generator) < acceptance


def prompts(
    rows: int, width: int, new: int, vocab: int, device: torch.device, seed: int
) -> dict[str, Tensor]:
    """Random prompts whose continuations have no token in common, as a tokenizer gives them."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab - 1, (rows, width), generator=generator)
    ids[:, -1] = torch.arange(rows) * max((vocab - 2 * new) // rows, 1)
    ids = ids.to(device)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def step_bytes(model: Any, rows: int, context: int) -> int:
    """Bytes that a plain step has to read: every weight but the embedding's, keys and values."""
    config = model.config
    skipped = 0 if config.tie_word_embeddings else model.get_input_embeddings().weight.nbytes
    weights = sum(weight.nbytes for weight in model.parameters()) - skipped
    width = config.hidden_size // config.num_attention_heads
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * width * model.dtype.itemsize
    return weights + rows * context * token


class BuiltModels:
    """Models that are built when first asked for, and kept."""

    def __init__(self, device: torch.device, dtype: torch.dtype, seed: int) -> None:
        self.device, self.dtype, self.seed = device, dtype, seed
        self.built: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """The model of a shape; its head counts upwards."""
        if name not in self.built:
            self.built[name] = build(name, self.device, self.dtype, self.seed)
        return self.built[name]

    def drop(self, *names: str) -> None:
        """Forget every model but `names`."""
        self.built = {name: model for name, model in self.built.items() if name in names}
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
