"""The moving-shapes world: drawn, captioned, scored, filmed."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from transformers.video_processing_utils import BaseVideoProcessor
from transformers.video_utils import VideoMetadata

from sooner_lab.worlds.video import film, world


def draw(seed: int, scenes: int = 4) -> world.SceneClip:
    return world.sample_clip(np.random.default_rng(seed), scenes)


def with_first(clip: world.SceneClip, **changes: object) -> world.SceneClip:
    first = dataclasses.replace(clip.scenes[0], **changes)
    return world.SceneClip((first, *clip.scenes[1:]))


def test_a_seed_is_a_clip() -> None:
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    assert np.array_equal(world.render(draw(3), [0, 30], 56), world.render(draw(3), [0, 30], 56))


def test_scenes_move_and_cuts_show() -> None:
    for seed in range(20):
        scenes = draw(seed, 10).scenes
        assert all(scene.start != scene.end for scene in scenes)
        assert all(first.background != two.background for first, two in pairwise(scenes))


@pytest.mark.parametrize("scenes", [0, 13])
def test_scene_count_is_checked(scenes: int) -> None:
    with pytest.raises(ValueError, match=f"not {scenes}"):
        draw(0, scenes)


def test_caption_is_read_back() -> None:
    for seed in range(30):
        clip = draw(seed, 1 + seed % 10)
        claims = world.parse(world.caption(clip))
        assert sorted(claims) == list(range(len(clip.scenes)))
        for index, scene in enumerate(clip.scenes):
            assert claims[index] == {name: getattr(scene, name) for name in world.ATTRIBUTES}
        assert set(world.score(world.caption(clip), clip).values()) == {1.0}


@pytest.mark.parametrize("name", world.ATTRIBUTES)
def test_a_wrong_attribute_costs_that_attribute_only(name: str) -> None:
    clip = with_first(draw(1), shape="star", colour="red", background="grey", start=0, end=8)
    other = {"shape": "cross", "colour": "cyan", "background": "white", "start": 4, "end": 3}
    scores = world.score(world.caption(with_first(clip, **{name: other[name]})), clip)
    assert scores.pop(name) == 0.75
    assert set(scores.values()) == {1.0}


def test_missing_swapped_and_repeated_scenes_are_wrong() -> None:
    clip = draw(2)
    sentences = [world.describe(scene, index) for index, scene in enumerate(clip.scenes)]
    assert set(world.score(" ".join(sentences[:3]), clip).values()) == {0.75}
    assert set(world.score("", clip).values()) == {0.0}
    swapped = [world.describe(scene, index) for index, scene in enumerate(clip.scenes[::-1])]
    assert world.score(" ".join(swapped), clip)["background"] < 1
    # A second, right claim about a scene must not make up for a first, wrong one.
    wrong = world.describe(dataclasses.replace(clip.scenes[0], end=clip.scenes[0].start), 0)
    assert world.score(" ".join([wrong, *sentences]), clip)["end"] == 0.75


def test_scenes_have_lengths_of_their_own() -> None:
    plain = draw(0, 2)
    clip = world.SceneClip(plain.scenes, (12, 36))
    assert clip.total_frames == 48
    assert [clip.locate(index) for index in (0, 11, 12, 30)] == [
        (clip.scenes[0], 0.0),
        (clip.scenes[0], 11 / 12),
        (clip.scenes[1], 0.0),
        (clip.scenes[1], 0.5),
    ]
    for lengths in ((24,), (24, 0), (24, 24, 24)):
        with pytest.raises(ValueError, match="do not fit 2 scenes"):
            world.SceneClip(plain.scenes, lengths)


def test_a_scene_at_rest_is_described_so() -> None:
    scene = world.still(draw(4).scenes[0])
    clip = world.SceneClip((scene,))
    assert "stays at the" in world.caption(clip)
    assert set(world.score(world.caption(clip), clip).values()) == {1.0}


def test_decoded_text_without_spaces_before_marks_is_read() -> None:
    clip = draw(5)
    text = world.caption(clip).replace(" ,", ",").replace(" .", ".")
    assert set(world.score(text, clip).values()) == {1.0}


@pytest.mark.parametrize(("total", "count"), [(192, 16), (24, 2), (100, 7), (48, 48)])
def test_sampling_is_that_of_transformers(total: int, count: int) -> None:
    metadata = VideoMetadata(total_num_frames=total, fps=12)
    expected = BaseVideoProcessor.sample_frames(
        BaseVideoProcessor(), metadata=metadata, num_frames=count
    )
    assert np.array_equal(world.sample_indices(total, count), expected)


def test_two_frames_a_scene_show_both_cells() -> None:
    clip = draw(6, 8)
    for place, index in enumerate(world.sample_indices(clip.total_frames, 16)):
        scene = clip.scenes[place // 2]
        x, y = world.centre(scene, (index % world.SCENE_FRAMES) / world.SCENE_FRAMES)
        assert 3 * int(y * 3) + int(x * 3) == (scene.end if place % 2 else scene.start)


def test_only_the_requested_frames_are_drawn_and_equal_the_film() -> None:
    clip = draw(7, 2)
    whole = world.render(clip, side=56)
    assert whole.shape == (48, 56, 56, 3)
    some = world.sample_indices(48, 5)
    assert np.array_equal(world.render(clip, some, 56), whole[some])


@pytest.mark.parametrize("shape", world.SHAPES)
def test_pixels_show_colour_background_and_place(shape: str) -> None:
    clip = with_first(
        draw(8), shape=shape, colour="green", background="pink", start=2,
        start_shift=(0.0, 0.0), radius=0.14,
    )  # fmt: skip
    frame = world.render(clip, [0])[0]
    x, y = (round(share * world.SIDE) for share in world.centre(clip.scenes[0], 0))
    assert tuple(frame[y, x]) == world.COLOURS["green"]
    assert tuple(frame[-1, 0]) == world.BACKGROUNDS["pink"]
    # All that is not background lies in the top right cell.
    changed = np.argwhere((frame != world.BACKGROUNDS["pink"]).any(-1))
    assert changed[:, 0].max() < 75
    assert changed[:, 1].min() > 149


@pytest.mark.parametrize(
    ("codec", "suffix"), [("h264", ".mp4"), ("h264", ".mkv"), ("mpeg4", ".avi"), ("vp9", ".webm")]
)
def test_video_files_come_back(codec: str, suffix: str, tmp_path: Path) -> None:
    clip = draw(10, 2)
    codec = {"vp9": "libvpx-vp9"}.get(codec, codec)
    back = film.read_video(film.write_video(clip, tmp_path / f"clip{suffix}", codec))
    truth = world.render(clip)
    assert back.shape == truth.shape
    error = np.abs(back.astype(int) - truth).mean(axis=(1, 2, 3))  # [frames]
    assert error.max() < 6
    # Frame for frame: the same film one frame late would be further off around each move.
    late = np.abs(back[1:].astype(int) - truth[:-1]).mean()
    assert error.mean() < late
