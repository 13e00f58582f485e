"""The imagine bench's formulas against literal ones, on made-up data."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm

import tiny_canvas
from sooner.errors import SoonerError
from sooner.methods import CoupledJacobi
from sooner.methods.jacobi.drafter import Round, Trace
from sooner.stats.run import Stats
from sooner_lab.bench.imagine import (
    breakdown,
    distances,
    film,
    goals,
    inception,
    page,
    plots,
    story,
    study,
)
from sooner_lab.bench.imagine.subjects import Subject


def normal(n: int, d: int, seed: int, shift: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ np.diag(np.arange(1, d + 1)) + shift


def test_frechet_distance_is_the_formula() -> None:
    a, b = normal(50, 4, 0), normal(60, 4, 1, shift=0.5)
    cov_a, cov_b = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    root = np.trace(sqrtm(cov_a @ cov_b)).real
    literal = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(cov_a + cov_b) - 2 * root
    assert distances.frechet(a, b) == pytest.approx(literal, rel=1e-6)
    assert distances.frechet(a, a) == pytest.approx(0, abs=1e-8)


def test_frechet_distance_survives_fewer_drawings_than_features() -> None:
    a, b = normal(3, 10, 0), normal(4, 10, 1)
    assert np.isfinite(distances.frechet(a, b))
    assert distances.frechet(a, a) == pytest.approx(0, abs=1e-8)


def test_energy_test_finds_a_shift_and_nothing_where_there_is_none() -> None:
    a, b = normal(30, 3, 0), normal(30, 3, 1)
    assert distances.energy_test(a, b)["p"] > 0.05
    assert distances.energy_test(a, b + 3)["p"] < 0.01


def test_energy_distance_is_the_formula() -> None:
    a, b = np.array([[0.0], [1.0]]), np.array([[2.0], [5.0]])
    pooled = np.concatenate([a, b])
    a, b = ((one - pooled.mean()) / (pooled.std() + 1e-9) for one in (a, b))
    between = np.abs(a - b.T).mean()
    literal = 2 * between - np.abs(a - a.T).mean() - np.abs(b - b.T).mean()
    assert distances.energy_test(a, b)["statistic"] == pytest.approx(literal, rel=1e-6)


def test_codes_test_swaps_whole_drawings() -> None:
    """Tokens of one drawing are all alike here; a test of tokens would find a difference."""
    rng = np.random.default_rng(0)
    a, b = (np.repeat(rng.integers(0, 4, (20, 1)), 50, axis=1) for _ in range(2))
    assert distances.codes_test(a, b, 4)["p"] > 0.05
    assert (
        distances.codes_test(rng.integers(0, 4, (20, 50)), rng.integers(2, 6, (20, 50)), 6)["p"]
        < 0.01
    )


def test_p_values_are_uniform_where_both_sets_are_alike() -> None:
    p = [
        distances.energy_test(normal(8, 2, 2 * i), normal(8, 2, 2 * i + 1))["p"] for i in range(40)
    ]
    assert 0.3 < np.mean(p) < 0.7
    assert np.mean(np.array(p) < 0.1) < 0.25


def rounds() -> list[Round]:
    """One row, window 2: place 1 lives for three rounds, place 2 for two."""

    def one(places: list[int], distance: list[float], old: list[int], new: list[int]) -> Round:
        return Round(
            rows=[0],
            places=torch.tensor([places]),
            drafted=torch.tensor([[True] * len(places)]),
            distance=torch.tensor([distance]),
            collision=torch.tensor([[0.25] * len(places)]),
            old=torch.tensor([old]),
            new=torch.tensor([new]),
        )

    return [
        one([1], [0.5], [7], [8]),
        one([1, 2], [0.25, 1.0], [8, 3], [8, 4]),
        one([1, 2], [0.0, 0.5], [8, 4], [7, 3]),
    ]


def test_lives_follow_each_place() -> None:
    first, second = study.lives(rounds())
    assert (first.drafts, first.betas) == ([7, 8, 8, 7], [0.5, 0.75, 1.0])
    assert (second.drafts, second.betas) == ([3, 4, 3], [0.0, 0.5])


def test_changes_count_drafts_n_iterations_apart() -> None:
    changed = study.changes(study.lives(rounds()))
    assert changed == pytest.approx({"1": 4 / 5, "2": 2 / 3, "3": 0.0})


def test_trajectories_and_collisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "ENOUGH", 2)
    told = study.trajectory(rounds())
    assert told["mean"] == pytest.approx([0.25, 0.625])
    assert told["count"] == [2, 2]
    found = study.collisions(rounds())
    assert found["agreed"] == pytest.approx(1 / 5)
    assert found["reachable"] == pytest.approx(1 - 2.25 / 5)
    assert len(found["points"]) == 5
    (only,) = found["bins"]
    assert (only["tv"], only["agreed"], only["count"]) == (0.5, 0.0, 2)


def test_a_run_without_second_drafts_has_no_collisions() -> None:
    assert study.collisions([])["points"] == []


def test_the_clock_counts_every_second_once() -> None:
    clock = breakdown.Clock()
    inner = clock.timed("inner", lambda: time.sleep(0.02))
    clock.timed("outer", lambda: (time.sleep(0.01), inner(), inner()))()
    assert clock.seconds["inner"] == pytest.approx(0.04, abs=0.03)
    assert clock.seconds["outer"] < clock.seconds["inner"]


def test_pieces_add_up_to_the_step() -> None:
    stats, clock = Stats(), breakdown.Clock()
    stats.verify_seconds[5] = [0.02, 0.02]
    stats.seconds |= {"verify": 0.04, "draft": 0.01, "other": 0.01, "prefill": 9.0}
    clock.seconds |= {"sampling": 0.004, "preprocessing": 0.006, "verification": 0.002}
    pieces = breakdown.split(stats, clock)
    assert sum(pieces.values()) == pytest.approx(30)
    assert pieces["transformer"] == pytest.approx(20)
    assert pieces["postprocessing"] == pytest.approx(4)


def arm(
    method: str, window: int | None, nfe: float, speed: float = 1.0, init: str | None = "above"
) -> dict:
    return {
        "kind": "image",
        "method": method,
        "window": window,
        "init": init,
        "nfe": nfe,
        "nfe_reduction": 256 / nfe,
        "decode_speedup": speed,
    }


def test_goals_judge_what_was_measured() -> None:
    arms = [arm("plain", None, 256, init=None), arm("sjd", 32, 111), arm("sjd", 64, 110)]
    arms += [arm("gumbel", 32, 70, 2.6), arm("gumbel", 64, 55, 2.4)]
    result = {"arms": arms, "image": {"batch": {"rows": 8, "speedup": 2.0}}}
    found = {one["goal"]: one for one in goals.goals(result)}
    assert found["image: forwards, plain over gumbel, L=64 from above"]["met"]
    both = found["image: forwards, SJD over gumbel, L=64, both from above"]
    assert both["reached"] == pytest.approx(2)
    # At L = 32 it would be met; the window is named before the run.
    time_ = found["image: decoding time, plain over gumbel, L=64 from above"]
    assert (time_["reached"], time_["met"]) == (2.4, False)
    assert found["image: forwards of sjd, L=32 over L=64, both from above"]["met"]
    assert found["image: forwards of gumbel, L=32 over L=64, both from above"]["met"]
    assert not found["image: batch of 8, tokens/s over a batch of one"]["met"]


def test_goals_compare_like_starts_alone() -> None:
    """A coupled arm from a neighbour against SJD from random codes tells of the neighbour."""
    arms = [arm("sjd", 64, 110, init="random"), arm("gumbel", 64, 55, init="above")]
    assert not any("SJD" in one["goal"] for one in goals.goals({"arms": arms}))
    arms.append(arm("gumbel", 64, 88, init="random"))
    (only,) = [one for one in goals.goals({"arms": arms}) if "SJD" in one["goal"]]
    assert only["goal"].endswith("both from random")
    assert only["reached"] == pytest.approx(110 / 88)


def test_goals_take_no_best_of_many() -> None:
    """Another coupling or window that did better changes no goal."""
    arms = [arm("sjd", 64, 110), arm("gumbel", 64, 55)]
    told = goals.goals({"arms": arms})
    better = [arm("maximal", 64, 11, 9.0), arm("gumbel", 128, 10, 9.0), arm("gumbel", 16, 10, 9.0)]
    assert goals.goals({"arms": arms + better}) == told


def judged(*rejected: bool) -> dict:
    wrong = [{"method": f"plain, T = {t}", "rejected": one} for t, one in enumerate(rejected)]
    return {"drawings": 8, "arms": [{"method": "gsd"}], "power": wrong}


def test_the_page_says_when_the_quality_tests_see_nothing() -> None:
    assert page.power({"drawings": 8, "arms": []}) == ""
    assert "they reject plain, T = 0 and plain, T = 1" in page.power(judged(True, True))
    weak = page.power(judged(False, True))
    assert "no power" in weak
    assert "do not reject plain, T = 0, which" in weak
    assert "the lossy `gsd` included" in weak
    assert "do reject plain, T = 1." in weak


@pytest.fixture(scope="module")
def subject() -> Subject:
    inputs = tiny_canvas.prompts(1)
    return Subject("image", "tiny", tiny_canvas.canvas(), lambda numbers: inputs)


def test_a_record_knows_every_iteration(subject: Subject) -> None:
    told = story.record(subject, "x", CoupledJacobi(4, trace=Trace()), seed=3)
    assert told.tokens.shape == told.state.shape == (told.nfe + 1, 16)
    assert (np.diff(told.accepted) >= 0).all()
    assert told.accepted.min() == 1
    assert (told.state[0] == story.UNKNOWN).all()
    assert (told.state[-1] == story.ACCEPTED).all()
    for iteration in range(told.nfe + 1):
        known = told.accepted <= iteration
        assert ((told.state[iteration] == story.ACCEPTED) == known).all()
        assert (told.tokens[iteration][known] == told.tokens[-1][known]).all()
        drafts = (told.state[iteration] == story.DRAFT).nonzero()[0]
        if len(drafts):  # the window begins where acceptance ended, without a gap
            assert drafts[0] == known.sum()
            assert (np.diff(drafts) == 1).all()
    assert (told.state == story.DRAFT).any()


def test_a_board_lays_latent_frames_side_by_side(subject: Subject) -> None:
    laid = story.board(subject, np.arange(16)[None])
    assert (laid[0] == np.arange(16).reshape(4, 4)).all()
    assert story._last_frames(33, 9) == [0, 4, 8, 12, 16, 20, 24, 28, 32]
    assert story._last_frames(1, 1) == [0]


def test_drafts_fade_and_unknown_places_are_paper() -> None:
    state = np.array([[story.ACCEPTED, story.DRAFT, story.UNKNOWN]])
    shown = film.fade(np.zeros((2, 6, 3)), state)
    assert shown[0, 0, 0] == pytest.approx(0)
    assert 0 < shown[0, 2, 0] < film.PAPER
    assert shown[1, 5, 0] == pytest.approx(film.PAPER)


def test_a_result_without_data_makes_no_figures(tmp_path: Path) -> None:
    assert plots.write_figures({"arms": []}, tmp_path) == []


def test_missing_inception_weights_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match="is no file"):
        inception.check_weights(tmp_path / "none.pth")
