"""Parallel decoding: exact on every placement, exact when the worker dies, nothing left over."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from typing import Any

import pytest
import torch
from torch.nn.functional import cosine_similarity

import fakes
import method_matrix as matrix
import sooner
import tiny
from fakes import ERROR, FakeAdapter, Table, chi_square, row_noise, say
from sooner.decoding.acceptance import Guess, couple
from sooner.methods import pruning
from sooner.methods.cost import Acceptance
from sooner.methods.parallel import drafter as drafter_module
from sooner.methods.parallel import method as method_module
from sooner.methods.parallel import policy as policy_module
from sooner.methods.parallel.policy import IN_VAIN, BoardView, Patience
from sooner.methods.parallel.server import DraftRow
from sooner.methods.parallel.shared_memory import Board
from sooner.methods.parallel.worker import ProcessWorker

PLACEMENTS = ("inline", "thread", "process")
NEW = 24


def generate(family: str, kind: str, rows: int, **options: Any) -> sooner.Generation:
    method = sooner.ParallelVLM(
        tiny.noisy(family), **{"num_draft_tokens": 6, "least": 0, **options}
    )
    inputs = tiny.inputs(family, kind, rows)
    return sooner.generate(
        tiny.model(family), inputs, method, max_new_tokens=NEW, eos_token_id=None, do_sample=False
    )


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(
    ("family", "kind", "rows"),
    [
        ("llava_onevision", "video", 1),
        ("llava_onevision", "images", 3),
        ("qwen2_5_vl", "video", 2),
        ("qwen2_5_vl", "image", 1),
        ("qwen3_vl", "video", 3),
        ("qwen3_vl", "images", 1),
        ("llama", "text", 2),
    ],
)
def test_ids_equal_hf(family: str, kind: str, rows: int, placement: str) -> None:
    made = generate(family, kind, rows, placement=placement, prune=0.5)
    assert torch.equal(made.sequences, matrix.reference(family, kind, rows, NEW))


@pytest.mark.parametrize("criterion", pruning.CRITERIA)
@pytest.mark.parametrize("prune", [0.0, 0.3, 0.9, 1.0])
def test_any_pruning_is_exact(prune: float, criterion: Any) -> None:
    made = generate("qwen3_vl", "video", 2, prune=prune, criterion=criterion, placement="inline")
    assert torch.equal(made.sequences, matrix.reference("qwen3_vl", "video", 2, NEW))


def test_repacked_positions_are_exact() -> None:
    made = generate("llava_onevision", "video", 2, prune=0.5, repack=True, placement="inline")
    assert torch.equal(made.sequences, matrix.reference("llava_onevision", "video", 2, NEW))


def test_the_draft_runs_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft equal to the target is verified in full windows, without waiting between them."""
    target = tiny.model("llava_onevision")
    method = sooner.ParallelVLM(target, prune=0, num_draft_tokens=5, placement="inline")
    # Measured times are this machine's; the windows of one whose draft costs nothing are the same
    # everywhere.
    monkeypatch.setattr(
        policy_module, "best_draft_lengths", lambda model, most: [most] * (most + 1)
    )
    inputs = tiny.inputs("llava_onevision", "video", 1)
    made = sooner.generate(target, inputs, method, max_new_tokens=NEW, eos_token_id=None)
    assert made.stats.acceptance_rate == 1.0
    assert made.stats.mean_acceptance_length > 4


@pytest.mark.parametrize("prune", [0.5, 0.9])
def test_pruning_keeps_the_stated_share(prune: float) -> None:
    kept: list[list[int]] = []
    seen = drafter_module.ParallelDrafter.close

    def close(self: Any) -> None:
        kept.extend(self.kept_tokens)
        seen(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drafter_module.ParallelDrafter, "close", close)
        generate("llava_onevision", "video", 2, prune=prune, placement="inline")
    expected = round(17 * (1 - prune))
    assert [len(row) for row in kept] == [expected, expected]
    assert all(row == sorted(set(row)) for row in kept)


