"""Steps that are launched as graphs return all that steps return which are not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

import tiny
from method_matrix import METHODS
from recorders import StandIn
from sooner.decoding import loop
from sooner.decoding.step import read
from sooner.generation import session_of
from sooner.graphs.steps import StepGraphs
from sooner.request import TokenLogprobs


class InPlace(LogitsProcessor):
    """Writes to the scores that it is given."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.div_(2.0).masked_fill_(scores < scores.amax(-1, keepdim=True) - 1, -torch.inf)


WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "top-1": {"do_sample": True, "top_k": 1, "temperature": 0.7, "seed": 3},
    "drawn": {"do_sample": True, "top_k": 20, "temperature": 0.8, "seed": 5},
    "penalty": {"do_sample": False, "repetition_penalty": 1.3},
    "in place": {"do_sample": False, "logits_processor": LogitsProcessorList([InPlace()])},
}
DRAWN = ("greedy", "top-1", "drawn")
"""Ways of the slowest, whose head reads layers."""
NAMES = (
    "plain", "prompt-lookup", "noisy-4", "sd-tree", "sparse-to-dense", "eagle", "eagle-chain",
    "eagle3", "hsd", "jacobi-4", "dflash", "ddtree",
)  # fmt: skip
"""Methods whose drafts no clock decides: chains, trees, and heads that read the target's layers."""


@dataclass
class Results:
    """What the steps of a run returned, and what was told of it.

    Attributes:
        tensors: of each step and row: logits, scores and states of the real entries, and the path.
        reports: of each step and row.
        logprobs: raw log-probabilities of each row's tokens, told by `on_logits`.
    """

    tensors: list[list[Tensor]] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)
    logprobs: list[tuple[int, int, float]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def keep(self, tree: Any, judged: Any, forward: Any) -> None:
        self.reports += read(judged.report, judged.depth)
        kept = judged.committed
        for row, size in enumerate((tree.sizes + 1).tolist()):
            entries = kept.entries[row]
            found = (
                forward.logits[row, :size].float(), judged.scores[row, :size],
                forward.hidden[row, :size], kept.path[row, : int(entries) - 1], entries,
            )  # fmt: skip
            self.tensors.append([one.clone() for one in found])  # the next step writes there


def results(
    family: str, name: str, graphs: Any, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Results:
    found = Results()

    def watched(take: Any, tree_at: int) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            judged, forward = take(*args, **kwargs)
            found.keep(args[tree_at], judged, forward)
            return judged, forward

        return step

    session = session_of(
        tiny.model(family), tiny.inputs(family, tiny.kinds(family)[-1], 3), METHODS[name](family),
        graphs=graphs, max_new_tokens=14, eos_token_id=None, **options,
    )  # fmt: skip

    def on_logits(row: int, tokens: list[int], logits: Tensor) -> None:
        told = TokenLogprobs.of(logits, tokens, 2)
        found.logprobs += [(row, one.token, one.logprob) for one in told]

    session.on_logits = on_logits
    with monkeypatch.context() as patch:
        patch.setattr(StepGraphs, "step", watched(StepGraphs.step, 2))
        patch.setattr(loop, "step", watched(loop.step, 1))
        loop.run(session)
    stats = session.stats
    found.notes = list(stats.notes)
    found.counts = [stats.nfe, stats.tokens, stats.num_draft_tokens]
    found.counts.append(stats.num_accepted_draft_tokens)
    return found


@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for name in NAMES for way in WAYS if name != "eagle3" or way in DRAWN],
)
def test_a_step_returns_the_same_as_a_graph(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, recorder = "qwen2_5_vl" if name in ("noisy-4", "eagle3") else "llama", StandIn()
    graphed = results(family, name, recorder, monkeypatch, **WAYS[way])
    eager = results(family, name, "off", monkeypatch, **WAYS[way])
    assert recorder.replayed > 0
    assert graphed.reports == eager.reports
    torch.testing.assert_close(graphed.tensors, eager.tensors, rtol=1e-4, atol=1e-4)
    assert [one[:2] for one in graphed.logprobs] == [one[:2] for one in eager.logprobs]
    values = [torch.tensor([one[2] for one in each.logprobs]) for each in (graphed, eager)]
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-4)
    assert float(values[0].max()) < -0.1, "no processed score: that of a top-1 would be 0"
    assert graphed.notes == eager.notes
    assert graphed.counts == eager.counts
