"""What a user would pick instead: HF `generate` plain, with an assistant, with prompt lookup.

Timed through a streamer, because `generate` itself reports no times: the first tokens to arrive end
the prefill, the last ones end decoding.
"""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from sooner.parity import end_ids, until_end


class Ticker(BaseStreamer):
    """Notes when tokens arrive and how many there are, and nothing else."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.arrivals: list[tuple[float, int]] = []
        self._seen_prompt = False

    def put(self, value: Tensor) -> None:
        if not self._seen_prompt:
            self._seen_prompt = True
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.arrivals.append((time.perf_counter(), value.numel()))

    def end(self) -> None:
        """Does nothing: no token is buffered."""

    @property
    def decode_seconds(self) -> float:
        """From the first arrival to the last."""
        return self.arrivals[-1][0] - self.arrivals[0][0] if self.arrivals else 0.0


def run(
    model: Any,
    inputs: dict[str, Any],
    max_new_tokens: int,
    ticker: Ticker | None = None,
    **options: Any,
) -> tuple[list[int], float, int]:
    """Greedy HF `generate` of one row; `ticker` notes when its tokens arrive.

    Returns:
        New tokens up to the end, seconds between the first arrival and the last, and how many
        tokens arrived in that time.
    """
    ticker = ticker or Ticker(inputs["input_ids"].device)
    output = model.generate(
        **inputs, max_new_tokens=max_new_tokens, do_sample=False, streamer=ticker, **options
    )
    new = output[0, inputs["input_ids"].shape[1] :].tolist()
    tokens = until_end(new, end_ids(model, **options))
    first = ticker.arrivals[0][1] if ticker.arrivals else 0
    return tokens, ticker.decode_seconds, len(tokens) - first


def block_assistant(drafter: Any, target: Any) -> Any:
    """A DFlash drafter as transformers' own assisted generation takes it.

    Of its assistants only Muse Glimmer's computes such layers; its windows reach over any prompt
    here, so that they hide nothing.

    Args:
        drafter: sooner's, of layers without windows.
        target: the HF model that it drafts for.
    """
    from transformers.models.muse_glimmer_assistant import (
        MuseGlimmerAssistantConfig,
        MuseGlimmerAssistantModel,
    )

    source = drafter.config
    config = MuseGlimmerAssistantConfig(
        hidden_size=source.hidden_size,
        intermediate_size=source.intermediate_size,
        num_hidden_layers=source.num_hidden_layers,
        num_attention_heads=source.num_attention_heads,
        num_key_value_heads=source.num_key_value_heads,
        head_dim=source.head_dim,
        block_size=source.block_size,
        mask_token_id=source.mask_token_id,
        sliding_window=source.max_position_embeddings,
        target_layer_ids=[layer - 1 for layer in source.layers],
        rms_norm_eps=source.rms_norm_eps,
        rope_parameters=dict(source.rope_parameters or {}),
    )
    model = MuseGlimmerAssistantModel(config)
    names = {"fc.": "encoder.fc.", "hidden_norm.": "encoder.output_norm_enc."}
    weights = {}
    for name, value in drafter.state_dict().items():
        for ours, hf_name in names.items():
            if name.startswith(ours):
                name = hf_name + name.removeprefix(ours)
        weights[name] = value
    model.load_state_dict(weights)
    return model.to(target.device, target.dtype).eval()


def with_vocabulary(draft: Any, size: int) -> Any:
    """A copy of `draft` whose vocabulary is padded or cut to `size`, as HF's assistant needs it.

    New rows repeat the padding token's, so they never win.
    """
    have = draft.config.get_text_config().vocab_size
    if have == size:
        return draft
    same = copy.deepcopy(draft)
    pad = draft.generation_config.pad_token_id or 0
    same.resize_token_embeddings(size, mean_resizing=False)
    with torch.no_grad():
        for layer in (same.get_input_embeddings(), same.get_output_embeddings()):
            layer.weight[have:] = layer.weight[pad]
    return same
