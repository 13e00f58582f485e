"""The world of marks: its clips, their pixels, their exact answers."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from sooner_lab.worlds.marks import architecture, draw, world
from sooner_lab.worlds.video import words


def clip(seed: int, frames: int = world.FRAMES, **options: float) -> world.MarkClip:
    return world.sample_clip(np.random.default_rng(seed), frames, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("frames", [4, 16, 64])
def test_a_seed_is_a_clip(frames: int) -> None:
    assert clip(3, frames) == clip(3, frames)
    assert clip(3, frames) != clip(4, frames)
    assert np.array_equal(draw.render(clip(3, frames)), draw.render(clip(3, frames)))


@pytest.mark.parametrize(("frames", "marks"), [(4, 5), (16, 4), (64, 4)])
def test_frames_have_equally_many_marks_in_cells_of_their_own(frames: int, marks: int) -> None:
    for seed in range(20):
        drawn = clip(seed, frames)
        assert set(world.places(drawn).sum(1)) == {marks}
        assert len([*drawn.shown()]) == marks * frames


def test_every_pair_is_shown_once_and_a_third_in_one_frame_only() -> None:
    for seed in range(20):
        told = [mark for mark in clip(seed).marks if mark.is_told]
        assert Counter((mark.colour, mark.ring) for mark in told) == Counter(world.KEYS)
        lengths = sorted(mark.length for mark in told)
        assert lengths[:6] == [1] * 6
        assert all(2 <= length <= 4 for length in lengths[6:12])
        assert all(5 <= length <= 12 for length in lengths[12:])


def test_a_tenth_of_the_tokens_holds_all_marks() -> None:
    drawn = clip(5)
    assert world.places(drawn).sum() == 256 < 0.1 * drawn.frames * world.CELLS
    assert world.places(drawn, told=True).sum() < 100


def test_too_few_marks_are_refused() -> None:
    with pytest.raises(ValueError, match="give at least 18"):
        clip(0, 1, marks=10)


def test_captions_have_150_tokens_of_which_36_percent_need_the_pixels() -> None:
    tokenizer = words.build_tokenizer(architecture.vocabulary())
    for seed in range(10):
        ids = tokenizer(world.caption(clip(seed)), add_special_tokens=False).input_ids
        assert len(ids) + 1 == 150 == len(world.needs_pixels())
        assert tokenizer.unk_token_id not in ids
    assert 0.35 <= world.needs_pixels().mean() <= 0.4


def test_only_words_that_need_the_pixels_differ_between_clips() -> None:
    told = np.array([world.caption(clip(seed)).split() for seed in range(200)])  # [clips, words]
    differs = (told != told[0]).any(0)
    assert np.array_equal(differs, world.needs_pixels()[:-1])


def test_captions_and_answers_tell_of_the_marks() -> None:
    drawn = clip(7)
    marks = {mark.name: mark for mark in drawn.marks if mark.is_told}
    assert [*sorted(marks)] == [*sorted(world.NAMES)]
    for said in world.caption(drawn).removeprefix(world.OPENING).split(" ;")[:-1]:
        name, glyph, *_, row, column = said.split()
        mark = marks[name]
        assert (glyph, row, column) == (mark.glyph, mark.row, mark.column)
    questions = world.sample_questions(np.random.default_rng(0), drawn)
    assert len({one.text for one in questions}) == 8
    for one in questions:
        *_, name, _ = one.text.split()
        mark = marks[name]
        right = {"what": mark.glyph, "row": mark.row, "column": mark.column}
        (kind,) = set(right) & set(one.text.split())
        assert one.answer == f"{name} {right[kind]} ."
    assert {one.text.split()[1] for one in questions} == {"is", "row", "column"}


def test_clips_of_few_pairs_are_asked_about_these_alone() -> None:
    rng = np.random.default_rng(3)
    drawn = world.sample_clip(rng, 1, pairs=2, marks=64, repeated=True)
    assert world.places(drawn, told=True).all()
    assert len(drawn.told()) == 2
    assert len({(mark.name, mark.glyph) for mark in drawn.marks}) == 2
    questions = world.sample_questions(rng, drawn, 8, where=False)
    assert len(questions) == 8
    assert {one.answer.split()[0] for one in questions} == {mark.name for mark in drawn.told()}
    assert all(one.text.startswith("what") for one in questions)
    few = world.sample_clip(rng, 4, pairs=5)
    assert sum(mark.is_told for mark in few.marks) == 5


def test_scores_count_the_words_that_need_the_pixels() -> None:
    drawn = clip(8)
    assert world.score(world.caption(drawn), drawn) == 1
    assert world.score(world.caption(drawn).replace(" ,", ","), drawn) == 1
    assert world.score("", drawn) == 0
    other = dataclasses.replace(drawn.told()[0], glyph="?")
    marks = tuple(other if mark == drawn.told()[0] else mark for mark in drawn.marks)
    wrong = world.caption(dataclasses.replace(drawn, marks=marks))
    assert world.score(wrong, drawn) == pytest.approx(53 / 54)


def test_what_rings_hold_is_unevenly_likely() -> None:
    seen = Counter(mark.glyph for seed in range(100) for mark in clip(seed).told())
    most = seen[world.GLYPHS[0]] / seen.total()
    assert 0.25 < most < 0.36
    assert set(seen) == set(world.GLYPHS)


def test_marks_stay_in_their_cells_and_the_rest_is_texture() -> None:
    drawn = clip(9, 16)
    bare = draw.render(dataclasses.replace(drawn, marks=()))
    film = draw.render(drawn)
    assert film.shape == (16, draw.SIDE, draw.SIDE, 3)
    assert film.dtype == np.uint8
    # The marks' jitter comes before the noise from the same generator, so compare means by cell.
    cells = (16, world.GRID, draw.CELL, world.GRID, draw.CELL, 3)
    moved = np.abs(film.astype(float) - bare).reshape(cells).mean((2, 4, 5)).reshape(16, -1)
    clear = np.zeros_like(moved, dtype=bool)
    for frame, mark in drawn.shown():
        clear[frame, mark.cell] = mark.contrast > 0.6
    assert moved[~world.places(drawn)].max() < moved[clear].min()


def test_texture_drifts() -> None:
    """Averages of 4x4 pixels, in which noise is 2.5 strong, are others eight frames later."""
    moved = []
    for seed in range(12):
        film = draw.render(dataclasses.replace(clip(seed, 16), marks=())).astype(float)
        blocks = film.reshape(16, 32, 4, 32, 4, 3).mean((2, 4))
        moved.append(np.abs(blocks[8] - blocks[0]).mean())
    assert np.median(moved) > 10
    assert min(moved) > 2


def test_clear_marks_look_different() -> None:
    looks = [draw.looks("red", "circle", glyph)[0] for glyph in world.GLYPHS]
    looks += [draw.looks(colour, "circle", "3")[0] for colour in (*world.COLOURS, world.GREY)]
    looks += [draw.looks("red", ring, "8")[0] for ring in world.RINGS[1:]]
    for one in range(len(looks)):
        for two in range(one):
            if np.array_equal(looks[one], looks[two]):
                assert {one, two} == {0, len(world.GLYPHS)}  # the red circle with a 3, twice


def test_labels_name_what_cells_show() -> None:
    drawn = clip(10, 16)
    labels = draw.labels(drawn)
    shown = labels[..., 1] > 0
    assert np.array_equal(shown, world.places(drawn))
    assert (labels[~shown][:, :3] == 0).all()
    assert (labels.reshape(-1, 5).max(0) < list(draw.LABELS.values())).all()
    colours = (world.GREY, *world.COLOURS)
    for frame, mark in drawn.shown():
        colour, ring, glyph, row, column = labels[frame, mark.cell]
        told = colours[colour - 1], world.RINGS[ring - 1], world.GLYPHS[glyph - 1]
        assert told == (mark.colour, mark.ring, mark.glyph)
        assert (world.ROWS[row], world.COLUMNS[column]) == (mark.row, mark.column)
