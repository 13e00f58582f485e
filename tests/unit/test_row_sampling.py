"""Sampling settings as tensors against HF's logits processors: row by row, entry by entry, bit by
bit."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process as hf

from sooner.engine import row_sampling
from sooner.engine.hf_border import params_of
from sooner.engine.noise import RowNoise
from sooner.engine.row_sampling import RowParams
from sooner.engine.sampling import Processing
from sooner.engine.tree import Paths, Tree
from sooner.errors import SoonerError

VOCAB, ROWS, PROMPT = 40, 4, 6
PARENTS = [[-1, -1, 0, 2, 1, 2], [-1, 0, 1, 2, 3], [], [-1, -1, -1]]


class OutputPenalty(LogitsProcessor):
    """OpenAI's presence and frequency penalties, as a processor of transformers would have them."""

    def __init__(self, presence: float, frequency: float, width: int = PROMPT) -> None:
        self.presence, self.frequency, self.width = presence, frequency, width

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        output = input_ids[:, self.width :]
        counts = torch.zeros_like(scores).scatter_add_(
            1, output, torch.ones_like(output).to(scores)
        )
        return scores - self.frequency * counts - self.presence * (counts > 0)


def row_params(processors: Any, draws: bool, rows: int) -> list[RowParams]:
    """The rows' parameters of processors, the output's penalties among them."""
    values: dict[str, Any] = {"do_sample": draws}
    for penalty in (each for each in processors if isinstance(each, OutputPenalty)):
        values |= {
            "presence_penalty": penalty.presence, "frequency_penalty": penalty.frequency,
        }  # fmt: skip
    others = [each for each in processors if not isinstance(each, OutputPenalty)]
    return params_of(others, (), PROMPT, rows, **values).rows(rows)


def in_order(processors: list[Any]) -> LogitsProcessorList:
    """The processors with the output's penalties behind those that a step applies before."""
    penalties = [each for each in processors if isinstance(each, OutputPenalty)]
    others = [each for each in processors if not isinstance(each, OutputPenalty)]
    host_and_warpers = params_of(others, (), PROMPT, 1).processors
    first = next((at for at, each in enumerate(others) if each in host_and_warpers), None)
    if first is None:
        kinds = (hf.TemperatureLogitsWarper, hf.TopKLogitsWarper, hf.TopPLogitsWarper,
                 hf.MinPLogitsWarper)  # fmt: skip
        first = sum(not isinstance(each, kinds) for each in others)
    return LogitsProcessorList([*others[:first], *penalties, *others[first:]])


def penalty_of(factor: float, ignored: int) -> LogitsProcessor:
    """HF's penalty; before transformers 5.23 it takes one number of ids for all rows."""
    try:
        return hf.RepetitionPenaltyLogitsProcessor(factor, torch.tensor([ignored]))
    except ValueError:
        return hf.RepetitionPenaltyLogitsProcessor(factor, ignored)


def random_processors(rng: random.Random) -> list[Any]:
    """In the order in which `generate` applies them, about half of each missing; now and then one
    that has no equivalent by row stands between them."""
    tokens = rng.sample(range(1, VOCAB), 6)  # 5.17 refuses a bias of id 0
    makers = [
        lambda: hf.SequenceBiasLogitsProcessor(
            [[[tokens[0]], rng.uniform(-4, 4)], [[tokens[1]], rng.uniform(-4, 4)]]
        ),
        lambda: penalty_of(rng.uniform(0.5, 2.0), rng.randrange(3)),
        lambda: hf.NoBadWordsLogitsProcessor([[tokens[2]], [tokens[3]]]),
        lambda: hf.SuppressTokensLogitsProcessor([tokens[2], tokens[4]]),
        lambda: OutputPenalty(rng.uniform(-2, 2), rng.uniform(-2, 2)),
        lambda: hf.NoRepeatNGramLogitsProcessor(2),
        lambda: hf.TypicalLogitsWarper(0.9),
        lambda: hf.TemperatureLogitsWarper(rng.uniform(0.3, 2.0)),
        lambda: hf.TopKLogitsWarper(rng.randrange(1, 60)),
        lambda: hf.TopPLogitsWarper(rng.uniform(0.2, 0.99)),
        lambda: hf.MinPLogitsWarper(rng.uniform(0.01, 0.3)),
        lambda: hf.EtaLogitsWarper(0.01),
    ]
    chosen = [make() for make in makers if rng.random() < 0.5]
    if rng.random() < 0.2:
        rng.shuffle(chosen)
    return chosen


def paths_of(tree: Tree, row: int) -> list[list[int]]:
    """Tokens drafted above each entry, the entry's own last."""
    paths: list[list[int]] = [[]]
    for node, parent in enumerate(PARENTS[row]):
        paths.append([*paths[parent + 1], int(tree.tokens[row, node])])
    return paths


def random_tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(12) for _ in range(count)]