def test_uv_prune_equals_the_literal_sums() -> None:
    """Eq. 2 to 4 written as loops over layers, text tokens and video tokens."""
    torch.manual_seed(3)
    layers, width, hidden = 4, 12, 8
    states = torch.randn(layers + 1, width, hidden)
    visual = torch.tensor([False, True, True, False] * 3)
    text = (~visual).nonzero()[:, 0].tolist()
    literal = []
    for i in visual.nonzero()[:, 0].tolist():
        total = 0.0
        for j in text:
            for layer in range(1, layers + 1):
                now = cosine_similarity(states[layer, i], states[layer, j], dim=0)
                before = cosine_similarity(states[layer - 1, i], states[layer - 1, j], dim=0)
                total += float(now - before)
        literal.append(total)
    scores = pruning.similarity_variation(states[0], states[-1], visual)
    assert torch.allclose(scores, torch.tensor(literal), atol=1e-4)
    kept = pruning.rank("uv-prune", 0.5, states[0], states[-1], visual)
    assert kept.tolist() == sorted(sorted(range(6), key=lambda i: -literal[i])[:3])


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 0.9, 0.97, 1.0])
def test_by_frame_every_frame_keeps_its_share(ratio: float) -> None:
    """Against a loop over frames: the best of each, as many as round down to the running sum."""
    torch.manual_seed(5)
    sizes = [6, 6, 2, 9, 1, 6]  # a picture of nine among videos' frames, a newline
    frames = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)])
    visual = torch.ones(len(frames) + 2, dtype=torch.bool)
    visual[0] = visual[-1] = False
    frames = torch.cat([torch.tensor([-1]), frames, torch.tensor([-1])])
    first, last = torch.randn(2, len(frames), 8)
    scores = pruning.similarity_variation(first, last, visual).tolist()
    total, count = sum(sizes), pruning.keep_count(sum(sizes), ratio)
    wanted, start = [], 0
    for size in sizes:
        quota = (start + size) * count // total - start * count // total
        own = sorted(range(start, start + size), key=lambda i: -scores[i])
        wanted += sorted(own[:quota])
        start += size
    kept = pruning.rank("uv-prune-by-frame", ratio, first, last, visual, frames)
    assert kept.tolist() == wanted
    assert len(kept) == count


@pytest.mark.parametrize(
    ("ratio", "least", "kept"), [(0.9, 0, 2), (0.9, 7, 7), (0.9, 99, 20), (0.5, 7, 10), (1.0, 7, 1)]
)
def test_few_tokens_are_not_pruned(ratio: float, least: int, kept: int) -> None:
    visual = torch.ones(20, dtype=torch.bool)
    first, last = torch.randn(2, 20, 4)
    found = pruning.rank("attention", ratio, first[:, 0], last[:, 0], visual, least=least)
    assert len(found) == kept


