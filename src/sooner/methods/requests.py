"""What a `generate` call may ask for, and what is refused by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from ..checks import check_whole
from ..errors import UnsupportedError

REFUSED = {
    "penalty_alpha": "contrastive search ranks by hidden states",
    "dola_layers": "DoLa reads intermediate layers",
    "constraints": "constrained search needs beams",
    "force_words_ids": "constrained search needs beams",
    "output_attentions": "attention maps of drafts that were rejected would be mixed in",
    "output_hidden_states": "states of drafts that were rejected would be mixed in",
    "output_scores": "scores are not kept",
    "output_logits": "logits are not kept",
    "assistant_early_exit": "use sooner.Speculative with a draft model",
    "prompt_lookup_num_tokens": "use sooner.PromptLookup",
    "use_mtp": "multi-token-prediction heads are not used",
}
"""Options that change the output, or what is returned, and why they can't be honoured."""

CACHES = (None, "dynamic", "static")
"""Cache kinds that only say where the same keys and values are kept."""

LOOP_ONLY = ("use_cache", "logits_to_keep", "position_ids", "past_key_values", "cache_position")
"""Arguments that `generate` prepared for its own loop."""


def refuse_config(config: GenerationConfig, synced_gpus: bool = False) -> None:
    """Refuse what a generation config asks for and this loop can't do.

    Raises:
        UnsupportedError: names the option, its value and the reason.
    """
    if (config.num_beams or 1) > 1:
        raise UnsupportedError(
            f"num_beams={config.num_beams} can't be honoured: speculation follows one sequence a "
            "row; set num_beams=1"
        )
    for name, reason in REFUSED.items():
        if value := getattr(config, name, None):
            raise UnsupportedError(f"{name}={value!r} can't be honoured: {reason}; leave it unset")
    if config.use_cache is False:
        raise UnsupportedError("use_cache=False can't be honoured: drafts live in the cache")
    if config.cache_implementation not in CACHES:
        raise UnsupportedError(
            f"cache_implementation='{config.cache_implementation}' can't be honoured: the slot "
            "cache is used; leave it unset"
        )
    if synced_gpus:
        raise UnsupportedError("synced_gpus=True can't be honoured: rows end on their own")


def check_chunk(size: Any) -> None:
    """Require `size`, the config's `prefill_chunk_size`, to be a number of tokens or `None`.

    Raises:
        SoonerError: names the value.
    """
    if size is not None:
        hint = ", or None to prefill the prompt at once"
        check_whole("prefill_chunk_size", size, hint=hint)


def refuse_inputs(model_kwargs: dict[str, Any], input_ids: Tensor) -> dict[str, Any]:
    """The model inputs among `model_kwargs`.

    Raises:
        UnsupportedError: a cache that already holds tokens, embeddings instead of ids, or
            position ids of the caller's own.
    """
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise UnsupportedError(
            f"past_key_values with {cache.get_seq_length()} tokens can't be honoured: decoding "
            "starts from the whole prompt; leave it out"
        )
    if model_kwargs.get("inputs_embeds") is not None:
        raise UnsupportedError("inputs_embeds can't be honoured: pass input_ids")
    _refuse_positions(
        model_kwargs.get("position_ids"), model_kwargs.get("attention_mask"), input_ids
    )
    return {
        name: value
        for name, value in model_kwargs.items()
        if name not in LOOP_ONLY
        and value is not None
        and not (isinstance(value, dict) and not value)
    }


def _refuse_positions(positions: Tensor | None, mask: Tensor | None, input_ids: Tensor) -> None:
    """1-D positions must be the ones that the mask implies; M-RoPE ones are computed anew."""
    if positions is None or positions.ndim != 2:
        return
    mask = torch.ones_like(input_ids) if mask is None else mask
    implied = (mask.cumsum(-1) - 1).to(positions.device)
    if bool(((positions != implied) & mask.bool().to(positions.device)).any()):
        raise UnsupportedError(
            "position_ids other than 0, 1, 2, ... can't be honoured; leave them out"
        )
