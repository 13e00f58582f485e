"""EAGLE-3 heads in the layouts that people publish: SafeAILab's, SpecForge's, speculators'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ...errors import SoonerError, UnsupportedError, did_you_mean
from .eagle3 import Eagle3Config, Eagle3Head
from .specforge import CONFIG_KEY, WEIGHTS

BINARY = "pytorch_model.bin"
OF_THE_TARGET = ("verifier_norm.weight", "verifier_lm_head.weight")
"""Copies of the target's, which speculators trains with."""


def is_eagle3(config: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether a folder holds an EAGLE-3 head.

    Args:
        config: its config.json.
        names: of its tensors.
    """
    if config.get("speculators_model_type") == "eagle3":
        return True
    kinds = config.get("architectures") or []
    if any("eagle3" in str(kind).lower() for kind in kinds):
        return True
    # SafeAILab's first heads name plain Llama; the layer on twice the width tells them.
    return "draft_vocab_size" in config and {"midlayer.hidden_norm.weight", "d2t"} <= set(names)


def load_eagle3(
    folder: Path, config: Mapping[str, Any], layer_ids: Iterable[int] | None = None
) -> Eagle3Head:
    """Returns an EAGLE-3 head in eval mode, fp32.

    Args:
        folder: with its weights.
        config: its config.json.
        layer_ids: `hidden_states` indices that it reads, in place of those that the config means.

    Raises:
        SoonerError: unknown, missing or misshapen tensors, or values out of range, by name.
        UnsupportedError: an option of the layout that can't be run.
    """
    weights: dict[str, tuple[str, Any]] = {
        _head_name(name): (name, value) for name, value in read_weights(folder).items()
    }
    made = read_config(config, set(weights))
    if layer_ids is not None:
        made = Eagle3Config(**{**vars(made), "layer_ids": tuple(layer_ids)})
    for name in OF_THE_TARGET:
        weights.pop(name, None)
    is_tied = _is_tied(config) and "lm_head.weight" not in weights
    if is_tied and "embed_tokens.weight" in weights:
        weights["lm_head.weight"] = weights["embed_tokens.weight"]
    has_head = "lm_head.weight" in weights or made.draft_vocab_size is not None
    head = Eagle3Head(made, "embed_tokens.weight" in weights, has_head)
    offsets, mask = weights.pop("d2t", None), weights.pop("t2d", None)
    check_names(folder, head, weights, "EAGLE-3 head")
    _fill_vocabulary(
        head, None if offsets is None else offsets[1], None if mask is None else mask[1]
    )
    with torch.no_grad():
        for name, tensor in head.state_dict().items():
            tensor.copy_(weights[name][1])
    return head.eval()


def read_config(config: Mapping[str, Any], names: set[str]) -> Eagle3Config:
    """What a config.json of either layout means.

    Args:
        config: its content.
        names: of the tensors beside it, which tell of biases and norms.

    Raises:
        SoonerError: a key is missing.
        UnsupportedError: an option that can't be run.
    """
    is_speculators = "speculators_model_type" in config
    layer = dict(config["transformer_layer_config"] if is_speculators else config)
    _check_options(config, layer)
    try:
        heads, hidden = int(layer["num_attention_heads"]), int(layer["hidden_size"])
        intermediate, vocab = int(layer["intermediate_size"]), int(layer["vocab_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise SoonerError(
            f"config.json of an EAGLE-3 head lacks {error}; give the one that was published"
        ) from error
    rope = dict(layer.get("rope_parameters") or layer.get("rope_scaling") or {})
    rope["rope_type"] = rope.pop("type", None) or rope.get("rope_type") or "default"
    if rope["rope_type"] == "mrope":
        rope["rope_type"] = "default"
    if (theta := layer.get("rope_theta")) is not None:
        rope.setdefault("rope_theta", float(theta))
    drafted = config.get("draft_vocab_size")
    extra = dict(config.get(CONFIG_KEY) or {})
    return Eagle3Config(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_attention_heads=heads,
        num_key_value_heads=int(layer.get("num_key_value_heads") or heads),
        head_dim=int(layer.get("head_dim") or hidden // heads),
        vocab_size=vocab,
        draft_vocab_size=None if drafted is None else int(drafted),
        target_hidden_size=int(config.get("target_hidden_size") or hidden),
        layer_ids=_layer_ids(config, is_speculators),
        rms_norm_eps=float(layer.get("rms_norm_eps") or 1e-6),
        rope=rope,
        norm_before_residual=bool(config.get("norm_before_residual")),
        norm_before_fc=bool(config.get("norm_before_fc")),
        attention_bias="layer.self_attn.q_proj.bias" in names,
        mlp_bias="layer.mlp.up_proj.bias" in names,
        fc_bias="fc.bias" in names,
        qk_norm="layer.self_attn.q_norm.weight" in names,
        max_positions=int(layer.get("max_position_embeddings") or 2048),
        temperature=float(extra.get("temperature", 1.0)),
        target=dict(extra.get("target") or {}),
        provenance=dict(extra.get("provenance") or {}),
    )


def _layer_ids(config: Mapping[str, Any], is_speculators: bool) -> tuple[int, ...] | None:
    """`hidden_states` indices that a head reads; `None` where the config names none.

    Speculators' number `k` is `hidden_states[k]`. SpecForge's and SGLang's explicit number `i` is
    what layer `i` gives, `hidden_states[i + 1]`; their default is not shifted.
    """
    ids = config.get("eagle_aux_hidden_state_layer_ids")
    shift = 0 if is_speculators else 1
    if ids is None:
        ids = (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if ids is None:
        return None
    if len(ids) != 3:
        raise UnsupportedError(
            f"EAGLE-3 head: eagle_aux_hidden_state_layer_ids is {list(ids)}; it must name three "
            "layers, as `fc` reads three"
        )
    return tuple(int(number) + shift for number in ids)


def _check_options(config: Mapping[str, Any], layer: Mapping[str, Any]) -> None:
    """Refuse what would change the numbers and is not computed here."""
    eagle = config.get("eagle_config") or {}
    layers = layer.get("num_hidden_layers", 1)
    kinds = set(layer.get("layer_types") or ["full_attention"]) - {"full_attention"}
    refused = {
        f"num_hidden_layers {layers}; one layer is run": layers != 1,
        f"hidden_act '{layer.get('hidden_act')}'; SiLU is run": layer.get("hidden_act", "silu")
        != "silu",
        "use_aux_hidden_state false, a head on the last states alone": not eagle.get(
            "use_aux_hidden_state", True
        ),
        f"logit_scale {config.get('logit_scale')}": config.get("logit_scale", 1.0) != 1.0,
        f"{'/'.join(sorted(kinds))} layers; full attention is run": bool(kinds)
        or bool(layer.get("use_sliding_window")),
        "quantised weights; publish them as floats": bool(config.get("quantization_config")),
        "a partial rotation (partial_rotary_factor)": layer.get("partial_rotary_factor", 1.0) != 1,
    }
    for option, is_so in refused.items():
        if is_so:
            raise UnsupportedError(f"EAGLE-3 head: its config says {option}")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Returns all tensors of a folder by their names in its files.

    Raises:
        SoonerError: none are there, or they can't be read.
    """
    try:
        if files := sorted(folder.glob("*.safetensors")):
            return {name: tensor for path in files for name, tensor in load_file(path).items()}
        if (path := folder / BINARY).is_file():
            weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
            return weights
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise SoonerError(f"weights in '{folder}' can't be read: {reason}") from error
    raise SoonerError(f"'{folder}' has no {WEIGHTS} and no {BINARY}; give the whole repository")


def _head_name(name: str) -> str:
    """The name of a published tensor in `Eagle3Head`."""
    name = name.removeprefix("model.")
    for prefix in ("midlayer.", "layers.0."):
        if name.startswith(prefix):
            return "layer." + name.removeprefix(prefix)
    return name


def _is_tied(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings"))


def check_names(
    folder: Path, head: torch.nn.Module, weights: dict[str, tuple[str, Any]], kind: str
) -> None:
    """Refuse tensors that are unknown, missing or of another shape.

    Args:
        folder: that they are of.
        head: has them all.
        weights: its names, with those of the files and the tensors.
        kind: what the head is called.

    Raises:
        SoonerError: names the first.
    """
    expected = head.state_dict()
    for name in list(weights):
        if name.endswith("rotary_emb.inv_freq"):
            del weights[name]  # follows from the config
    for name, (source, value) in weights.items():
        if name not in expected:
            raise SoonerError(
                f"'{folder}' has a tensor '{source}' that is no part of its {kind}"
                f"{did_you_mean(name, expected)}; it would change what the head computes"
            )
        if value.shape != expected[name].shape:
            raise SoonerError(
                f"'{source}' in '{folder}' is {list(value.shape)}, by its config.json it must be "
                f"{list(expected[name].shape)}; give files that were published together"
            )
    if lacking := [name for name in expected if name not in weights]:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise SoonerError(
            f"'{folder}' lacks {', '.join(lacking[:3])}{more} of its {kind}; give the whole "
            "repository"
        )


def _fill_vocabulary(head: Eagle3Head, offsets: Tensor | None, mask: Tensor | None) -> None:
    """Tell a head which of the target's tokens it drafts: `target = draft + d2t[draft]`.

    Raises:
        SoonerError: `d2t` or `t2d` don't fit the sizes, or each other.
    """
    config, ids = head.config, head.token_ids
    if offsets is None:
        if len(ids) != config.vocab_size:
            raise SoonerError(
                f"EAGLE-3 head: it drafts {len(ids)} of {config.vocab_size} tokens, but has no "
                "'d2t' that says which; give the whole repository"
            )
        return
    if offsets.shape != ids.shape:
        raise SoonerError(
            f"EAGLE-3 head: 'd2t' has {len(offsets)} entries, draft_vocab_size is {len(ids)}; give "
            "files that were published together"
        )
    targets = ids + offsets.long()
    if int(targets.min()) < 0 or int(targets.max()) >= config.vocab_size:
        raise SoonerError(
            f"EAGLE-3 head: 'd2t' leads to token {int(targets.max())}, vocab_size is "
            f"{config.vocab_size}; offsets are added to the draft's own ids"
        )
    if len(targets.unique()) != len(targets):
        raise SoonerError(
            "EAGLE-3 head: two draft ids have one target id in 'd2t', whose entries must be offsets"
        )
    if mask is not None and (
        len(mask) != config.vocab_size
        or not torch.equal(mask.bool().nonzero()[:, 0], targets.sort()[0])
    ):
        raise SoonerError(
            "EAGLE-3 head: 't2d' keeps other tokens than 'd2t' leads to; give files that were "
            "published together"
        )
    head.token_ids.copy_(targets)
