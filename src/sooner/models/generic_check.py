"""A tree of drafts compared with a model's own `generate`, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList

from ..engine.attention.context import Listener, hearing_windows
from ..engine.runner import ModelRunner
from ..engine.tree import Tree
from ..errors import UnsupportedError
from .base import Adapter

PARENTS = [-1, -1, 0, 0, 1, 3]
"""Two siblings at the root and two below the first; the longest path has three nodes."""

TREE_PATH = [0, 3, 5]
"""The path that is committed before the second tree."""

CHAIN = [-1, 0, 1, 2, 3, 4]

CHAIN_PATH = [0, 1, 2]
"""The check for models that take chains alone."""

Rounds = tuple[tuple[int, tuple[list[int], ...]], ...]
"""For each tree in turn: a stride through the vocabulary, and the paths that are compared."""

ROUNDS: Rounds = ((104729, ([0, 2], TREE_PATH, [1, 4])), (1299709, ([0, 2],)))

BRIEF: Rounds = ((104729, (TREE_PATH,)),)

CHAINS: Rounds = ((104729, ([0, 1, 2, 3, 4, 5],)), (1299709, ([0, 1, 2, 3],)))

BRIEF_CHAIN: Rounds = ((104729, (CHAIN_PATH,)),)

LENGTHS = (7, 4)
"""Tokens of the two prompts of a check without inputs: rows are ragged."""

NEAR, NEAR_HALF = 1e-3, 5e-2
"""Root mean square of what logits may differ by, in units of their own spread."""


def self_check(
    adapter: Adapter, inputs: Mapping[str, Any] | None = None, *, brief: bool = False
) -> None:
    """Compare a prefill and two blocks of drafts with the model's own `generate`, step by step.

    Three tokens that `generate` is made to say, on each of three paths of a tree, have to get the
    logits that one forward over the whole tree gives them: the model's positions, masks and cache.

    Args:
        adapter: of the model to check, in eval mode.
        inputs: processed prompts, which may show pictures; two ragged prompts of words by default.
        brief: one block and one path, for prompts that take long.

    Raises:
        UnsupportedError: they differ, or one of them fails; says by how much, or how.
    """
    model = adapter.model
    if model.training:
        raise UnsupportedError(f"{type(model).__name__} is in training mode; call .eval() first")
    arguments = words(adapter) if inputs is None else dict(inputs)
    try:
        with torch.inference_mode(), hearing_windows(_listener(adapter)):
            worst = _difference(adapter, arguments, _rounds(adapter, brief))
    except (UnsupportedError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise UnsupportedError(
            f"{type(model).__name__} fails its self-check ({type(error).__name__}: {reason}); "
            "decode it with its own generate()"
        ) from error
    near = NEAR if adapter.dtype in (torch.float32, torch.float64) else NEAR_HALF
    if not worst <= near:
        raise UnsupportedError(
            f"{type(model).__name__} answers a {'chain' if adapter.chains_only else 'tree'} of "
            "drafts otherwise than its own generate(): "
            f"logits are {worst:.2g} of their spread apart, {near:g} is allowed; decode it with "
            "its own generate()"
        )


def _rounds(adapter: Adapter, brief: bool) -> Rounds:
    if adapter.chains_only:
        return BRIEF_CHAIN if brief else CHAINS
    return BRIEF if brief else ROUNDS


def _listener(adapter: Adapter) -> Listener:
    """Compares the windows and chunks that layers ask for with those of the config: the prompts of
    a check are too short to cross them."""
    rules, kinds = adapter.windows, getattr(adapter.text_config, "layer_types", None)

    def listen(module: Any, window: int | None, chunk: int | None) -> None:
        rule = rules.get(kinds[module.layer_idx] if kinds else "", (None, None))
        if rule != (window or None, chunk):
            raise UnsupportedError(
                f"{type(adapter.model).__name__} lets layer {module.layer_idx} see a window of "
                f"{window} and chunks of {chunk} positions, its config says {rule[0]} and "
                f"{rule[1]}; decode it with its own generate()"
            )

    return listen


def words(adapter: Adapter) -> dict[str, Tensor]:
    """Returns two prompts of `LENGTHS` tokens from all over the vocabulary, padded on the left."""
    width = max(LENGTHS)
    ids = torch.tensor(_tokens(adapter, len(LENGTHS) * width, 7919)).view(len(LENGTHS), width)
    mask = torch.arange(width)[None] >= width - torch.tensor(LENGTHS)[:, None]
    return {"input_ids": ids.to(adapter.device), "attention_mask": mask.long().to(adapter.device)}


def _tokens(adapter: Adapter, count: int, stride: int) -> list[int]:
    """Ids all over the vocabulary, none of a placeholder for pixels."""
    ids = ((number * stride) % adapter.vocab_size for number in range(1, 10 * count))
    return [token for token in ids if token not in adapter.visual_ids][:count]


def _difference(adapter: Adapter, inputs: dict[str, Any], rounds: Rounds) -> float:
    """Returns the largest difference at any place, in units of the logits' spread there."""
    rows, prompt = inputs["input_ids"].shape[0], adapter.embed_prompt(inputs)
    runner = ModelRunner(adapter, prompt.width + 2 * (1 + len(PARENTS)))
    # `generate` would choose frequencies by its longest row, and by longer texts of calls before.
    lengths = 0 if runner.rope is None else runner.rope.prompt_lengths(prompt)
    parents, accepted = (CHAIN, CHAIN_PATH) if adapter.chains_only else (PARENTS, TREE_PATH)
    outputs, tokens, worst = [runner.prefill(prompt).logits], list[int](), 0.0
    for stride, paths in rounds:
        root, *nodes = _tokens(adapter, 1 + len(PARENTS), stride)
        if tokens:  # some families read a placeholder that was generated as another word
            pixels = [token for token in adapter.visual_ids if token < adapter.vocab_size]
            nodes[0], nodes[2] = (pixels * 2)[:2] or (nodes[0], nodes[2])
        tree = Tree.from_lists([nodes] * rows, [parents] * rows, str(adapter.device))
        roots = torch.tensor([root] * rows, device=adapter.device)
        logits = runner.forward_tree(roots, tree).logits  # [rows, 1 + nodes, vocab]
        for path in paths:
            with runner.rope_by_token(lengths):
                expected = _hf_logits(
                    adapter, inputs, [*tokens, root, *(nodes[node] for node in path)]
                )
            ours = torch.cat([*outputs, logits[:, _entries(path)]], 1)
            worst = max(worst, _apart(ours, expected))
        runner.commit([_entries(accepted)] * rows)
        outputs.append(logits[:, _entries(accepted)])
        tokens += [root, *(nodes[node] for node in accepted)]
    return worst


