"""Tiny random models that draw, processed prompts for them, and how each is asked to."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import (
    ChameleonConfig,
    ChameleonForConditionalGeneration,
    Emu3Config,
    Emu3ForConditionalGeneration,
    JanusConfig,
    JanusForConditionalGeneration,
    LlamaConfig,
)
from transformers.models.janus.configuration_janus import JanusVisionConfig, JanusVQVAEConfig

import sooner
from sooner.models import Canvas
from sooner.models.cosmos_ar.config import CosmosARConfig
from sooner.models.cosmos_ar.model import CosmosARForCausalLM

VOCAB, BOS, PAD, BOI, IMAGE = 64, 60, 61, 62, 63
SIDE, CODES = 4, 24
SCRAMBLED = [(7 * number + 3) % CODES for number in range(CODES)]
"""Code that each id stands for, as unordered as in the published vocabularies."""

TEXT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
FAMILIES = ("janus", "chameleon", "lumina", "emu3", "cosmos_ar")
GUIDED = FAMILIES[:-1]
OPTIONS: dict[str, dict[str, Any]] = {
    "lumina": {"layout": "lumina", "height": 64, "width": 96},
    "emu3": {"height": 6, "width": 10},
    "cosmos_ar": {"prefix": 1},
}

# Chameleon: reserved ids first, then codes, marks, sizes and words, as published.
C_BOS, C_EOS, C_CODES, C_EOI, C_BOI, C_IMAGE, C_ROW_END, C_SIZE, C_WORDS = (
    0, 2, 4, 28, 29, 30, 31, 31, 40,
)  # fmt: skip
# Emu3: words first.
E_WORDS, E_BOS, E_EOS, E_PICTURE, E_BOI, E_EOI, E_EOL, E_EOF, E_IMAGE, E_PAD, E_CODES = (
    28, 28, 29, 30, 31, 32, 33, 34, 35, 36, 40,
)  # fmt: skip


def _letters(code: int) -> str:
    return "".join(chr(ord("A") + int(digit)) for digit in str(code))


def chameleon_names() -> dict[str, int]:
    """The vocabulary of a checkpoint."""
    names = {"<s>": C_BOS, "<pad>": 1, "</s>": C_EOS, "<unk>": 3, "<eoss>": C_EOI}
    names |= {"<racm3:break>": C_BOI, "<image>": C_IMAGE, "<reserved08799>": C_ROW_END}
    names |= {f"<reserved{8800 + size:05d}>": C_SIZE + size for size in range(1, 9)}
    names |= {f"word{word}": word for word in range(C_WORDS, VOCAB)}
    return names | {f"IMGIMG{_letters(SCRAMBLED[code])}Z": C_CODES + code for code in range(CODES)}


def emu3_names() -> dict[str, int]:
    """The vocabulary of a checkpoint."""
    names = {f"word{word}": word for word in range(E_WORDS)}
    names |= {"<|extra_203|>": E_BOS, "<|extra_204|>": E_EOS, "<|image token|>": E_PICTURE}
    names |= {"<|image start|>": E_BOI, "<|image end|>": E_EOI, "<|extra_200|>": E_EOL}
    names |= {"<|extra_201|>": E_EOF, "<image>": E_IMAGE, "<|endoftext|>": E_PAD}
    return names | {
        f"<|visual token {SCRAMBLED[code]:06d}|>": E_CODES + code for code in range(CODES)
    }


def lively(model: Any) -> Any:
    """Random weights large enough that attention selects and the head has clear winners."""
    for name, weights in model.named_parameters():
        if "q_norm.weight" in name:
            weights.data.mul_(2)
        elif weights.ndim > 1 and "vqmodel" not in name and "vision_model" not in name:
            wide = 0.5 if "embed" in name else 0.25 if "head" in name else 0.2
            weights.data.normal_(0, wide)
    return model.eval()


@functools.cache
def janus(seed: int = 0, layers: int = 3) -> Any:
    """Draws 4 x 4 codes of 24."""
    vision = JanusVisionConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=16,
        patch_size=4,
        num_image_tokens=SIDE * SIDE,
        projection_dim=48,
    )
    vq = JanusVQVAEConfig(
        embed_dim=8,
        num_embeddings=CODES,
        latent_channels=32,
        num_patches=SIDE,
        base_channels=32,
        channel_multiplier=[1, 1, 1],
        num_res_blocks=1,
        projection_dim=48,
        image_token_embed_dim=48,
    )
    text = LlamaConfig(**TEXT | {"max_position_embeddings": 128}, num_hidden_layers=layers)
    torch.manual_seed(seed)
    config = JanusConfig(text_config=text, vision_config=vision, vq_config=vq, image_token_id=IMAGE)
    model = lively(JanusForConditionalGeneration(config))
    settings = model.generation_config
    settings.bos_token_id, settings.pad_token_id = BOS, PAD
    settings.generation_kwargs = {"boi_token_id": BOI}
    return model


@functools.cache
def chameleon(attention: str = "sdpa") -> Any:
    """Draws 4 x 4 codes of 24, or rows of them with an end."""
    vq = {
        "embed_dim": 8,
        "num_embeddings": CODES,
        "latent_channels": 32,
        "resolution": 4 * SIDE,
        "base_channels": 32,
        "channel_multiplier": [1, 1, 1],
        "num_res_blocks": 1,
    }
    torch.manual_seed(0)
    config = ChameleonConfig(
        **TEXT,
        num_hidden_layers=3,
        vq_config=vq,
        vocabulary_map=chameleon_names(),
        eos_token_id=C_EOS,
        attn_implementation=attention,
    )
    model = lively(ChameleonForConditionalGeneration(config))
    model.generation_config.pad_token_id = 1
    return model


@functools.cache
def emu3(attention: str = "sdpa") -> Any:
    """Draws rows of codes with an end; two pixels a code."""
    vq = {
        "codebook_size": CODES,
        "embed_dim": 8,
        "latent_channels": 8,
        "base_channels": 32,
        "channel_multiplier": [1, 1],
        "num_res_blocks": 1,
        "attn_resolutions": [],
        "hidden_size": 32,
        "temporal_downsample_factor": 1,
    }
    text = TEXT | {"num_hidden_layers": 3, "pad_token_id": E_PAD}
    text |= {"bos_token_id": E_BOS, "eos_token_id": E_EOS}
    torch.manual_seed(0)
    config = Emu3Config(
        text_config=text,
        vq_config=vq,
        vocabulary_map=emu3_names(),
        attn_implementation=attention,
    )
    model = lively(Emu3ForConditionalGeneration(config))
    model.generation_config.pad_token_id = E_PAD
    model.generation_config.eos_token_id = E_EOS
    return model


@functools.cache
def cosmos_ar(latent_shape: tuple[int, int, int] = (3, 3, 4)) -> Any:
    """Continues clips of so many codes of 24."""
    torch.manual_seed(0)
    config = CosmosARConfig(
        vocab_size=CODES,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        latent_shape=latent_shape,
    )
    return lively(CosmosARForCausalLM(config))


def model(family: str) -> Any:
    builders = {"janus": janus, "emu3": emu3, "cosmos_ar": cosmos_ar}
    return builders[family]() if family in builders else chameleon()


def prompts(rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Janus' prompts of different lengths, padded on the left, ending where the picture begins."""
    generator = torch.Generator().manual_seed(seed)
    width = 5 + rows
    ids = torch.randint(0, BOS, (rows, width), generator=generator)
    mask = torch.ones_like(ids)
    ids[:, -1] = BOI
    for row in range(rows):
        ids[row, :row], mask[row, :row] = PAD, 0
        ids[row, row] = BOS
    return {"input_ids": ids, "attention_mask": mask}


