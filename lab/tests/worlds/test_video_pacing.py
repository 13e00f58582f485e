"""Clips whose scenes last unevenly: drawn, located, filmed, told, with needles in them."""

from __future__ import annotations

import numpy as np
import pytest

from sooner.errors import SoonerError
from sooner_lab.worlds.video import cases, evaluate, film, pacing, world
from sooner_lab.worlds.video.pacing import ScenePacing


def draw(frame_counts: tuple[int, ...], seed: int = 0) -> world.SceneClip:
    return pacing.paced_clip(np.random.default_rng(seed), frame_counts)


def test_two_frames_a_scene_is_the_plain_clip() -> None:
    plain = world.sample_clip(np.random.default_rng(0), 4)
    paced = draw((2, 2, 2, 2))
    assert paced.scenes == plain.scenes
    assert (paced.total_frames, paced.samples) == (plain.total_frames, plain.samples) == (96, 8)
    indices = [0, 13, 24, 47, 95]
    assert np.array_equal(world.render(paced, indices, 56), world.render(plain, indices, 56))


def test_sampled_frames_are_those_of_the_clip() -> None:
    frame_counts = (3, 1, 16, 8)
    clip = draw(frame_counts)
    indices = world.sample_indices(clip.total_frames, clip.samples)
    located = [clip.locate(int(index)) for index in indices]
    assert [clip.scenes.index(scene) for scene, _ in located] == np.repeat(
        range(4), frame_counts
    ).tolist()
    assert np.allclose([moment for _, moment in located], pacing.moments(frame_counts))


def test_a_longer_scene_rests_moves_and_rests() -> None:
    clip = draw((8,))
    at = [world.centre(clip.scenes[0], moment) for moment in pacing.moments((8,))]
    assert at[0] == at[1] == at[2]
    assert at[4] == at[5] == at[6] == at[7]
    assert len({at[0], at[3], at[4]}) == 3


def test_a_scene_of_a_single_frame_rests_and_is_described_so() -> None:
    clip = draw((1, 4))
    assert clip.scenes[0].start == clip.scenes[0].end
    assert "stays at the" in world.describe(clip.scenes[0], 0)
    claim = world.parse(world.caption(clip))
    assert claim[0]["start"] == claim[0]["end"] == clip.scenes[0].start
    assert claim[1]["end"] == clip.scenes[1].end
    assert set(world.score(world.caption(clip), clip).values()) == {1.0}


@pytest.mark.parametrize("lengths", [(24,), (24, 0), (24, 24, 24)])
def test_lengths_must_fit_the_scenes(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="do not fit 2 scenes"):
        world.SceneClip(draw((2, 2)).scenes, lengths)


@pytest.mark.parametrize(
    ("pace", "allowed"),
    [
        (ScenePacing(), {2}),
        (ScenePacing(pairs=0, even=1), {4, 8, 12}),
        (ScenePacing(pairs=0, uneven=1), set(range(1, 17))),
    ],
)
def test_a_pace_draws_its_kind(pace: ScenePacing, allowed: set[int]) -> None:
    rng = np.random.default_rng(0)
    drawn = [pace.draw(rng, scenes) for scenes in range(1, 11) for _ in range(20)]
    assert {int(count) for counts in drawn for count in counts} == allowed
    assert max(counts.sum() for counts in drawn) <= pace.maximum


def test_needles_are_short_and_the_rest_is_long() -> None:
    rng = np.random.default_rng(0)
    drawn = [ScenePacing(pairs=0, needle=1).draw(rng, 5) for _ in range(200)]
    assert {len(counts) for counts in drawn} == {2, 3}
    assert all(1 <= counts[1] <= 3 and 13 <= counts.sum() <= 64 for counts in drawn)


@pytest.mark.parametrize("depth", cases.DEPTHS)
@pytest.mark.parametrize("short", [1, 2, 3])
def test_needle_stands_at_its_depth(depth: float, short: int) -> None:
    needle = pacing.needle_clip(np.random.default_rng(1), 48, depth, short)
    lengths = np.array(needle.clip.lengths) // world.SAMPLE_EVERY
    assert lengths.sum() == needle.clip.samples == 48
    assert lengths[needle.place] == short
    assert abs(lengths[: needle.place].sum() - depth * (48 - short)) <= 1


def test_needle_is_scored_alone() -> None:
    needle = pacing.needle_clip(np.random.default_rng(2), 24, 0.5, 2)
    assert needle.answer in world.caption(needle.clip)
    assert set(needle.score(needle.answer).values()) == {1.0}
    rest = world.caption(needle.clip).replace(needle.answer, "")
    assert set(needle.score(rest).values()) == {0.0}


@pytest.mark.parametrize("wrong", [{"depth": 1.5}, {"frames": 3}, {"needle_frames": 0}])
def test_impossible_needles_are_refused(wrong: dict) -> None:
    with pytest.raises(SoonerError, match="no needle of"):
        pacing.needle_clip(np.random.default_rng(0), **wrong)


def test_long_clips_are_filmed() -> None:
    clip = draw((1, 6, 2))
    back = film.through_file(clip)
    assert back.shape[0] == clip.total_frames == 108
    indices = world.sample_indices(clip.total_frames, clip.samples)
    error = np.abs(cases.from_file(clip).astype(int) - evaluate.film_of(clip)).mean(axis=(1, 2, 3))
    assert len(error) == len(indices) == 9
    assert error.max() < 6


def test_clips_of_other_sizes_are_captioned_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches hold equal sizes only; the texts come back in the clips' order."""

    def fake_describe(model, processor, videos, *, num_frames, max_new_tokens) -> list[str]:
        return [str(num_frames)] * len(videos)

    monkeypatch.setattr(evaluate, "describe", fake_describe)
    clips = [draw((8, 3)), draw((2,)), draw((3, 8)), world.sample_clip(np.random.default_rng(0), 3)]
    assert evaluate.captions(None, None, clips) == ["11", "2", "11", "6"]


def test_cases_for_tests_are_what_their_names_promise() -> None:
    assert [clip.lengths for clip in cases.draw("even_8_scenes_6", 2)] == [(96,) * 6] * 2
    clips = cases.draw("uneven_scenes_6", 10)
    assert len({clip.lengths for clip in clips}) > 5
    assert len({clip.samples for clip in clips[:8]}) == 1
    assert max(clip.samples for clip in clips) <= 64
    lengths = [min(needle.clip.lengths) for needle in cases.needles(0.5, 3)]
    assert lengths == [12, 24, 36]
