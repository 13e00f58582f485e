"""Cosmos' model under the engine: ragged rows and trees equal its own full forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.errors import SoonerError, UnsupportedError
from sooner.models.cosmos_ar.canvas import CosmosAR
from sooner.models.cosmos_ar.config import CosmosARConfig
from sooner.models.cosmos_ar.model import CosmosARForCausalLM

SHAPE = (3, 4, 5)
TINY: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "latent_shape": SHAPE,
}
YARN = {"yarn_scale": 2.0, "original_latent_shape": (2, 3, 9)}
KINDS = [{}, {"apply_abs_pos_emb": True}, {"use_qk_norm": False, **YARN}]
CODES = torch.randint(0, 50, (3, 60), generator=torch.Generator().manual_seed(1))


def tiny(**changes: Any) -> CosmosARForCausalLM:
    """A random model whose attention really selects."""
    torch.manual_seed(0)
    model = CosmosARForCausalLM(CosmosARConfig(**{**TINY, **changes})).eval()
    for name, weights in model.named_parameters():
        scale = 0.25 if "embed" in name else 0.15
        weights.data.normal_(1.0 if weights.ndim == 1 else 0.0, scale)
    return model


def close(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours, expected, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("kind", KINDS, ids=["base", "absolute", "yarn"])
@torch.no_grad()
def test_our_runner_equals_incremental_decoding_on_ragged_rows(kind: dict) -> None:
    model = tiny(**kind)
    lengths = [20, 27, 24]
    runner = prefilled(model, lengths)
    chain = runner.forward_chain(torch.stack([CODES[r, n : n + 6] for r, n in enumerate(lengths)]))
    for row, length in enumerate(lengths):
        full = model(CODES[row : row + 1, : length + 6]).logits[0]
        close(chain.logits[row], full[length:])
    runner.commit([[0, 1, 2], [0], [0, 1, 2, 3, 4]])
    roots = torch.stack([CODES[0, 23], CODES[1, 28], CODES[2, 29]])
    step = runner.forward_chain(roots[:, None]).logits[:, 0]
    for row, end in enumerate((24, 29, 30)):
        close(step[row], model(CODES[row : row + 1, :end]).logits[0, -1])


@torch.no_grad()
def test_every_path_of_a_token_tree_equals_its_sequence() -> None:
    model = tiny()
    tree = Tree.from_lists([[11, 12, 13, 14, 15]], [[-1, -1, 0, 0, 3]])
    runner = prefilled(model, [22])
    forward = runner.forward_tree(CODES[0, 22:23], tree)
    for path in ([], [0], [1], [0, 2], [0, 3], [0, 3, 4]):
        nodes = torch.tensor([11 + node for node in path], dtype=torch.long)
        whole = torch.cat([CODES[0, :23], nodes])[None]
        entry = path[-1] + 1 if path else 0
        close(forward.logits[0, entry], model(whole).logits[0, -1])


def prefilled(model: CosmosARForCausalLM, lengths: list[int]) -> ModelRunner:
    """A runner over prompts of these lengths, padded on the left."""
    adapter = CosmosAR(model)
    assert (adapter.latent_shape, adapter.max_positions, adapter.layers) == (SHAPE, 60, 3)
    width = max(lengths)
    ids, mask = torch.zeros(2, len(lengths), width, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, width - length :] = CODES[row, :length]
        mask[row, width - length :] = 1
    prompt = adapter.embed_prompt({"input_ids": ids, "attention_mask": mask})
    runner = ModelRunner(adapter, width + 16)
    first = runner.prefill(prompt).logits[:, 0]
    for row, length in enumerate(lengths):
        close(first[row], model(CODES[row : row + 1, :length]).logits[0, -1])
    return runner


def test_what_does_not_fit_is_refused_in_a_single_line() -> None:
    model = tiny()
    with pytest.raises(SoonerError, match="either input_ids or inputs_embeds"):
        model()
    with pytest.raises(SoonerError, match="head_dim 7"):
        CosmosARConfig(**{**TINY, "head_dim": 7})
    with pytest.raises(SoonerError, match=r"latent_shape \[3, 4\]"):
        CosmosARConfig(**{**TINY, "latent_shape": [3, 4]})
    with pytest.raises(SoonerError, match="num_key_value_heads 3"):
        CosmosARConfig(**{**TINY, "num_key_value_heads": 3})
    with pytest.raises(UnsupportedError, match="attention 'eager'"):
        CosmosARForCausalLM(CosmosARConfig(**TINY, attn_implementation="eager"))
