"""MTP layers with random weights in the layouts that checkpoints have, and what they compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import silu

from published_heads import draw

GLM, QWEN = "glm", "qwen"


def write_mtp(folder: Path, model: Any, layout: str, seed: int = 0, **config: Any) -> Path:
    """A target's checkpoint with an MTP layer in it.

    Args:
        model: the target.
        config: further keys of its text config.
    """
    model.save_pretrained(folder)
    path = folder / "config.json"
    raw = json.loads(path.read_text())
    text = raw.get("text_config", raw)
    text |= {"num_nextn_predict_layers" if layout == GLM else "mtp_num_hidden_layers": 1, **config}
    path.write_text(json.dumps(raw))
    shapes = shapes_of(model.config.get_text_config(), layout)
    made = {
        name: 1.5 * draw(seed + n, *shape) if len(shape) > 1 else 0.2 * draw(seed + n, *shape)
        for n, (name, shape) in enumerate(shapes.items())
    }
    if not is_zero_centred(model.config.get_text_config()):
        made |= {name: 1 + value for name, value in made.items() if value.ndim == 1
                 and not name.endswith("bias")}  # fmt: skip
    dtype = next(model.parameters()).dtype
    weights = load_file(folder / "model.safetensors")
    weights |= {name: value.to(dtype).contiguous() for name, value in made.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def is_zero_centred(text: Any) -> bool:
    return bool(text.model_type.startswith("qwen3_5"))


def shapes_of(text: Any, layout: str) -> dict[str, tuple[int, ...]]:
    """Published names and shapes of an MTP layer."""
    hidden, heads = text.hidden_size, text.num_attention_heads
    dim = getattr(text, "head_dim", None) or hidden // heads
    wide, narrow, mlp = heads * dim, text.num_key_value_heads * dim, text.intermediate_size
    if layout == GLM:
        at = f"model.language_model.layers.{text.num_hidden_layers}."
        made: dict[str, tuple[int, ...]] = {
            f"{at}eh_proj.weight": (hidden, 2 * hidden),
            f"{at}mlp.gate_up_proj.weight": (2 * mlp, hidden),
            f"{at}shared_head.head.weight": (text.vocab_size, hidden),
            f"{at}embed_tokens.weight": (text.vocab_size, hidden),
        }
        norms = ["enorm", "hnorm", "shared_head.norm", "input_layernorm",
                 "post_self_attn_layernorm", "post_attention_layernorm",
                 "post_mlp_layernorm"]  # fmt: skip
        norms = [at + norm for norm in norms]
        layer = at
    else:
        layer = "mtp.layers.0."
        made = {
            "mtp.fc.weight": (hidden, 2 * hidden),
            f"{layer}mlp.gate_proj.weight": (mlp, hidden),
            f"{layer}mlp.up_proj.weight": (mlp, hidden),
        }
        norms = ["mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm",
                 f"{layer}input_layernorm", f"{layer}post_attention_layernorm"]  # fmt: skip
    gated = is_zero_centred(text)
    made |= {
        f"{layer}mlp.down_proj.weight": (hidden, mlp),
        f"{layer}self_attn.q_proj.weight": ((1 + gated) * wide, hidden),
        f"{layer}self_attn.k_proj.weight": (narrow, hidden),
        f"{layer}self_attn.v_proj.weight": (narrow, hidden),
        f"{layer}self_attn.o_proj.weight": (hidden, wide),
    }
    if text.model_type == "qwen2":
        made |= {f"{layer}self_attn.{n}_proj.bias": (size,)
                 for n, size in (("q", wide), ("k", narrow), ("v", narrow))}  # fmt: skip
    made |= {f"{norm}.weight": (hidden,) for norm in norms}
    if gated:
        made |= {f"{layer}self_attn.{n}_norm.weight": (dim,) for n in "qk"}
    return made


class PublishedMtp:
    """What a published MTP layer computes, in plain torch, over one whole row.

    Args:
        folder: the checkpoint.
        text: its text config.
        layout: `glm` or `qwen`.
    """

    def __init__(self, folder: Path, text: Any, layout: str) -> None:
        self.text, self.is_glm = text, layout == GLM
        at = f"model.language_model.layers.{text.num_hidden_layers}." if self.is_glm else "mtp."
        tensors = load_file(folder / "model.safetensors")
        self.weights = {
            name.removeprefix(at).removeprefix("layers.0."): value.double()
            for name, value in tensors.items()
            if name.startswith(at)
        }

    def norm(self, x: Tensor, name: str) -> Tensor:
        scale = (x.pow(2).mean(-1, keepdim=True) + self.text.rms_norm_eps).rsqrt()
        return x * scale * (self.weights[f"{name}.weight"] + is_zero_centred(self.text))

    def linear(self, x: Tensor, name: str) -> Tensor:
        made = x @ self.weights[f"{name}.weight"].T
        return made + self.weights.get(f"{name}.bias", torch.zeros(()))

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """`x [entries, heads, dim]` by `positions [entries]` or `[3, entries]`."""
        rope = self.text.rope_parameters
        size = int(x.shape[-1] * rope.get("partial_rotary_factor", 1.0))
        half, sections = size // 2, rope.get("mrope_section")
        speeds = rope["rope_theta"] ** -(torch.arange(half).double() / half)
        if sections is None:
            axis = [0] * half
        elif self.is_glm:  # one section behind the other
            axis = [a for a, length in enumerate(sections) for _ in range(length)]
        else:  # interleaved: t h w t h w ..., and t where the others end
            axis = [n % 3 if n < 3 * sections[n % 3] else 0 for n in range(half)]
        where = positions.expand(3, -1)[axis].T.double()  # [entries, half]
        cos, sin = (where * speeds).cos()[:, None], (where * speeds).sin()[:, None]
        turned, rest = x[..., :size], x[..., size:]
        if self.is_glm:  # neighbours are a pair
            low, high = turned[..., 0::2], turned[..., 1::2]
            pairs = torch.stack([low * cos - high * sin, high * cos + low * sin], -1)
            return torch.cat([pairs.flatten(-2), rest], -1)
        low, high = turned[..., :half], turned[..., half:]
        return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], -1)

    def run(self, embeds: Tensor, states: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The state that the next token is drafted from, and what the LM head is given."""
        names = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
        names = (
            names if self.is_glm else ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
        )
        both = torch.cat([self.norm(embeds, names[0]), self.norm(states, names[1])], -1)
        entered = self.linear(both, names[2])
        inner, count = self.norm(entered, "input_layernorm"), len(entered)
        heads, kv_heads = self.text.num_attention_heads, self.text.num_key_value_heads
        q = self.linear(inner, "self_attn.q_proj").view(count, heads, -1)
        k, v = (self.linear(inner, f"self_attn.{n}_proj").view(count, kv_heads, -1) for n in "kv")
        gate = None
        if is_zero_centred(self.text):
            q, gate = q.chunk(2, -1)
            q, k = self.norm(q, "self_attn.q_norm"), self.norm(k, "self_attn.k_norm")
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        k, v = (part.repeat_interleave(heads // kv_heads, 1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -torch.inf)
        seen = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)
        if gate is not None:
            seen = seen * gate.sigmoid()
        mixed = self.linear(seen.flatten(1), "self_attn.o_proj")
        state = entered + (self.norm(mixed, "post_self_attn_layernorm") if self.is_glm else mixed)
        inner = self.norm(state, "post_attention_layernorm")
        if self.is_glm:
            g, up = self.linear(inner, "mlp.gate_up_proj").chunk(2, -1)
        else:
            g, up = self.linear(inner, "mlp.gate_proj"), self.linear(inner, "mlp.up_proj")
        made = self.linear(silu(g) * up, "mlp.down_proj")
        state = state + (self.norm(made, "post_mlp_layernorm") if self.is_glm else made)
        normed = self.norm(state, names[3])
        return (state if self.is_glm else normed), normed
