"""The simulators against a brute-force loop by ticks, closed forms, and figure 8."""

from __future__ import annotations

import brute
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import diagonal
from sooner.errors import SoonerError
from sooner_lab.theory import (
    Agreement,
    Curve,
    StepCosts,
    free_running,
    parallel,
    plain,
    renewal,
    vanilla,
)
from sooner_lab.theory.pipeline import SimulatedRun

VERDICTS = st.lists(st.booleans(), min_size=1, max_size=24)


@st.composite
def machines(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """T_p of one token, what each further token adds, T_q, transfer; whole seconds."""
    base = draw(st.integers(1, 12))
    return base, draw(st.integers(0, 2)), draw(st.integers(1, 6)), draw(st.integers(0, 4))


def costs_of(machine: tuple[int, int, int, int]) -> StepCosts:
    base, more, tq, x = machine
    return StepCosts(lambda n: base + more * (n - 1), tq, x)


def assert_same(run: SimulatedRun, tally: brute.Tally, *, drafted: bool = True) -> None:
    assert tally.text == list(range(run.tokens))
    assert run.seconds == tally.time
    assert run.steps == tally.steps
    assert run.accepted == tally.accepted
    assert list(run.runs) == tally.all_runs()
    if drafted:
        assert run.drafted == tally.drafted


@given(machines(), VERDICTS, st.integers(1, 7), st.integers(1, 40), st.data())
def test_lockstep_is_the_brute_force_loop(machine, verdicts, window, tokens, data) -> None:
    base, more, tq, x = machine
    bonus, cancel = data.draw(st.booleans()), data.draw(st.booleans())
    startup = data.draw(st.integers(0, window))
    run = parallel(
        costs_of(machine),
        Agreement(tuple(verdicts)),
        window,
        tokens,
        bonus=bonus,
        cancel=cancel,
        startup=startup,
    )
    tally = brute.lockstep(
        lambda n: base + more * (n - 1), tq, x, verdicts, window, tokens, bonus, cancel, startup
    )
    # The last window is cut by the end of the text, so only its count may differ.
    assert_same(run, tally, drafted=False)
    assert 0 <= run.drafted - tally.drafted <= window


@given(machines(), VERDICTS, st.none() | st.integers(1, 9), st.integers(1, 40), st.data())
def test_free_running_is_the_brute_force_loop(machine, verdicts, window, tokens, data) -> None:
    base, more, tq, x = machine
    startup = data.draw(st.integers(0, 5 if window is None else window))
    run = free_running(
        costs_of(machine), Agreement(tuple(verdicts)), tokens, window, startup=startup
    )
    assert_same(
        run, brute.free(lambda n: base + more * (n - 1), tq, x, verdicts, tokens, window, startup)
    )


@given(VERDICTS, st.integers(1, 6), st.integers(1, 5), st.integers(1, 60))
def test_free_running_is_lockstep_where_the_ratio_is_whole(verdicts, c, tq, tokens) -> None:
    agreement, costs = Agreement(tuple(verdicts)), StepCosts(c * tq, tq)
    free = free_running(costs, agreement, tokens)
    locked = parallel(costs, agreement, c, tokens)
    assert (free.seconds, free.steps, free.runs) == (locked.seconds, locked.steps, locked.runs)


@given(machines(), VERDICTS, st.integers(1, 6), st.integers(1, 40))
def test_shares_and_runs_fit_the_figures(machine, verdicts, window, tokens) -> None:
    costs, agreement = costs_of(machine), Agreement(tuple(verdicts))
    runs = (
        plain(costs, tokens),
        vanilla(costs, agreement, window, tokens),
        parallel(costs, agreement, window, tokens),
        free_running(costs, agreement, tokens),
    )
    for run in runs:
        assert sum(run.runs) == run.tokens == tokens
        assert 0 < run.target_utilisation <= 1
        assert 0 <= run.draft_utilisation <= 1
        assert run.mean_acceptance_length == pytest.approx(tokens / run.steps)


@given(VERDICTS, st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.integers(0, 3))
def test_free_running_is_never_slower_than_plain(verdicts, tokens, tp, tq, x) -> None:
    """With flat step times: every forward of the target commits a token or more."""
    assert free_running(StepCosts(tp, tq, x), Agreement(tuple(verdicts)), tokens).speedup >= 1


@pytest.mark.parametrize(
    ("rate", "gamma", "c"),
    diagonal([0.0, 0.2, 0.5, 0.8, 0.9, 0.97, 1.0], [1, 2, 5, 9], [1.7, 5.0, 9.0]),
)
def test_simulators_give_the_closed_forms(rate: float, gamma: int, c: float) -> None:
    costs, agreement, tokens = StepCosts(c, 1.0), Agreement.even(rate, 20_000), 20_000

    def exact(time: float) -> object:
        return pytest.approx(c / time, rel=0.012)

    run = vanilla(costs, agreement, gamma, tokens)
    assert run.speedup == exact(renewal.vanilla_time(c, gamma, rate))
    for bonus in (True, False):
        run = parallel(costs, agreement, gamma, tokens, bonus=bonus, cancel=False)
        assert run.speedup == exact(renewal.parallel_time(c, gamma, rate, bonus))


def test_figure_8() -> None:
    """Seven tokens, the first from the prefill, in three target forwards; longest run five."""
    agreement = Agreement((True, True, True, True, False, False))
    run = parallel(StepCosts(3, 1), agreement, 3, 6, bonus=False, cancel=False, startup=3)
    assert (run.tokens, run.steps, run.seconds) == (6, 3, 9.0)
    assert run.runs == (5, 1)  # four drafts after "The", and "for"; then "speedup"


def test_cancelling_and_the_bonus_check_never_hurt() -> None:
    for seed in range(5):
        agreement = Agreement.even(0.7, 400, seed)
        costs = StepCosts(3.5, 1.0)
        literal = parallel(costs, agreement, 6, 400, bonus=False, cancel=False).seconds
        checking = parallel(costs, agreement, 6, 400, cancel=False).seconds
        assert parallel(costs, agreement, 6, 400).seconds < checking < literal


def test_curves() -> None:
    curve = Curve.of({5: 2.0, 1: 1.0, 9: 1.5})
    assert [curve(n) for n in (1, 3, 5, 7, 9)] == [1.0, 1.5, 2.0, 1.75, 1.5]
    assert curve(100) == 1.5
    assert Curve.of({1: 1.0, 2: 1.5})(4) == 2.5
    assert Curve.of({4: 3.0})(1) == Curve.of({4: 3.0})(50) == 3.0


def test_agreements() -> None:
    assert Agreement.from_runs([2, 0]).verdicts == (True, True, False, False)
    assert Agreement.from_token_runs([3, 1]) == Agreement.from_runs([2, 0])
    assert Agreement((True, False)).run_from(4) == 1
    assert Agreement((True,)).run_from(7) > 10**9
    for rate in (0.3, 0.85, 0.99):
        assert Agreement.even(rate, 20_000).rate == pytest.approx(rate, abs=2e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepCosts(0, 1), "target step takes 0 s"),
        (lambda: StepCosts(1, -1), "draft step takes -1 s"),
        (lambda: StepCosts(1, float("nan")), "draft step takes nan s"),
        (lambda: StepCosts(1, 1, -2), "transfer takes -2 s"),
        (lambda: Curve(()), "step times are known at"),
        (lambda: Curve(((3, 1.0), (2, 1.0))), "give rising sizes"),
        (lambda: Agreement(()), "without verdicts"),
        (lambda: Agreement.from_runs([-1]), "run length is -1"),
        (lambda: Agreement.even(1.5, 10), "acceptance rate is 1.5"),
        (lambda: vanilla(StepCosts(1, 1), Agreement((True,)), 0, 5), "num_draft_tokens is 0"),
        (lambda: plain(StepCosts(1, 1), 0), "0 tokens to decode"),
        (lambda: parallel(StepCosts(1, 1), Agreement((True,)), 2, 5, startup=3), "startup is 3"),
        (
            lambda: free_running(StepCosts(1, 1), Agreement((True,)), 5, 2, startup=3),
            "startup is 3",
        ),
    ],
)
def test_nonsense_is_refused_in_a_single_line(make, message: str) -> None:
    with pytest.raises(SoonerError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
