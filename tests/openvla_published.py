"""A tiny checkpoint under the keys that OpenVLA publishes, and its arithmetic restated.

`features` restates timm's vision transformer in loops over single heads, in doubles, straight from
the published tensors: what OpenVLA's code asks timm for, the states behind the last block but one.
It shares nothing with the model.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

State = dict[str, Tensor]

SIDE, PATCH, PATCHES, HEADS, REGISTERS = 28, 14, 4, 16, 4
DINO, SIGLIP = "vision_backbone.featurizer.", "vision_backbone.fused_featurizer."
WIDTHS, DEPTHS, INNER = {DINO: 32, SIGLIP: 48}, {DINO: 4, SIGLIP: 3}, {DINO: 128, SIGLIP: 179}
VOCAB, HIDDEN, FFN, LAYERS = 32_064, 16, 24, 2
WORDS = ["<pad>", "<s>", "</s>", "<unk>", "In", ":", "What", "action", "should", "the", "robot",
         "take", "to", "?", "Out", "open", "drawer", "push", "block", "▁"]  # fmt: skip
TEXT = {
    "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": FFN,
    "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 0, "torch_dtype": "bfloat16",
}  # fmt: skip
STATS = {
    "q01": [-0.02, -0.03, -0.5, 0.0],
    "q99": [0.03, 0.01, 1.5, 1.0],
    "mask": [True, True, True, False],
}
CONFIG: dict[str, Any] = {
    "model_type": "openvla",
    "architectures": ["OpenVLAForActionPrediction"],
    "auto_map": {"AutoConfig": "configuration_prismatic.OpenVLAConfig"},
    "arch_specifier": "no-align+fused-gelu-mlp",
    "vision_backbone_id": "dinosiglip-vit-so-224px",
    "timm_model_ids": ["vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224"],
    "timm_override_act_layers": [None, None],
    "image_sizes": [SIDE, SIDE],
    "image_resize_strategy": "resize-naive",
    "use_fused_vision_backbone": True,
    "pad_token_id": 0,
    "pad_to_multiple_of": 64,
    "n_action_bins": 256,
    "text_config": TEXT,
    "norm_stats": {"bridge_orig": {"action": STATS}, "fractal": {"action": STATS}},
}


def published_state() -> State:
    """Random tensors under every published name, those without use included."""
    sizes: dict[str, tuple[int, ...]] = {
        DINO + "cls_token": (1, 1, WIDTHS[DINO]),
        DINO + "reg_token": (1, REGISTERS, WIDTHS[DINO]),
    }
    for tower, width in WIDTHS.items():
        sizes |= _tower(tower, width)
    sizes |= _linears("projector.fc1", 80, 320) | _linears("projector.fc2", 320, HIDDEN)
    sizes |= _linears("projector.fc3", HIDDEN, HIDDEN)
    sizes |= _language()
    noise = torch.Generator().manual_seed(5)
    return {
        name: 0.3 * torch.randn(size, generator=noise) + ("norm" in name and "bias" not in name)
        for name, size in sizes.items()
    }


def _linears(name: str, inner: int, outer: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outer, inner), f"{name}.bias": (outer,)}


def _norms(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _tower(tower: str, width: int) -> dict[str, tuple[int, ...]]:
    sizes: dict[str, tuple[int, ...]] = {
        f"{tower}pos_embed": (1, PATCHES, width),
        f"{tower}patch_embed.proj.weight": (width, 3, PATCH, PATCH),
        f"{tower}patch_embed.proj.bias": (width,),
    }
    for block in range(DEPTHS[tower]):
        at = f"{tower}blocks.{block}"
        sizes |= _norms(f"{at}.norm1", width) | _norms(f"{at}.norm2", width)
        sizes |= _linears(f"{at}.attn.qkv", width, 3 * width)
        sizes |= _linears(f"{at}.attn.proj", width, width)
        sizes |= _linears(f"{at}.mlp.fc1", width, INNER[tower])
        sizes |= _linears(f"{at}.mlp.fc2", INNER[tower], width)
        if tower == DINO:
            sizes |= {f"{at}.ls{i}.scale_factor": (width,) for i in (1, 2)}
    sizes |= _norms(f"{tower}norm", width)
    if tower == SIGLIP:
        pool = f"{tower}attn_pool"
        sizes |= {f"{pool}.latent": (1, 1, width)} | _norms(f"{pool}.norm", width)
        sizes |= _linears(f"{pool}.q", width, width) | _linears(f"{pool}.kv", width, 2 * width)
        sizes |= _linears(f"{pool}.proj", width, width)
        sizes |= _linears(f"{pool}.mlp.fc1", width, 8) | _linears(f"{pool}.mlp.fc2", 8, width)
    return sizes


def _language() -> dict[str, tuple[int, ...]]:
    sizes: dict[str, tuple[int, ...]] = {
        "language_model.model.embed_tokens.weight": (VOCAB, HIDDEN),
        "language_model.model.norm.weight": (HIDDEN,),
        "language_model.lm_head.weight": (VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"language_model.model.layers.{layer}"
        sizes |= {f"{at}.self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"}
        sizes |= {f"{at}.mlp.{name}_proj.weight": (FFN, HIDDEN) for name in ("gate", "up")}
        sizes |= {f"{at}.mlp.down_proj.weight": (HIDDEN, FFN)}
        sizes |= {
            f"{at}.{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")
        }
    return sizes


def write(folder: Path, state: State, shards: int = 2, **config: Any) -> Path:
    """The files of a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    if shards == 1:
        save_file(state, folder / "model.safetensors")
        return folder
    names = sorted(state)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: state[name].contiguous() for name in names[shard::shards]}
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    """Words and signs; padding on the right, as a careless checkpoint might say."""
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        pad_token="<pad>", padding_side="right",
    )  # fmt: skip