def _entries(path: list[int]) -> list[int]:
    """Returns entries of a block: the root, then a path's nodes."""
    return [0, *(node + 1 for node in path)]


def _apart(ours: Tensor, expected: Tensor) -> float:
    """Returns root mean square of the difference by the spread, at the worst of the places."""
    ours, expected = ours.float(), expected.float().to(ours.device)
    gaps = (ours - expected).pow(2).mean(-1).sqrt() / expected.std(-1).clamp(min=1e-12)
    return float(gaps.max()) if bool(gaps.isfinite().all()) else float("inf")


def _hf_logits(adapter: Adapter, inputs: dict[str, Any], tokens: list[int]) -> Tensor:
    """Returns logits behind the prompt and each token, `[rows, 1 + tokens, vocab]`, where
    `generate` is made to say them."""
    width = inputs["input_ids"].shape[1]

    def forced(input_ids: Tensor, scores: Tensor) -> Tensor:
        token = [*tokens, 0][input_ids.shape[1] - width]
        ids = torch.arange(scores.shape[1], device=scores.device)
        return torch.where(ids == token, 0, -torch.inf).expand_as(scores)

    output = adapter.model.generate(
        **inputs,
        logits_processor=LogitsProcessorList([forced]),
        max_new_tokens=len(tokens) + 1,
        eos_token_id=None,
        pad_token_id=0,
        do_sample=False,
        num_beams=1,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return torch.stack(output.logits, 1)
