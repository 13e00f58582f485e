"""How far a lossy run is from the model itself: the acceptance ratio of ParallelVLM's table 2.

The text of the lossy run is given to the full model token by token, as speculative sampling would:
a token x is accepted with probability min(1, p(x)/q(x)), where p is the full model's distribution
behind the same prefix and q the lossy model's own (appendix A).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from sooner.engine.hf_processors import params_of
from sooner.engine.runner import ModelRunner
from sooner.engine.sampling import Processing
from sooner.engine.tree import Paths, Tree
from sooner.errors import SoonerError
from sooner.generation import Prefill
from sooner.methods.context import to_device
from sooner.models import adapt


@dataclass(frozen=True)
class Fidelity:
    """Agreement of one text with the full model; every figure lies in 0 to 1.

    Attributes:
        tokens: how many tokens were judged.
        sampled: mean over tokens of min(1, p(x)/q(x)) at the token x that was said: the acceptance
            ratio of a text that was drawn from q.
        overlap: mean over tokens of `sum_x min(p(x), q(x))`: what `sampled` is in expectation over
            draws behind these prefixes. Less noisy, and one minus the total variation distance.
        greedy: share of tokens that are the full model's argmax behind the same prefix: the
            acceptance ratio at temperature 0, of a text that was chosen greedily.
    """

    tokens: int
    sampled: float
    overlap: float
    greedy: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def acceptance_ratio(
    model: Any,
    inputs: Mapping[str, Any],
    tokens: Sequence[int],
    prefill: Prefill | None,
    *,
    processors: Sequence[Any] = (),
    stepwise: bool = False,
) -> Fidelity:
    """Judge a lossy run's text by the full model.

    Each model reads the text in one teacher-forced forward behind its prefill.

    Args:
        model: the target, without any context around it.
        inputs: the prompt that the text was generated from, one row.
        tokens: the new tokens of the lossy run.
        prefill: the context that made it lossy; `None` compares the model with itself.
        processors: logits processors of the lossy run; p and q both come after them.
        stepwise: read token by token on the lossy side, for contexts that choose anew at each
            token (`DyCoke` with its second stage).

    Raises:
        SoonerError: no tokens, or more than one prompt.
    """
    p = teacher_forced(model, inputs, tokens, processors=processors)
    q = teacher_forced(
        model, inputs, tokens, prefill=prefill, processors=processors, stepwise=stepwise
    )
    return compare_distributions(p, q, tokens)


def compare_distributions(p: Tensor, q: Tensor, tokens: Sequence[int]) -> Fidelity:
    """The figures of `Fidelity` from both models' distributions.

    Args:
        p: the full model's probabilities behind each prefix, `[tokens, vocab]`.
        q: the lossy model's, `[tokens, vocab]`.
        tokens: what the lossy run said.
    """
    ids = torch.as_tensor(tokens, device=p.device)
    full, lossy = (x.gather(1, ids[:, None])[:, 0] for x in (p, q))
    # A said token has q > 0, unless sampling and re-reading round differently at its very edge.
    ratio = (full / lossy.clamp(min=torch.finfo(q.dtype).tiny)).clamp(max=1)
    return Fidelity(
        tokens=len(ids),
        sampled=float(ratio.mean()),
        overlap=min(1.0, float(torch.minimum(p, q).sum(1).mean())),
        greedy=float((p.argmax(1) == ids).float().mean()),
    )


@torch.inference_mode()
def teacher_forced(
    model: Any,
    inputs: Mapping[str, Any],
    tokens: Sequence[int],
    *,
    prefill: Prefill | None = None,
    processors: Sequence[Any] = (),
    stepwise: bool = False,
) -> Tensor:
    """Probabilities with which the model would choose each of `tokens`, `[tokens, vocab]`, fp32.

    The prompt is prefilled and the text is one block behind it, at the positions that incremental
    decoding gives it. Entry i is the distribution behind the prompt and the first i tokens.

    Raises:
        SoonerError: no tokens, or more than one prompt.
    """
    adapter = adapt(model)
    model_inputs = to_device(inputs, adapter.device)
    rows = model_inputs["input_ids"].shape[0]
    if rows != 1 or not len(tokens):
        raise SoonerError(
            f"fidelity reads one text behind one prompt, but got {len(tokens)} tokens and {rows} "
            "prompts; call it once for each"
        )
    with prefill(model) if prefill is not None else nullcontext():
        prompt = adapter.embed_prompt(model_inputs)
        runner = ModelRunner(adapter, prompt.width + len(tokens))
        logits = [runner.prefill(prompt).logits]
        text_ids = torch.as_tensor(tokens[:-1], device=adapter.device)[None]  # [1, tokens - 1]
        for block in text_ids.split(1 if stepwise else max(1, text_ids.shape[1]), 1):
            if block.shape[1]:
                logits.append(runner.forward_chain(block).logits)
                runner.commit([list(range(block.shape[1]))])
    processing = Processing(
        params_of(processors, (), 0, 1, do_sample=True).rows(1), prompt=model_inputs["input_ids"]
    )
    prompt_ids = model_inputs["input_ids"][0].tolist()
    tree = Tree.chain(text_ids, [text_ids.shape[1]])
    scores = processing.scores(torch.cat(logits, 1), lambda: Paths.of(tree), lambda row: prompt_ids)
    return processing.probabilities(scores)[0]
