"""Simulators that go round by round: plain, vanilla SD, and algorithm 1's parallel SD."""

from __future__ import annotations

from sooner.errors import SoonerError

from .agreement import Agreement
from .costs import StepCosts
from .pipeline import Ledger, SimulatedRun


def plain(costs: StepCosts, tokens: int) -> SimulatedRun:
    """One target forward a token."""
    ledger = Ledger(costs, tokens, None)
    now = 0
    while ledger.left:
        now = ledger.target(now, 0)
        ledger.commit(1, 0, rejected=False)
    return ledger.close("plain", now)


def vanilla(
    costs: StepCosts, agreement: Agreement, num_draft_tokens: int, tokens: int
) -> SimulatedRun:
    """Draft some tokens, send them, verify, send the verdict, and so on (figure 2 a).

    With `n` drafts a round takes `n · T_q + T_p(n + 1)` and two transfers, and commits the drafts
    before the first that fails and one token of the target's.

    Raises:
        SoonerError: num_draft_tokens or tokens below 1.
    """
    ledger = Ledger(costs, tokens, num_draft_tokens)
    now = 0
    while ledger.left:
        good = min(agreement.run_from(ledger.position), num_draft_tokens)
        drafted = now + num_draft_tokens * costs.draft_ns
        ledger.draft(now, drafted, num_draft_tokens)
        now = ledger.target(drafted + costs.transfer_ns, num_draft_tokens)
        ledger.commit(good + 1, good, rejected=good < num_draft_tokens)
        now += costs.transfer_ns if ledger.left else 0
    return ledger.close("vanilla", now)


def parallel(
    costs: StepCosts,
    agreement: Agreement,
    num_draft_tokens: int,
    tokens: int,
    *,
    bonus: bool = True,
    cancel: bool = True,
    startup: int = 0,
) -> SimulatedRun:
    """Algorithm 1: each round, the target verifies one window while the draft makes the next.

    A round with nothing waiting is the pre-verify: its one distribution checks the first token of
    the window in the making, which then waits with one token less. Otherwise the round is the
    post-verify. Both sides meet at its end, `max(n · T_q, T_p)` and one transfer later.

    Args:
        costs, agreement, num_draft_tokens, tokens: as everywhere.
        bonus: the bonus distribution of a wholly accepted window checks the first token of the
            window drafted meanwhile, as PEARL's code does and ours; without it a post-verify
            commits the window alone, as algorithm 1 reads.
        cancel: a window known to be dead is dropped as soon as the draft forward under way ends;
            without it the draft finishes the window, as in the paper.
        startup: draft tokens that wait when decoding begins (made during the prefill).

    Raises:
        SoonerError: num_draft_tokens or tokens below 1, startup outside 0 to the former.
    """
    ledger = Ledger(costs, tokens, num_draft_tokens)
    if not 0 <= startup <= num_draft_tokens:
        raise SoonerError(
            f"startup is {startup} tokens; it must lie between 0 and {num_draft_tokens}"
        )
    now, waiting = 0, startup
    while ledger.left:
        verified = ledger.target(now, waiting)
        good = min(agreement.run_from(ledger.position), waiting)
        dead, known = good < waiting, verified
        checks_next = not dead and (bonus or not waiting)
        if checks_next:  # the first token made this round is judged as soon as it is there, too
            known = max(verified, now + costs.draft_ns)
            dead = not agreement.at(ledger.position + waiting)
        ledger.commit(
            good + (dead or checks_next), good + (checks_next and not dead), rejected=dead
        )
        drafted = _draft_end(costs, num_draft_tokens, now, known if dead and cancel else None)
        ledger.draft(now, drafted, (drafted - now) // costs.draft_ns)
        waiting = 0 if dead else num_draft_tokens - checks_next
        if not ledger.left:
            return ledger.close("parallel", known)
        now = max(known, drafted) + costs.transfer_ns
    raise AssertionError("unreachable")


def _draft_end(costs: StepCosts, num_draft_tokens: int, start: int, known: int | None) -> int:
    """When the draft is free again; a window known dead at `known` ends with its forward."""
    forwards = num_draft_tokens
    if known is not None:
        forwards = min(num_draft_tokens, -((start - known) // costs.draft_ns))
    return start + forwards * costs.draft_ns
