"""Draft heads with random weights in the layouts that people publish, and what they compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

VOCAB = 96
"""The vocabulary of the tiny targets."""


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * shape[-1] ** -0.5


def write_eagle3(
    folder: Path,
    layout: str = "specforge",
    hidden: int = 48,
    drafted: int | None = 40,
    layers: tuple[int, ...] | None = (0, 1, 0),
    seed: int = 0,
    embeddings: bool = False,
    read: int | None = None,
    qk_norm: bool = False,
    bias: bool = False,
    **config: Any,
) -> Path:
    """A head of width `hidden` for a tiny target, in layout `specforge` or `speculators`.

    Args:
        drafted: reduced vocabulary, every second token of the target's; `None` is all of them.
        layers: in the layout's own numbers.
        read: width of the target, if it is another.
    """
    heads, kv_heads, dim, mlp = 4, 2, 12, 64
    layer = "midlayer." if layout == "specforge" else "layers.0."
    names: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, 3 * (read or hidden)),
        f"{layer}self_attn.q_proj.weight": (heads * dim, 2 * hidden),
        f"{layer}self_attn.k_proj.weight": (kv_heads * dim, 2 * hidden),
        f"{layer}self_attn.v_proj.weight": (kv_heads * dim, 2 * hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, heads * dim),
        f"{layer}mlp.gate_proj.weight": (mlp, hidden),
        f"{layer}mlp.up_proj.weight": (mlp, hidden),
        f"{layer}mlp.down_proj.weight": (hidden, mlp),
        "lm_head.weight": (drafted or VOCAB, hidden),
    }
    kinds = ("input_layernorm", "hidden_norm", "post_attention_layernorm")
    norms = {f"{layer}{name}.weight": hidden for name in kinds}
    norms["norm.weight"] = hidden
    if qk_norm:
        norms |= {f"{layer}self_attn.{name}_norm.weight": dim for name in "qk"}
    if config.get("norm_before_fc"):
        norms["input_norm.weight"] = 3 * (read or hidden)
    if bias:
        names |= {f"{layer}self_attn.{n}_proj.bias": (kv_heads * dim,) for n in "kv"}
        names |= {f"{layer}self_attn.q_proj.bias": (heads * dim,)}
        names |= {f"{layer}self_attn.o_proj.bias": (hidden,)}
    if embeddings:
        names["embed_tokens.weight"] = (VOCAB, hidden)
    made = {name: 2 * draw(seed + n, *shape) for n, (name, shape) in enumerate(names.items())}
    made |= {name: 1 + 0.2 * draw(seed + 50 + n, size) * size**0.5
             for n, (name, size) in enumerate(norms.items())}  # fmt: skip
    if drafted is not None:
        ids = torch.arange(drafted) * 2
        made["d2t"] = ids - torch.arange(drafted)
        made["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, True)
    if layout == "speculators":
        made["verifier_norm.weight"] = torch.ones(hidden)
    shape = {
        "hidden_size": hidden, "intermediate_size": mlp, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": dim, "vocab_size": VOCAB,
        "model_type": "llama", "num_hidden_layers": 1, "rms_norm_eps": 1e-5,
        "rope_theta": 5000.0, "hidden_act": "silu",
    }  # fmt: skip
    raw: dict[str, Any] = {"draft_vocab_size": drafted or VOCAB, "tie_word_embeddings": False}
    if read is not None:
        raw["target_hidden_size"] = read
    if layout == "specforge":
        raw |= {"architectures": ["LlamaForCausalLMEagle3"], **shape}
        if layers is not None:
            raw["eagle_config"] = {"eagle_aux_hidden_state_layer_ids": list(layers)}
    else:
        raw |= {
            "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
            "transformer_layer_config": shape,
        }  # fmt: skip
        if layers is not None:
            raw["eagle_aux_hidden_state_layer_ids"] = list(layers)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**raw, **config}))
    save_file(
        {name: tensor.contiguous() for name, tensor in made.items()}, folder / "model.safetensors"
    )
    return folder


class PublishedEagle3:
    """What a published EAGLE-3 head computes, in plain torch, over one whole row."""

    def __init__(self, folder: Path) -> None:
        raw = json.loads((folder / "config.json").read_text())
        self.config = {**raw, **raw.get("transformer_layer_config", {})}
        self.weights = {
            name.replace("midlayer.", "layers.0."): value
            for name, value in load_file(folder / "model.safetensors").items()
        }

    def norm(self, x: Tensor, name: str) -> Tensor:
        scale = (x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]).rsqrt()
        return x * scale * self.weights[f"{name}.weight"]

    def linear(self, x: Tensor, name: str) -> Tensor:
        bias = self.weights.get(f"{name}.bias")
        made = x @ self.weights[f"{name}.weight"].T
        return made if bias is None else made + bias

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """`x [entries, heads, dim]` by `positions [entries]` or `[3, entries]`."""
        half = x.shape[-1] // 2
        speeds = self.config["rope_theta"] ** -(torch.arange(half) / half)
        rope = self.config.get("rope_scaling") or {}
        if "mrope_section" in rope:
            axis = [a for a, size in enumerate(rope["mrope_section"]) for _ in range(size)]
            where = positions[axis].T.float()  # [entries, half]
        else:
            where = positions[:, None].float().expand(-1, half)
        cos, sin = (where * speeds).cos()[:, None], (where * speeds).sin()[:, None]
        low, high = x[..., :half], x[..., half:]
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    def start(self, states: Tensor) -> Tensor:
        """`[entries, hidden]` of three layers' states `[entries, 3 * hidden]`."""
        if self.config.get("norm_before_fc"):
            states = self.norm(states, "input_norm")
        return self.linear(states, "fc")

    def run(self, embeds: Tensor, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The head's next state and its logits, `[entries, ...]`; `states` are its own."""
        at, eps = "layers.0.", self.norm(states, "layers.0.hidden_norm")
        both = torch.cat([self.norm(embeds, f"{at}input_layernorm"), eps], -1)
        count, dim = len(both), self.config["head_dim"]
        split = {
            n: self.linear(both, f"{at}self_attn.{n}_proj").view(count, -1, dim) for n in "qkv"
        }
        for n in "qk":
            if f"{at}self_attn.{n}_norm.weight" in self.weights:
                split[n] = self.norm(split[n], f"{at}self_attn.{n}_norm")
            split[n] = self.rotate(split[n], positions)
        groups = split["q"].shape[1] // split["k"].shape[1]
        keys, values = (split[n].repeat_interleave(groups, 1) for n in "kv")
        scores = torch.einsum("qhd,khd->hqk", split["q"], keys) * dim**-0.5
        scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -torch.inf)
        seen = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).flatten(1)
        residual = eps if self.config.get("norm_before_residual") else states
        after = residual + self.linear(seen, f"{at}self_attn.o_proj")
        inner = self.norm(after, f"{at}post_attention_layernorm")
        gate = torch.nn.functional.silu(self.linear(inner, f"{at}mlp.gate_proj"))
        after = after + self.linear(
            gate * self.linear(inner, f"{at}mlp.up_proj"), f"{at}mlp.down_proj"
        )
        return after, self.linear(self.norm(after, "norm"), "lm_head")

    def target_id(self, drafted: int) -> int:
        """What the target calls a token that the head drafts."""
        return drafted + int(self.weights["d2t"][drafted]) if "d2t" in self.weights else drafted


def run_head(head: Any, embeds: Tensor, states: Tensor, positions: Tensor | None = None) -> Tensor:
    """Estimates of a draft head behind every entry of whole rows, `[rows, entries, hidden]`.

    Args:
        embeds: of the token behind each state, `[rows, entries, hidden]`.
        states: the target's, as long.
        positions: of the entries, as `rotation` takes them; by default they are counted.
    """
    fused = head.fuse(embeds, head.read(states))
    entries = fused.shape[1]
    rotation = head.rotation(torch.arange(entries)[None] if positions is None else positions)
    lowest = torch.finfo(fused.dtype).min
    mask = fused.new_full((entries, entries), lowest).triu(1)[None, None]
    keys, values = head.keys_values(fused, rotation)
    queries = head.queries(fused, rotation)
    attended = scaled_dot_product_attention(queries, keys, values, mask, enable_gqa=True)
    made: Tensor = head.estimate(fused, attended)
    return made