@pytest.mark.parametrize("numbers", [row_sampling.MAX_NUMBERS, 2 * ROWS * VOCAB])
@pytest.mark.parametrize("seed", range(60))
def test_scores_are_those_of_hfs_processors(
    seed: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of different requests, drawn and greedy; also after some of them have left, and where
    two entries are processed at a time."""
    monkeypatch.setattr(row_sampling, "MAX_NUMBERS", numbers)
    rng = random.Random(seed)
    draws = [True, rng.random() < 0.5, True, rng.random() < 0.8]
    prompts = [random_tokens(rng, PROMPT) for _ in range(ROWS)]
    processors = [random_processors(rng) for _ in range(ROWS)]
    batches = [
        Processing(row_params(item, draw, 1), prompt=torch.tensor([prompt]))
        for item, draw, prompt in zip(processors, draws, prompts, strict=True)
    ]
    texts = [random_tokens(rng, 5 * row) for row in range(ROWS)]
    for batch, text in zip(batches, texts, strict=True):
        batch.scores(torch.zeros(1, 1, VOCAB), prefix=lambda row: prompts[0])  # behind the prompt
        batch.count(torch.tensor([[*text, 0]]), torch.tensor([len(text)]))
    whole = batches[0]
    for batch in batches[1:]:
        whole.merge(batch)
    tree = Tree.from_lists([random_tokens(rng, len(row)) for row in PARENTS], PARENTS)
    logits = 3 * torch.randn(
        ROWS, 1 + tree.nodes, VOCAB, generator=torch.Generator().manual_seed(seed)
    )
    stay = list(range(ROWS))
    for _ in range(3):
        rows = torch.tensor(stay)
        left = tree.select_rows(rows)
        scores = whole.scores(
            logits[rows], lambda left=left: Paths.of(left),
            lambda row, stay=stay: prompts[stay[row]] + texts[stay[row]],
        )  # fmt: skip
        someone_draws = any(draws[row] for row in stay)
        for line, row in enumerate(stay):
            known: dict[tuple[int, ...], Tensor] = {}
            for entry, path in enumerate(paths_of(tree, row)):
                if tuple(path) in known:
                    continue  # siblings differ; this one is padding
                if path and (above := known.get(tuple(path[:-1]))) is not None:
                    if above[path[-1]] == -torch.inf:
                        continue  # it can't be said, so nobody asks what follows
                elif path:
                    continue
                ids = torch.tensor([prompts[row] + texts[row] + path])
                item = in_order(processors[row])(ids, logits[row, entry][None].clone())[0]
                known[tuple(path)] = item
                if draws[row] == someone_draws:
                    assert torch.equal(scores[line, entry], item), (row, entry)
                else:
                    assert scores[line, entry].isfinite().nonzero().tolist() == [[item.argmax()]]
        places = [place for place in range(len(stay)) if place != rng.randrange(len(stay))] or [0]
        whole.select_rows(places)
        stay = [stay[place] for place in places]


def processing(*processors: Any, draws: bool = True, rows: int = 1) -> Processing:
    prompt = torch.zeros(rows, 1, dtype=torch.long)
    return Processing(row_params(processors, draws, rows), prompt=prompt)


def test_draws_are_the_same_whatever_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = 3 * torch.randn(ROWS, 5, VOCAB, generator=torch.Generator().manual_seed(1))
    tree = Tree.chain(torch.zeros(ROWS, 4, dtype=torch.long), [4] * ROWS)
    noise = RowNoise.start(7, torch.arange(ROWS))
    whole = Processing(do_sample=True).choose(scores, tree, noise)
    for entries in (1, 2, 4):
        monkeypatch.setattr(row_sampling, "MAX_NUMBERS", entries * ROWS * VOCAB)
        assert torch.equal(Processing(do_sample=True).choose(scores, tree, noise), whole)


def test_what_a_step_can_do_itself_asks_nothing_of_the_host() -> None:
    batch = processing(
        hf.SequenceBiasLogitsProcessor([[[3], 1.0]]), hf.RepetitionPenaltyLogitsProcessor(1.3),
        OutputPenalty(0.5, 0.1), hf.TemperatureLogitsWarper(0.7), hf.TopKLogitsWarper(5),
        hf.TopPLogitsWarper(0.9), hf.MinPLogitsWarper(0.1),
    )  # fmt: skip
    assert batch.costs is None
    batch.scores(torch.randn(1, 1, VOCAB), prefix=lambda row: pytest.fail("read"))


def test_bad_logits_of_a_greedy_row_stay_bad_among_rows_that_draw() -> None:
    batch = processing(draws=False)
    batch.merge(processing(draws=True))
    logits = torch.zeros(2, 1, VOCAB)
    logits[0, 0, 3] = torch.nan
    assert batch.broken(batch.scores(logits)[:, 0]).tolist() == [True, False]


def test_a_bias_of_a_token_that_is_none_is_refused_by_number() -> None:
    with pytest.raises(SoonerError, match=f"token {VOCAB}"):
        processing(hf.SequenceBiasLogitsProcessor([[[VOCAB], 1.0]])).scores(
            torch.zeros(1, 1, VOCAB)
        )


def test_penalties_forget_rows_that_left() -> None:
    batch = processing(OutputPenalty(1.0, 0.0))
    batch.scores(torch.zeros(1, 1, VOCAB))  # behind the prompt
    batch.merge(processing())
    batch.count(torch.tensor([[4], [4]]), torch.tensor([1, 1]))
    assert batch.scores(torch.zeros(2, 1, VOCAB))[:, 0, 4].tolist() == [-1.0, 0.0]
    batch.select_rows([1])
    logits = torch.zeros(1, 1, VOCAB)
    assert batch.scores(logits) is logits


def test_a_parallel_draft_counts_its_text() -> None:
    batch = processing(OutputPenalty(0.0, 1.0))
    for text in ([4, 4, 5], [4]):
        batch.recount([text], VOCAB)
        scores = batch.scores(torch.zeros(1, 1, VOCAB))
        assert [-scores[0, 0, token] for token in (4, 5)] == [text.count(4), text.count(5)]
