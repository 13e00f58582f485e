"""Logits processors give the greedy output of HF's `generate`, whatever drafts and batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process as hf

import sooner
import tiny
from method_matrix import METHODS
from sooner.engine.hf_border import params_of
from sooner.engine.row_sampling import PREFIX_FREE
from sooner.engine.sampling import Processing

NEW = 16


def on_a_leash(batch: int, ids: torch.Tensor) -> list[int]:
    """Another set of tokens for each row, and for each last token."""
    return [token for token in range(tiny.VOCAB - 6) if (token + batch + int(ids[-1])) % 3]


@pytest.mark.parametrize("kind", PREFIX_FREE, ids=lambda kind: kind.__name__)
def test_what_is_run_without_prefixes_really_does_not_read_them(
    kind: type[LogitsProcessor],
) -> None:
    arguments = {
        hf.TemperatureLogitsWarper: (0.7,), hf.TopKLogitsWarper: (5,), hf.TopPLogitsWarper: (0.7,),
        hf.MinPLogitsWarper: (0.1,), hf.TypicalLogitsWarper: (0.8,),
        hf.EpsilonLogitsWarper: (0.01,), hf.EtaLogitsWarper: (0.01,),
        hf.SuppressTokensLogitsProcessor: ([3, 5],),
    }  # fmt: skip
    processor = kind(*arguments.get(kind, ()))
    logits = torch.randn(2, 3, 12)
    params = params_of([processor], (), 0, 2, do_sample=True).rows(2)
    ours = Processing(params).scores(logits, lambda: pytest.fail("read"))
    for row in range(2):
        for entry in range(3):
            expected = processor(torch.tensor([[row, entry, 7]]), logits[row, entry][None].clone())
            assert torch.equal(ours[row, entry], expected[0])


SYNTH_ID = hf.SynthIDTextWatermarkLogitsProcessor(
    ngram_len=5, keys=[1, 2, 3], sampling_table_size=16, sampling_table_seed=0,
    context_history_size=4, device=torch.device("cpu"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("processor", "word"),
    [
        (SYNTH_ID, "SynthID"),
        (hf.UnbatchedClassifierFreeGuidanceLogitsProcessor(1.5, None), "guidance_scale"),
    ],
    ids=["synthid", "guidance"],
)
def test_processors_with_a_state_are_refused_by_name(processor: LogitsProcessor, word: str) -> None:
    with pytest.raises(sooner.UnsupportedError, match=word) as caught:
        params_of([processor], (), 0, 1)
    assert type(processor).__name__ in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["parallel", "sd-tree", "eagle", "jacobi-4", "hsd", "stranger", "domino", "ddtree"]
)
def test_penalties_follow_every_kind_of_draft(name: str) -> None:
    """Chains, trees, windows and a draft that counts beside the loop; rows end apart."""
    model, inputs = tiny.model("llama"), tiny.inputs("llama", "text", 3)
    options = {
        "max_new_tokens": NEW, "do_sample": False, "repetition_penalty": 1.2,
        "presence_penalty": 0.5, "frequency_penalty": 0.4,
    }  # fmt: skip
    free = sooner.generate(model, inputs, **options, eos_token_id=None)
    bare = sooner.generate(model, inputs, max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    assert free.tokens != bare.tokens, "they should matter here"
    end = free.tokens[1][4]
    expected = sooner.generate(model, inputs, **options, eos_token_id=end)
    result = sooner.generate(model, inputs, METHODS[name]("llama"), **options, eos_token_id=end)
    assert result.tokens == expected.tokens


class Counting(LogitsProcessor):
    """Answers by how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return scores.index_fill(1, torch.tensor([self.calls % tiny.VOCAB]), torch.inf)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"logits_processor": LogitsProcessorList([Counting(), Counting()])}, ["Counting"]),
        ({"logits_processor": LogitsProcessorList([hf.TemperatureLogitsWarper(2.0)])}, []),
        ({"prefix_allowed_tokens_fn": on_a_leash}, ["PrefixConstrainedLogitsProcessor"]),
        ({"repetition_penalty": 2.0, "presence_penalty": 1.0, "bad_words_ids": [[1, 2]]}, []),
    ],
)
def test_processors_that_may_keep_a_state_are_named_once(
    options: dict[str, Any], names: list[str]
) -> None:
    made = sooner.generate(
        tiny.model("llama"), tiny.inputs("llama"), sooner.PromptLookup(), max_new_tokens=4,
        eos_token_id=None, do_sample=False, **options,
    )  # fmt: skip
    notes = [note for note in made.stats.notes if "with a state of its own" in note]
    assert [note.partition(":")[0] for note in notes] == names
