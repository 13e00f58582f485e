"""Draft workers that hang: decoding goes on at the pace of plain decoding, whatever they do."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import sooner
import tiny
from fakes import row_noise
from methods.children import children as draft_processes
from sooner.engine.sampling import Processing
from sooner.methods.parallel.board import Board, DraftJob, nameless_file
from sooner.methods.parallel.server import receive
from sooner.methods.parallel.worker import Worker

pytestmark = pytest.mark.slow

FAMILY = "llama"
ROUNDS = 2000
SLACK = 2.0
"""Seconds that a worker that stopped may cost in all, its end included."""
ATTEMPTS = 5
"""Tries at a limit on time: this machine may be busy with something else."""


def decode(method: sooner.Method | None, new: int, on_tokens: Any = None) -> sooner.Generation:
    return sooner.generate(
        tiny.model(FAMILY), tiny.inputs(FAMILY), method,
        max_new_tokens=new, eos_token_id=None, do_sample=False, on_tokens=on_tokens,
    )  # fmt: skip


def children() -> list[int]:
    """Process ids of the draft processes that a test started."""
    return [child.pid for child in draft_processes()]


def stop_at(place: int) -> Callable[..., None]:
    """A callback that stops every draft process once `place` tokens are said."""
    generated = 0

    def stop(row: int, tokens: list[int], drafted: int) -> None:
        nonlocal generated
        before, generated = generated, generated + len(tokens)
        if before < place <= generated:
            for pid in children():
                os.kill(pid, signal.SIGSTOP)

    return stop


@contextmanager
def killed_after(seconds: float) -> Iterator[threading.Event]:
    """End the draft processes after a while, so that a frozen target fails instead of hanging."""
    fired = threading.Event()

    def fire() -> None:
        fired.set()
        for pid in children():
            os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(seconds, fire)
    timer.start()
    try:
        yield fired
    finally:
        timer.cancel()
        timer.join()


@pytest.fixture(scope="module")
def plain() -> sooner.Generation:
    return decode(None, ROUNDS)


def decode_stopped(place: int, new: int) -> sooner.Generation:
    """A run whose worker is stopped at a place of the text."""
    with sooner.StandingDraft(tiny.noisy(FAMILY)) as standing:
        method = sooner.ParallelVLM(standing.draft, prune=0, placement="process", standing=standing)
        return decode(method, new, stop_at(place))


def test_a_stopped_worker_costs_no_more_than_two_seconds(plain: sooner.Generation) -> None:
    """SIGSTOP for 2,000 rounds: nothing that is sent to the worker may wait for it."""
    for _ in range(ATTEMPTS):
        begin = time.perf_counter()
        decode(None, ROUNDS)
        allowed = 1.1 * (time.perf_counter() - begin) + SLACK
        with killed_after(3 * allowed) as froze:
            begin = time.perf_counter()
            made = decode_stopped(2, ROUNDS)
            spent = time.perf_counter() - begin
        assert not froze.is_set(), "the target waited for a worker that had stopped"
        assert torch.equal(made.sequences, plain.sequences)
        assert all("does not answer" in note for note in made.stats.notes)
        assert not children()
        if spent <= allowed:
            return
    pytest.fail(f"{spent:.1f} s, allowed were {allowed:.1f} s, in each of {ATTEMPTS} attempts")


@pytest.mark.parametrize("place", [60, 399])
def test_a_worker_may_stop_at_any_moment(plain: sooner.Generation, place: int) -> None:
    """In the midst of a text, and so late that only `close` waits for it."""
    with killed_after(60) as froze:
        made = decode_stopped(place, 400)
    assert not froze.is_set()
    assert torch.equal(made.sequences, plain.sequences[:, : made.sequences.shape[1]])
    assert len(made.stats.notes) <= 1
    assert not children()


def test_a_worker_that_goes_on_finds_the_newest_text(launched: list[Worker]) -> None:
    """What was said meanwhile reaches it in one piece, and its drafts are right again."""
    target = tiny.model(FAMILY)
    generated, late_drafts = 0, 0

    def freeze_and_thaw(row: int, tokens: list[int], drafted: int) -> None:
        nonlocal generated, late_drafts
        before, generated = generated, generated + len(tokens)
        pid = launched[-1].runner.pid
        if before < 20 <= generated:
            os.kill(pid, signal.SIGSTOP)
        if before < 600 <= generated:
            os.kill(pid, signal.SIGCONT)
        late_drafts += drafted if generated > 700 else 0
        time.sleep(0.002 if generated > 600 else 0)  # time to catch up in, however busy the machine

    # Whether a draft as large as its target pays is this machine's; the paper's is verified.
    method = sooner.ParallelVLM(
        target, prune=0, num_draft_tokens=4, schedule="paper", placement="process"
    )
    with killed_after(60) as froze:
        made = decode(method, 900, freeze_and_thaw)
    assert not froze.is_set()
    assert late_drafts > 20
    assert made.stats.acceptance_rate == 1.0


def test_waking_never_waits_and_is_never_lost() -> None:
    ours, peer = socket.socketpair()
    worker = Worker(threading.Thread(target=int), ours, peer)
    for _ in range(500_000):  # more than any socket holds
        worker.notify()
    receive(peer)
    while select.select([peer], [], [], 0)[0]:
        receive(peer)
    worker.notify()
    receive(peer)
    worker.end()
    with pytest.raises(EOFError):
        receive(peer)
    peer.close()


def test_updates_that_nobody_read_add_up() -> None:
    """Read at once or at the end, rows say the same, and rows that ended are not told of."""
    job = DraftJob(
        {}, Processing(), 3 * [[1] * 5], vocab=0, limit=12, max_ahead=2, noise=row_noise(3)
    )
    with nameless_file() as file:
        board, reader = (Board(job, file.fileno()) for _ in range(2))
    board.prefill([[1, 4], [], [0, 1, 2, 3, 4]], 8)
    board.commit({0: (0, [7]), 1: (0, [8]), 2: (0, [9])}, 8)
    board.commit({0: (1, [5, 6]), 1: (1, [4]), 2: (1, [3, 2, 1])}, 8)
    board.commit({0: (3, [1]), 2: (4, [])}, 6)
    assert (int(reader.update), int(reader.ahead), reader.updates.tolist()) == (4, 6, [4, 3, 4])
    indices = [reader.visual_indices(row).tolist() for row in range(3)]
    assert indices == [[1, 4], [], [0, 1, 2, 3, 4]]
    assert reader.committed(0, 0) == [7, 5, 6, 1]
    assert reader.committed(0, 3) == [1]
    assert reader.committed(2, 1) == [3, 2, 1]
    board.stopped.fill_(1)
    assert reader.stopped


def test_a_draft_thread_that_does_not_end_is_reported(
    monkeypatch: pytest.MonkeyPatch, launched: list[Worker]
) -> None:
    """A thread can't be killed; what it holds must not pass for free."""
    stuck, release = threading.Event(), threading.Event()

    def draft(self: Any) -> Any:
        stuck.set()
        release.wait(30)
        raise MemoryError("over")

    monkeypatch.setattr("sooner.methods.parallel.server.DraftServer.draft", draft)
    method = sooner.ParallelVLM(tiny.noisy(FAMILY), prune=0, placement="thread")
    try:
        made = decode(method, 3, lambda *_: stuck.wait(10))
        (worker,) = launched
        assert worker.runner.is_alive()
        (note,) = made.stats.notes
        assert "did not end" in note or "does not answer" in note
        assert not worker.is_usable
    finally:
        release.set()
    worker.runner.join(10)
    assert not worker.runner.is_alive()