def inputs(family: str, rows: int, seed: int = 0) -> dict[str, Any]:
    """Processed prompts of any family; uneven but for clips."""
    if family == "janus":
        return prompts(rows, seed)
    generator = torch.Generator().manual_seed(seed)
    if family == "cosmos_ar":
        return {"input_ids": torch.randint(0, CODES, (rows, 12), generator=generator)}
    low, high, bos, pad = (0, 10, E_BOS, E_PAD) if family == "emu3" else (C_WORDS, VOCAB, C_BOS, 1)
    # Emu3 writes the size, 3 x 5; Chameleon's canvas opens the picture itself.
    end = [E_BOI, 3, 20, 5, E_PICTURE] if family == "emu3" else []
    lists = []
    for row in range(rows):
        words = torch.randint(low, high, (4 + 2 * row,), generator=generator)
        lists.append([bos, *words.tolist(), *end])
    return padded(lists, pad)


def padded(lists: list[list[int]], pad: int) -> dict[str, Any]:
    """Prompts as one batch, padded on the left."""
    width = max(len(line) for line in lists)
    return {
        "input_ids": torch.tensor([[pad] * (width - len(line)) + line for line in lists]),
        "attention_mask": torch.tensor(
            [[0] * (width - len(line)) + [1] * len(line) for line in lists]
        ),
    }


def canvas(family: str = "janus") -> Canvas:
    return sooner.canvas(model(family), **OPTIONS.get(family, {}))
