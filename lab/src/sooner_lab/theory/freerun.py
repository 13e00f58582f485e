"""Simulator of free-running parallel decoding: neither side waits for the other.

The draft goes on drafting whatever the target does; the target, each time it is free, verifies what
has arrived by then. Two lanes and the messages between them, as a discrete-event loop.
"""

from __future__ import annotations

import heapq

from sooner.errors import SoonerError

from .agreement import Agreement
from .costs import StepCosts
from .pipeline import Ledger, SimulatedRun

# What happens at one moment happens in this order: a token that arrives as the target becomes free
# is still taken, and a draft that becomes free as a verdict arrives follows the verdict.
_DRAFTED, _TOKEN, _VERIFIED, _VERDICT, _START = range(5)


def free_running(
    costs: StepCosts,
    agreement: Agreement,
    tokens: int,
    num_draft_tokens: int | None = None,
    *,
    startup: int = 0,
) -> SimulatedRun:
    """Simulate draft and target without lock-step; every target forward commits a token or more.

    When a verification ends with all its drafts accepted, its bonus distribution checks the next
    token, if that has arrived; if not, the target commits its own there, and the draft goes on
    behind it, from its own copy where the two agree. After a rejection the target starts its next
    forward at once (the pre-verify), while the verdict travels and the draft ends the forward it is
    in; the draft can't stop inside one.

    Args:
        costs, agreement, tokens: as everywhere.
        num_draft_tokens: that may wait for the target; with as many under way, as far as the draft
            knows, it idles. `None` is without limit.
        startup: draft tokens that wait when decoding begins.

    Raises:
        SoonerError: num_draft_tokens or tokens below 1, startup negative or above the former.
    """
    if startup < 0 or (num_draft_tokens is not None and startup > num_draft_tokens):
        raise SoonerError(f"startup is {startup} tokens; it must lie in 0 to {num_draft_tokens}")
    loop = _Loop(costs, agreement, Ledger(costs, tokens, num_draft_tokens))
    return loop.run(startup)


class _Loop:
    """State of both lanes. A *line* is a draft's continuation; each rollback begins the next."""

    def __init__(self, costs: StepCosts, agreement: Agreement, ledger: Ledger) -> None:
        self.costs, self.agreement, self.ledger = costs, agreement, ledger
        self.queue: list[tuple[int, int, int, tuple[int, ...]]] = []
        self.pushed = 0
        # The target's view: line, first position without a token, and drafts in its forward.
        self.line = self.have = self.waiting = 0
        # The draft's view: its line, next position, what was taken.
        self.draft_line = self.next = self.accepted = 0
        self.is_drafting = False

    def run(self, startup: int) -> SimulatedRun:
        self.have = self.next = self.accepted = startup
        self.verify(0)
        self.push(0, _START)
        handlers = (self.drafted, self.token, self.verified, self.verdict, self.start)
        while True:
            now, kind, _, data = heapq.heappop(self.queue)
            handlers[kind](now, *data)
            if not self.ledger.left:
                return self.ledger.close("free-running", now)

    def push(self, time: int, kind: int, *data: int) -> None:
        self.pushed += 1
        heapq.heappush(self.queue, (time, kind, self.pushed, data))

    # The target's lane.

    def verify(self, now: int) -> None:
        """Begin a forward over all that waits."""
        self.waiting = self.have - self.ledger.position
        self.push(self.ledger.target(now, self.waiting), _VERIFIED)

    def token(self, now: int, line: int, position: int) -> None:
        """A draft token arrives at the target; tokens of a rejected continuation are dropped."""
        if line == self.line:
            self.have = max(self.have, position + 1)

    def verified(self, now: int) -> None:
        """A forward ends: commit, tell the draft, begin the next."""
        first = self.ledger.position
        good = min(self.agreement.run_from(first), self.waiting)
        last = first + good  # the position whose token the target settles itself
        agrees, drafted = self.agreement.at(last), last < self.have
        self.ledger.commit(good + 1, good + (agrees and drafted), rejected=drafted and not agrees)
        if agrees:
            self.have = max(self.have, last + 1)
        else:
            self.line, self.have = self.line + 1, last + 1
        now_plus = now + self.costs.transfer_ns
        self.push(now_plus, _VERDICT, self.line, last + 1, self.have)
        if self.ledger.left:
            self.verify(now)

    # The draft's lane.

    def start(self, now: int) -> None:
        """Begin a forward if the lane is free and not too far ahead."""
        num_draft_tokens = self.ledger.num_draft_tokens
        if self.is_drafting or (
            num_draft_tokens is not None and self.next >= self.accepted + num_draft_tokens
        ):
            return
        end = now + self.costs.draft_ns
        self.ledger.draft(now, end, 1)
        self.push(end, _DRAFTED, self.draft_line, self.next)
        self.next += 1
        self.is_drafting = True

    def drafted(self, now: int, line: int, position: int) -> None:
        """A forward ends: send its token."""
        self.is_drafting = False
        self.push(now + self.costs.transfer_ns, _TOKEN, line, position)
        self.push(now, _START)

    def verdict(self, now: int, line: int, committed: int, accepted: int) -> None:
        """The target's result arrives at the draft: continue from it, and drop accepted tokens."""
        if line != self.draft_line:
            self.draft_line, self.next = line, committed
        self.next, self.accepted = max(self.next, committed), accepted
        self.push(now, _START)
