"""The script of `sooner bench replay`, the decoders that follow it, and theory on it."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise

import pytest
import torch

from sooner.engine.runner import Forward, ModelRunner
from sooner_lab.bench.replay.arms import Decoders
from sooner_lab.bench.replay.expected import Theory
from sooner_lab.bench.replay.models import CODE, ReplayAdapter
from sooner_lab.bench.replay.script import LogitTable, Process, Script
from sooner_lab.bench.replay.settings import CONTINUATIONS, ReplaySettings
from sooner_lab.bench.replay.steps import ForwardTimes, pooled
from sooner_lab.theory import Curve, renewal

SMALL = ReplaySettings(
    layers=2, width=32, draft_layers=1, draft_width=32, vocab=512, new_tokens=48, prompt_tokens=64,
    rows=(1,),
)  # fmt: skip


@pytest.fixture(scope="module")
def decoders() -> Decoders:
    return Decoders(SMALL)


def script(acceptance: float, correlation: float = 0.0, vocab: int = 40_000) -> Script:
    return Script.draw(Process(acceptance, correlation), vocab, vocab // 100, seed=1)


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("acceptance", [0.5, 0.8, 0.95])
def test_the_script_is_the_process(acceptance: float, correlation: float) -> None:
    """Each segment has its share of wrong tokens; neighbours are as alike as they should be."""
    made = script(acceptance, correlation)
    right = [rank == 0 for rank in made.used]
    for number in range(made.segments):
        wrong = sum(not right[token] for token in made.text(number))
        assert wrong == pytest.approx(made.segment * (1 - acceptance), abs=1)
    pairs = list(pairwise(right))
    after_right = sum(two for is_right, two in pairs if is_right) / sum(
        is_right for is_right, _ in pairs
    )
    assert after_right == pytest.approx(acceptance + correlation * (1 - acceptance), abs=0.01)
    runs = [len(list(group)) for right_run, group in groupby(right) if not right_run]
    again = (1 - acceptance) + correlation * acceptance
    assert sum(runs) / len(runs) == pytest.approx(1 / (1 - again), rel=0.04)
    # M = 1 / (1 - a), whatever the pattern.
    assert len(right) / right.count(False) == pytest.approx(1 / (1 - acceptance), rel=0.01)


def test_ranks_have_their_chances() -> None:
    made = script(0.6)
    chances = made.process.chances()
    assert sum(chances) == pytest.approx(1, abs=0.01)
    for rank, chance in enumerate(chances):
        assert made.used.count(rank) / len(made.used) == pytest.approx(chance, abs=0.005)


def test_a_rough_copy_is_wrong_where_the_draft_is() -> None:
    made = Script.draw(Process(0.7), SMALL.vocab, SMALL.new_tokens, seed=3)
    table = LogitTable.of_draft(made)
    for number in range(made.segments):
        text, rough = made.text(number), made.rough(number)
        output_ids = [int(table.ids[(token - 1) % made.vocab, 0]) for token in text]
        assert rough == output_ids
        assert [token_id == two for token_id, two in zip(text, rough, strict=True)] == [
            made.ranks[token] == 0 for token in text
        ]
        assert not (set(rough) - set(text)) & set(text)


def test_a_table_ranks_distinct_tokens() -> None:
    made = Script.draw(Process(0.6), 512, 48, seed=3)
    table = LogitTable.of_draft(made)
    assert all(len(set(row)) == CONTINUATIONS for row in table.ids.tolist())
    assert table.logits.tolist() == sorted(table.logits.tolist(), reverse=True)
    for token in range(made.vocab):
        row, rank = table.ids[(token - 1) % made.vocab].tolist(), made.ranks[token]
        assert (row.index(token) if token in row else CONTINUATIONS) == rank


def forward(adapter: ReplayAdapter, ids: torch.Tensor, block: torch.Tensor) -> Forward:
    runner = ModelRunner(adapter, ids.shape[1] + block.shape[1])
    with torch.inference_mode():
        runner.prefill(adapter.embed_prompt({"input_ids": ids}))
        return runner.forward_chain(block)


def test_a_script_shows_in_the_logits_of_its_model_alone(decoders: Decoders) -> None:
    """The target's logits are the same whatever the draft's script is."""
    ids = torch.randint(0, 512, (2, 20), generator=torch.Generator().manual_seed(1))
    block = torch.randint(0, 512, (2, 5), generator=torch.Generator().manual_seed(2))
    target = forward(decoders.target, ids, block).logits
    assert target.argmax(-1).tolist() == ((block + 1) % 512).tolist()
    for seed in (1, 2):
        made = Script.draw(Process(0.6), 512, 48, seed)
        draft = forward(decoders.draft(made), ids, block).logits.topk(CONTINUATIONS).indices
        assert draft.tolist() == LogitTable.of_draft(made).ids[block].tolist()
        assert torch.equal(forward(decoders.target, ids, block).logits, target)
        headed = forward(decoders.target_of_head(made), ids, block).logits
        assert headed.argmax(-1).tolist() == target.argmax(-1).tolist()
        assert bool((headed.topk(2).values[..., 1] < 20).all()), "the head's script is not there"


def test_what_is_in_no_script_is_the_decoders_output(decoders: Decoders) -> None:
    ids = torch.randint(0, 512, (2, 20), generator=torch.Generator().manual_seed(1))
    block = torch.randint(0, 512, (2, 5), generator=torch.Generator().manual_seed(2))
    made = forward(decoders.target, ids, block)
    with torch.inference_mode():
        expected = decoders.target_model.get_output_embeddings()(made.hidden)
        states = decoders.target_model.model(torch.cat([ids, block], 1)).last_hidden_state[:, -5:]
    assert ((made.logits != expected).sum(-1) == 1).all(), "one logit of each entry is written over"
    # Attention, cache and layers are real: states are the model's, but for the written channels.
    torch.testing.assert_close(made.hidden[..., CODE:], states[..., CODE:])


def test_after_a_wrong_token_only_a_guessing_target_guesses(
    decoders: Decoders,
) -> None:
    made = Script.draw(Process(0.7), 512, 48, seed=4)
    ids = torch.arange(20)[None].repeat(64, 1)
    roots = torch.arange(64)[:, None] * 5
    block = (roots + torch.tensor([0, 1, 300, 3, 4, 5])) % 512  # wrong from the third on
    expected = (roots + torch.arange(1, 7)) % 512
    output = forward(decoders.guessing_target(made), ids, block).logits.argmax(-1)
    right = output == expected
    assert right[:, :2].all(), "the prefix is right"
    assert float(right[:, 2:].float().mean()) == pytest.approx(0.7, abs=0.08)
    plain = forward(decoders.target, ids, block).logits.argmax(-1)
    assert (plain == (block + 1) % 512).all()


def flat(target: float) -> ForwardTimes:
    """Seconds of a target whose forwards take as long whatever they hold, and of its draft."""
    return ForwardTimes(Curve.of({1: target, 33: target}), Curve.of({1: 1.0}))


@pytest.mark.parametrize("acceptance", [0.5, 0.8, 0.95])
def test_theory_is_leviathans_equation_and_that_of_lock_step_rounds(acceptance: float) -> None:
    """A text of twenty thousand tokens is long enough for the means."""
    made = Script.draw(Process(acceptance), 40_000, 20_000, seed=1)
    settings = replace(SMALL, new_tokens=20_000, prompt_tokens=20_001, vocab=65_000, texts=1)
    theory = Theory(made, {1: flat(6.0)}, settings, rows=1)
    chain = theory.chain(5)
    assert chain.speedup == pytest.approx(6.0 / renewal.vanilla_time(6.0, 5, acceptance), rel=0.03)
    assert chain.tokens == pytest.approx((1 - acceptance**6) / (1 - acceptance), rel=0.03)
    assert theory.of("speculative-best").speedup >= chain.speedup
    single = theory.of("parallel")
    length = renewal.best_draft_length(6.0, acceptance)
    expected = 6.0 / renewal.parallel_time(6.0, length, acceptance)
    assert single.speedup == pytest.approx(expected, rel=0.06)


def test_an_arm_that_may_rest_is_never_below_plain() -> None:
    dear = ForwardTimes(Curve.of({1: 1.0, 17: 8.0}), Curve.of({1: 1.0}))
    made = Theory(script(0.5), {1: dear}, SMALL, rows=1)
    auto, best = made.of("speculative-auto"), made.of("speculative-best")
    assert (auto.speedup, auto.draft_tokens) == (1.0, 0)
    assert best.speedup < 1
    assert best.draft_tokens == 1
    assert Theory(script(0.5), {8: dear}, SMALL, rows=8).of("parallel") is None
    assert made.of("eagle") is None


ALONE = ForwardTimes(Curve.of({1: 2.0, 3: 3.0}), Curve.of({1: 0.5}))
PAIR = ForwardTimes(Curve.of({1: 4.0, 3: 7.0}), Curve.of({1: 1.0}))


def test_a_closed_batch_lasts_as_long_as_its_slowest_row() -> None:
    """Two rows have nine tokens each to generate; one has a perfect draft, one a useless one."""
    ranks = (*[0] * 10, *[CONTINUATIONS] * 10)
    made = Theory(Script(20, 10, ranks, Process(0.5)), {1: ALONE, 2: PAIR}, SMALL, rows=2)
    chain = made.chain(2)
    seconds = 3 * (2 * 1.0 + 7.0) + 6 * (2 * 0.5 + 3.0)
    assert chain.speedup == pytest.approx(9 * 4.0 / seconds)
    assert chain.tokens == pytest.approx(9 / ((3 + 9) / 2))


def test_forwards_over_rows_that_were_not_measured_lie_between() -> None:
    ranks = (*[0] * 20, *[CONTINUATIONS] * 10)  # two rows end after three rounds, one after nine
    few = {1: ALONE, 3: ForwardTimes(Curve.of({1: 6.0, 3: 9.0}), Curve.of({1: 1.5}))}
    three = Theory(Script(30, 10, ranks, Process(0.5)), few, SMALL, rows=3)
    seconds = 3 * (2 * 1.5 + 9.0) + 6 * (2 * 0.5 + 3.0)
    assert three.chain(2).speedup == pytest.approx(9 * 6.0 / seconds)
    two = (*[0] * 10, *[CONTINUATIONS] * 20)
    made = Theory(Script(30, 10, two, Process(0.5)), few, SMALL, rows=3)
    seconds = 3 * (2 * 1.5 + 9.0) + 6 * (2 * 1.0 + 6.0)  # of two rows: the mean of one and three
    assert made.chain(2).speedup == pytest.approx(9 * 6.0 / seconds)


def test_forwards_of_several_points_are_pooled_as_multiples_of_a_plain_step() -> None:
    """One point was measured while the machine was busy; its multiples are like the others'."""
    times = [
        {"target 1": {"seconds": plain}, "target 5": {"seconds": 1.2 * plain},
         "draft 1": {"seconds": 0.2 * plain}}
        for plain in (1.0, 5.0, 1.1)
    ]  # fmt: skip
    made = ForwardTimes.of(pooled(times))
    assert made.plain == pytest.approx(1.1)
    assert made.target(5) == pytest.approx(1.32)
    assert made.draft(1) == pytest.approx(0.22)
