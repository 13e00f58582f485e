"""Published files of Chameleon's relatives that `from_pretrained` alone does not read."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import ChameleonConfig, ChameleonForConditionalGeneration
from transformers.models.janus.configuration_janus import JanusVQVAEConfig
from transformers.models.janus.modeling_janus import JanusVQVAEDecoder

from ..errors import SoonerError
from .checkpoint import count_parts, read_state, read_tensors


def load_lumina(
    path: str | Path, dtype: torch.dtype | None = None
) -> ChameleonForConditionalGeneration:
    """Load a Lumina-mGPT checkpoint, in eval mode, on the CPU.

    Its norms of queries and keys were saved once for each shard that Chameleon was trained on,
    `[shards, head_dim]`. Transformers has them once for each head, so they are repeated.

    Args:
        path: a folder with `config.json` and safetensors files.
        dtype: of the weights; as they are in the files when left out.

    Raises:
        SoonerError: no safetensors there.
    """
    if not (state := read_state(Path(path))):
        raise SoonerError(f"no safetensors in {path}; give the folder of a Lumina-mGPT checkpoint")
    config = ChameleonConfig.from_pretrained(path)
    queries = config.num_attention_heads
    heads = {"q_norm": queries, "k_norm": config.num_key_value_heads or queries}
    for name, tensor in state.items():
        norm = name.split(".")[-2] if name.count(".") else ""
        if norm in heads and tensor.shape[0] != heads[norm]:
            state[name] = tensor.repeat_interleave(heads[norm] // tensor.shape[0], 0)
    dtype = state["lm_head.weight"].dtype if dtype is None else dtype
    return ChameleonForConditionalGeneration.from_pretrained(
        None, config=config, state_dict=state, dtype=dtype
    ).eval()


MEASURED = (
    "quantize.embedding.weight", "post_quant_conv.weight", "decoder.conv_in.weight",
    "decoder.norm_out.weight",
)  # fmt: skip
"""Tensors of a checkpoint that tell sizes of a decoder, and that it is one."""
ADVICE = "give the vqgan.ckpt of Chameleon"


class VQGANDecoder:
    """The decoder of Meta's `vqgan.ckpt`, which makes pixels of Chameleon's and Lumina's codes.

    It is the decoder that transformers has for Janus, but that attention is in its middle alone.

    Args:
        path: the checkpoint, or its `state_dict` as safetensors.
        device: where it runs, in fp32.

    Raises:
        SoonerError: no such file, or not a VQGAN.
    """

    def __init__(self, path: str | Path, device: torch.device | str = "cpu") -> None:
        file = Path(path)
        if not file.is_file():
            raise SoonerError(f"no VQGAN at {file}; {ADVICE}")
        whole = read_tensors(file)
        for name in MEASURED:
            if name not in whole:
                raise SoonerError(f"{file} has no {name}; {ADVICE}")
        used = ("quantize.embedding.", "post_quant_conv.", "decoder.")  # the encoder is not
        named = {name: tensor for name, tensor in whole.items() if name.startswith(used)}
        state = {name: tensor.to(device, torch.float32) for name, tensor in named.items()}
        self.codebook: Tensor = state.pop("quantize.embedding.weight")  # [codes, features]
        features, latent = self.codebook.shape[1], state["post_quant_conv.weight"].shape[0]
        self.entry = nn.Conv2d(features, latent, 1)
        self.decoder: Any = self._empty(state)
        parts = nn.ModuleDict({"post_quant_conv": self.entry, "decoder": self.decoder})
        parts.to(device, torch.float32).eval().load_state_dict(self._named(state))

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Returns pictures `[rows, 3, scale * height, scale * width]` in -1..1.

        Args:
            codes: `[rows, height, width]`; each is a square of 16 pixels.
        """
        latents = self.codebook[codes.to(self.codebook.device)].movedim(-1, 1)
        return self.decoder(self.entry(latents)).clamp(-1, 1)

    def _empty(self, state: dict[str, Tensor]) -> nn.Module:
        """Returns the decoder without its weights."""
        levels = range(count_parts(state, "decoder.up."))
        config = JanusVQVAEConfig(
            base_channels=1,
            # Of each level, the finest first.
            channel_multiplier=[
                state[f"decoder.up.{level}.block.0.conv1.weight"].shape[0] for level in levels
            ],
            num_res_blocks=count_parts(state, "decoder.up.0.block.") - 1,
            latent_channels=state["decoder.conv_in.weight"].shape[1],
            out_channels=state["decoder.conv_out.weight"].shape[0],
        )
        decoder = JanusVQVAEDecoder(config)
        for level in decoder.up:
            level.attn = nn.ModuleList()
        return decoder

    def _named(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns weights under the names that they have here; Meta counts the levels from the
        finest, transformers from the coarsest."""
        last = len(self.decoder.up) - 1
        turn = partial(re.sub, r"(?<=^decoder\.up\.)\d+", lambda level: str(last - int(level[0])))
        return {turn(name): tensor for name, tensor in state.items()}
