"""Assistants for tiny targets: published files, random or right now and then."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

import sooner
import tiny
from sooner.engine.interface import Outcome
from sooner.engine.tree import Tree
from sooner.methods.assistant.method import AssistantDrafter
from sooner.methods.assistant.model import FULL, SLIDING, AssistantModel
from sooner.models import adapt

HIDDEN, INNER, HEADS = 16, 24, 4


def config_for(model: Any, clusters: int = 0, **text: Any) -> dict[str, Any]:
    """config.json of an assistant of two layers a kind, as it is published.

    Args:
        clusters: of the vocabulary; 0 is an LM head over all of it.
    """
    adapter = adapt(model)
    target = adapter.text_config
    attentions = [layer.self_attn for layer in adapter.decoder.layers]
    of_target = list(getattr(target, "layer_types", None) or [FULL] * adapter.layers)
    kinds = [SLIDING, SLIDING, FULL] if SLIDING in of_target else [FULL, FULL]
    dims = {kind: attentions[of_target.index(kind)].head_dim for kind in set(kinds)}
    return {
        "architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant",
        "backbone_hidden_size": target.hidden_size, "dtype": "float32",
        "use_ordered_embeddings": bool(clusters), "num_centroids": clusters or 2048,
        "centroid_intermediate_top_k": 3, "tie_word_embeddings": True, "eoi_token_id": 3,
        "text_config": {
            "model_type": "gemma4_text", "hidden_size": HIDDEN, "intermediate_size": INNER,
            "num_hidden_layers": len(kinds), "num_attention_heads": HEADS,
            "num_key_value_heads": 2, "num_global_key_value_heads": None,
            "num_kv_shared_layers": len(kinds), "head_dim": dims.get(SLIDING, dims[FULL]),
            "global_head_dim": dims[FULL], "layer_types": kinds, "vocab_size": adapter.vocab_size,
            "sliding_window": getattr(target, "sliding_window", None) or 512,
            "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
            "max_position_embeddings": 512, "rms_norm_eps": 1e-6, **text,
        },
    }  # fmt: skip


def weights_for(raw: Mapping[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Random tensors by their published names."""
    text = raw["text_config"]
    made = torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> Tensor:
        return 0.3 * torch.randn(*shape, generator=made)

    tensors = {
        "model.embed_tokens.weight": rand(text["vocab_size"], HIDDEN),
        "model.norm.weight": 1 + rand(HIDDEN),
        "pre_projection.weight": rand(HIDDEN, 2 * raw["backbone_hidden_size"]),
        "post_projection.weight": rand(raw["backbone_hidden_size"], HIDDEN),
    }
    for number, kind in enumerate(text["layer_types"]):
        at = f"model.layers.{number}."
        dim = text["global_head_dim"] if kind == FULL else text["head_dim"]
        tensors |= {
            f"{at}self_attn.q_proj.weight": rand(HEADS * dim, HIDDEN),
            f"{at}self_attn.q_norm.weight": 1 + rand(dim),
            f"{at}self_attn.o_proj.weight": rand(HIDDEN, HEADS * dim),
            f"{at}mlp.gate_proj.weight": rand(INNER, HIDDEN),
            f"{at}mlp.up_proj.weight": rand(INNER, HIDDEN),
            f"{at}mlp.down_proj.weight": rand(HIDDEN, INNER),
            f"{at}layer_scalar": 1 + rand(1),
        }
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            tensors[f"{at}{name}_layernorm.weight"] = 1 + rand(HIDDEN)
    if raw["use_ordered_embeddings"]:
        tensors["masked_embedding.centroids.weight"] = rand(raw["num_centroids"], HIDDEN)
        order = torch.randperm(text["vocab_size"], generator=made)
        tensors["masked_embedding.token_ordering"] = order
    return tensors


def written(folder: Path, raw: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text(json.dumps(raw))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    return folder


def loaded(model: Any, clusters: int = 0, seed: int = 0) -> AssistantModel:
    """A random assistant for `model`, by way of its files."""
    raw = config_for(model, clusters)
    with tempfile.TemporaryDirectory() as folder:
        home = written(Path(folder), raw, weights_for(raw, seed))
        drafter: AssistantModel = sooner.load_drafter(home).drafter
    return drafter


def texts_of(outcome: Outcome) -> dict[int, list[int]]:
    """What each active row has said, by its original number, in their order."""
    rows = outcome.rows
    return {original: list(rows.output(row)) for row, original in enumerate(rows.active)}


def fitted(
    model: Any, inputs: Mapping[str, Any], new: int = 24, clusters: int = 0
) -> AssistantModel:
    """One whose LM head has learnt what `model` says behind these prompts, one token ahead: it is
    right now and then."""
    made = loaded(model, clusters)
    records: list[tuple[dict[int, list[int]], Tensor]] = []
    original = AssistantDrafter.draft

    def listen(drafter: AssistantDrafter, outcome: Outcome) -> Tree:
        states: list[Tensor] = []
        watch = drafter.model.norm.register_forward_hook(lambda *args: states.append(args[2]))
        tree = original(drafter, outcome)
        watch.remove()
        records.append((texts_of(outcome), states[0][:, 0].clone()))
        return tree

    with patch.object(AssistantDrafter, "draft", listen):
        method = sooner.Assistant(made, num_draft_tokens=1)
        output = sooner.generate(
            model, inputs, method, max_new_tokens=new, do_sample=False, eos_token_id=None
        ).tokens
    features = (
        torch.cat([states for _, states in records]).detach().double()
    )  # one result everywhere
    texts = [entry for rows, _ in records for entry in rows.items()]
    labels = torch.tensor([output[row][len(text)] for row, text in texts])
    head = made.lm_head.weight.detach().double().requires_grad_()
    learner = torch.optim.Adam([head], lr=0.1)
    for _ in range(60):
        learner.zero_grad()
        cross_entropy(features @ head.T, labels).backward()
        learner.step()
    made.lm_head.weight.data.copy_(head.detach())
    return made


@functools.cache
def of(family: str) -> AssistantModel:
    """One for the tiny model of a family, which has learnt its answers to some prompts."""
    return fitted(tiny.model(family), tiny.inputs(family, "text", 3))