def test_pictures_and_frames_are_groups_of_their_own() -> None:
    visual = torch.tensor([False, True, True, False, True, True, True, True, True])
    frames = torch.tensor([-1, -1, -1, -1, 0, 0, 1, 1, -1])  # a picture, words, a video of two
    assert pruning.groups_of(visual, frames).tolist() == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_a_pruned_draft_sees_every_frame(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's choice may drop a frame whole; by frame none is."""
    seen: list[Any] = []
    real = pruning.rank

    def spy(*args: Any) -> Any:
        kept = real(*args)
        visual, frames = args[4], args[5]
        groups = pruning.groups_of(visual, frames)
        seen.append((groups[kept].unique().tolist(), int(groups.max()) + 1))
        return kept

    monkeypatch.setattr(method_module, "rank", spy)
    generate(family, "video", 2, prune=0.5, placement="inline")
    assert len(seen) == 2
    for kept, groups in seen:
        assert groups > 1
        assert len(set(range(groups)) - set(kept)) <= 1  # a lone newline token has half a place


def test_a_row_keeps_what_it_guessed_right() -> None:
    row = DraftRow(tokens=[1, 2, 3, 4], committed=1, fed=4)
    row.commit([2, 3])
    assert (row.tokens, row.committed, row.fed, row.rollbacks) == ([1, 2, 3, 4], 3, 4, 0)
    row.commit([9])
    assert (row.tokens, row.committed, row.fed, row.rollbacks) == ([1, 2, 3, 9], 4, 3, 1)
    row.commit([5, 6])
    assert (row.tokens, row.committed, row.fed, row.rollbacks) == ([1, 2, 3, 9, 5, 6], 6, 3, 1)


# Sampling ---------------------------------------------------------------------------------------

VOCAB, LENGTH, SAMPLES = 3, 4, 12_000
TARGET = Table(VOCAB, LENGTH, seed=1)
NEAR = Table(VOCAB, LENGTH, seed=2, near=TARGET)


class PrunableFake(FakeAdapter):
    """A fake whose prompt has no pixels to prune."""

    visual_ids = ()


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.adapt_fakes(monkeypatch)
    monkeypatch.setattr(method_module, "adapt", lambda model: model)
    monkeypatch.setattr(method_module, "prompt_for", lambda adapter, context: dict(context.inputs))


@pytest.mark.parametrize(
    ("placement", "num_draft_tokens"), [("inline", 1), ("inline", 3), ("thread", 3), ("process", 3)]
)
@pytest.mark.usefixtures("_fakes")
def test_sampling_keeps_the_joint_distribution(placement: Any, num_draft_tokens: int) -> None:
    method = sooner.ParallelVLM(
        PrunableFake(NEAR), prune=0, num_draft_tokens=num_draft_tokens, placement=placement
    )
    samples = SAMPLES if placement == "inline" else SAMPLES // 3
    said = say(method, PrunableFake(TARGET), samples, LENGTH)
    assert chi_square(said, TARGET.joint()) > ERROR


@pytest.mark.usefixtures("_fakes")
def test_a_guess_taken_for_granted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bias: the worker's next token is said without asking the target."""
    monkeypatch.setattr(
        "sooner.decoding.acceptance.couple",
        lambda p, guess, noise, ahead: torch.where(
            guess.known, guess.tokens, torch.multinomial(p, 1)[:, 0]
        ),
    )
    method = sooner.ParallelVLM(PrunableFake(NEAR), prune=0, num_draft_tokens=3, placement="inline")
    said = say(method, PrunableFake(TARGET), SAMPLES, LENGTH)
    assert chi_square(said, TARGET.joint()) < ERROR


def test_a_coupled_draw_follows_p() -> None:
    torch.manual_seed(0)
    p, q = torch.tensor([0.1, 0.6, 0.3]), torch.tensor([0.5, 0.2, 0.3])
    rows = 60_000
    guess = Guess(
        torch.multinomial(q.expand(rows, -1), 1)[:, 0],
        q.expand(rows, -1),
        torch.rand(rows) < 0.8,
    )
    ahead = torch.zeros(rows, dtype=torch.long)
    drawn = couple(p.expand(rows, -1), guess, row_noise(rows), ahead)
    assert chi_square(drawn[:, None], {(x,): float(p[x]) for x in range(3)}) > ERROR
    taken = (drawn == guess.tokens)[guess.known].float().mean()
    assert taken > 0.6  # sum of min(p, q); independent draws would agree 0.26 of the time


# Learning ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [0, 4], ids=["plain rounds", "windows"])
def test_runs_add_to_what_is_known_of_the_draft(
    policy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain rounds judge the worker's next token, too, so a draft that gets better is noticed."""
    monkeypatch.setattr(
        policy_module, "best_draft_lengths", lambda model, most: [policy] * (most + 1)
    )
    target, seen = tiny.model("llava_onevision"), Acceptance()
    method = sooner.ParallelVLM(
        target, prune=0, num_draft_tokens=5, placement="inline", experience=seen
    )
    inputs = tiny.inputs("llava_onevision", "video", 1)
    options = {"max_new_tokens": NEW, "eos_token_id": None}
    counts = [0.0]
    for _ in range(2):
        made = sooner.generate(target, inputs, method, **options)
        assert (made.stats.num_draft_tokens > 12) == bool(policy)
        counts.append(seen.accepted)
    assert counts[0] + 10 < counts[1] < counts[2]
    assert seen.refused == 0


def test_a_view_shows_nothing_that_an_update_throws_away() -> None:
    board = Board(rows=2, positions=8, ring=4, vocab=0)
    view = BoardView(board)
    for row in range(2):
        board.show(row, [5, 6, 7])
    view.commit({0: (0, [5]), 1: (0, [9])})  # row 0 said what was drafted, row 1 did not
    assert view.read(0, 1, 4) == [6, 7]
    assert view.read(1, 1, 4) == []
    assert (view.needed([0]), view.needed([0, 1])) == (0, 1)
    board.rewrite(1, [9, 3])
    board.acknowledged = 1
    assert view.read(1, 1, 4) == [3]


# Failure ----------------------------------------------------------------------------------------


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[ProcessWorker]:
    """Every process worker that a test starts."""
    found: list[ProcessWorker] = []
    launch = ProcessWorker._launch

    def noted(self: ProcessWorker) -> None:
        launch(self)
        found.append(self)

    monkeypatch.setattr(ProcessWorker, "_launch", noted)
    return found


def test_killed_at_random_moments(launched: list[ProcessWorker]) -> None:
    """kill -9 of the worker: same ids, no orphan."""
    family, kind = "llava_onevision", "video"
    reference = matrix.reference(family, kind, 1, NEW)
    moments = random.Random(0)
    struck = 0
    for _ in range(100):
        delay = moments.uniform(0, 0.08)
        killer = threading.Timer(delay, lambda: _kill(launched[-1:]))
        killer.start()
        made = generate(family, kind, 1, placement="process", prune=0.5)
        killer.cancel()
        killer.join()
        struck += bool(made.stats.notes)
        assert torch.equal(made.sequences, reference)
        assert sum("worker is gone" in note for note in made.stats.notes) <= 1
    assert struck >= 10  # otherwise the moments missed the run
    assert not multiprocessing.active_children()


def _kill(workers: list[ProcessWorker]) -> None:
    for worker in workers:
        try:
            pid = worker.process.pid
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        except (ValueError, ProcessLookupError):
            pass


def test_a_stopped_worker_does_not_stop_decoding(launched: list[ProcessWorker]) -> None:
    """A worker that hangs without dying costs patience, not the output."""
    family, kind = "llava_onevision", "video"

    def stop() -> None:
        while not launched:
            time.sleep(0.001)
        time.sleep(0.02)
        os.kill(launched[-1].process.pid, signal.SIGSTOP)

    stopper = threading.Thread(target=stop)
    stopper.start()
    made = generate(family, kind, 1, placement="process", prune=0)
    stopper.join()
    assert torch.equal(made.sequences, matrix.reference(family, kind, 1, NEW))
    assert not multiprocessing.active_children()


class Silent:
    """A worker that has stopped; waits are counted."""

    is_usable = True

    def __init__(self) -> None:
        self.board = Board(rows=1, positions=8, ring=4, vocab=0)
        self.waits: list[float] = []

    def wait(self, wanted: dict[int, int], update: int, seconds: float) -> None:
        self.waits.append(seconds)

    def shows(self, wanted: dict[int, int], update: int) -> bool:
        return False


def test_a_silent_worker_is_waited_for_a_while_and_again_once_it_moves() -> None:
    worker, told = Silent(), []
    patience = Patience(worker, told.append)  # type: ignore[arg-type]
    for _ in range(50):
        patience.wait({0: 3}, 1, tokens=3, each=0.01)
    assert IN_VAIN <= sum(worker.waits) < IN_VAIN + worker.waits[0]
    assert len(told) == 1
    assert "does not answer" in told[0]
    before = len(worker.waits)
    worker.board.count(1, 1000)  # it has drafted something after all
    patience.wait({0: 4}, 1, tokens=3, each=0.01)
    assert len(worker.waits) == before + 1


def test_a_worker_that_is_slow_but_moves_is_waited_for() -> None:
    worker, told = Silent(), []
    patience = Patience(worker, told.append)  # type: ignore[arg-type]
    for _ in range(50):
        worker.board.count(1, 1000)
        patience.wait({0: 3}, 1, tokens=3, each=0.01)
    assert len(worker.waits) == 50
    assert not told


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_a_crashing_draft_is_told_once(
    placement: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(self: Any) -> Any:
        raise MemoryError("no room for the draft")

    monkeypatch.setattr("sooner.methods.parallel.server.DraftStream.step", crash)
    made = generate("qwen2_5_vl", "image", 2, placement=placement)
    assert torch.equal(made.sequences, matrix.reference("qwen2_5_vl", "image", 2, NEW))
    warnings = [record for record in caplog.records if "worker is gone" in record.getMessage()]
    assert len(warnings) == 1
    assert "no room for the draft" in warnings[0].getMessage()


def test_an_interrupted_run_leaves_nothing(launched: list[ProcessWorker]) -> None:
    def interrupt(row: int, tokens: list[int], drafted: int) -> None:
        raise KeyboardInterrupt

    model = tiny.model("llava_onevision")
    method = sooner.ParallelVLM(tiny.noisy("llava_onevision"), least=0, placement="process")
    with pytest.raises(KeyboardInterrupt):
        sooner.generate(
            model,
            tiny.inputs("llava_onevision", "video"),
            method,
            max_new_tokens=NEW,
            on_tokens=interrupt,
        )
    assert launched
    assert not multiprocessing.active_children()
    assert not any(layer._forward_hooks for layer in model.get_decoder().layers)


def test_a_failing_prompt_leaves_nothing(launched: list[ProcessWorker]) -> None:
    """An error between the worker's start and the loop must not strand the worker."""
    inputs = tiny.inputs("llava_onevision", "video")
    inputs["pixel_values_videos"] = inputs["pixel_values_videos"][:, :2]
    method = sooner.ParallelVLM(tiny.noisy("llava_onevision"), least=0, placement="process")
    with pytest.raises(sooner.SoonerError, match="do not match"):
        sooner.generate(tiny.model("llava_onevision"), inputs, method, max_new_tokens=4)
    time.sleep(0.1)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prune": 1.5}, "prune is 1.5"),
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0"),
        ({"layer": 0}, "layer is 0"),
        ({"least": -1}, "least is -1"),
        ({"criterion": "uv-prone"}, "did you mean 'uv-prune'"),
        ({"placement": "proces"}, "did you mean 'process'"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sooner.SoonerError, match=message):
        sooner.ParallelVLM(object(), **options)


def test_a_layer_beyond_the_target_is_named() -> None:
    with pytest.raises(sooner.SoonerError, match="layer is 9, but the target has 3 layers"):
        generate("llama", "text", 1, layer=9, placement="inline")