def features(state: State, pixels: Tensor) -> Tensor:
    """`[6, side, side]` to `[patches, dino + siglip]`, in doubles."""
    towers = [_features(state, tower, part) for tower, part in
              ((DINO, pixels[:3]), (SIGLIP, pixels[3:]))]  # fmt: skip
    return torch.cat(towers, dim=1)


def _features(state: State, tower: str, pixels: Tensor) -> Tensor:
    at = {name.removeprefix(tower): tensor.double() for name, tensor in state.items()
          if name.startswith(tower)}  # fmt: skip
    kernel, bias = at["patch_embed.proj.weight"], at["patch_embed.proj.bias"]
    x = []
    for row in range(SIDE // PATCH):
        for column in range(SIDE // PATCH):
            top, left = row * PATCH, column * PATCH
            window = pixels[:, top : top + PATCH, left : left + PATCH].double()
            x.append((kernel * window).sum(dim=(1, 2, 3)) + bias)
    x = torch.stack(x) + at["pos_embed"][0]
    prefix = 0
    if tower == DINO:  # class, registers, patches; only patches have places
        x = torch.cat([at["cls_token"][0], at["reg_token"][0], x])
        prefix = 1 + REGISTERS
    for block in range(DEPTHS[tower] - 1):  # the last but one is the last that counts
        x = _block({name.removeprefix(f"blocks.{block}."): tensor for name, tensor in at.items()
                    if name.startswith(f"blocks.{block}.")}, x)  # fmt: skip
    return x[prefix:]


def _block(at: State, x: Tensor) -> Tensor:
    first_scale, two = at.get("ls1.scale_factor", 1), at.get("ls2.scale_factor", 1)
    x = x + first_scale * _attention(at, _norm(x, at["norm1.weight"], at["norm1.bias"]))
    y = _norm(x, at["norm2.weight"], at["norm2.bias"])
    y = _gelu(y @ at["mlp.fc1.weight"].T + at["mlp.fc1.bias"])
    return x + two * (y @ at["mlp.fc2.weight"].T + at["mlp.fc2.bias"])


def _attention(at: State, x: Tensor) -> Tensor:
    entries, width = x.shape
    stacked = x @ at["attn.qkv.weight"].T + at["attn.qkv.bias"]
    parts = stacked.view(entries, 3, HEADS, width // HEADS)
    heads = []
    for head in range(HEADS):
        q, k, v = (parts[:, part, head] for part in range(3))
        shares = (q @ k.T / math.sqrt(width // HEADS)).softmax(-1)
        heads.append(shares @ v)
    return torch.cat(heads, dim=1) @ at["attn.proj.weight"].T + at["attn.proj.bias"]


def _norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    spread = ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (spread + 1e-6).sqrt() * weight + bias


def _gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def projected(state: State, x: Tensor) -> Tensor:
    """Features to decoder tokens: three linear layers, GELU between them."""
    at = {name.removeprefix("projector."): tensor.double() for name, tensor in state.items()
          if name.startswith("projector.")}  # fmt: skip
    x = _gelu(x @ at["fc1.weight"].T + at["fc1.bias"])
    x = _gelu(x @ at["fc2.weight"].T + at["fc2.bias"])
    return x @ at["fc3.weight"].T + at["fc3.bias"]
