"""The document world: the same pages from the same seed, and a truth that is what is drawn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from transformers import AutoTokenizer

from sooner import miniatures
from sooner_lab.worlds.document import glyphs, lexicon, page, render, world

SIZES = ((1, 16), (3, 8), (5, 16), (10, 16), world.PAGE)


def pages(count: int = 12, seed: int = 3) -> list[page.DrawnPage]:
    rng = np.random.default_rng(seed)
    return [world.sample_page(rng, *size) for size in SIZES for _ in range(count)]


def test_a_seed_makes_the_same_pages() -> None:
    first, two = pages(2), pages(2)
    assert first == two
    assert [p.markdown for p in pages(2, seed=4)] != [p.markdown for p in first]
    drawn = [render.vary(render.draw(first[-1]), np.random.default_rng(5)) for _ in range(2)]
    assert np.array_equal(*drawn)


def test_regions_lie_in_the_page_and_apart() -> None:
    for made in pages():
        width, height = made.size
        boxes = [region.box for region in made.regions]
        for left, top, right, bottom in boxes:
            assert 0 <= left < right <= width
            assert 0 <= top < bottom <= height
        for number, box in enumerate(boxes):
            for other in boxes[:number]:
                apart = box[0] >= other[2] or other[0] >= box[2]
                assert apart or box[1] >= other[3] or other[1] >= box[3]


def test_the_answer_has_the_words_of_the_regions() -> None:
    for made in pages():
        assert made.markdown == "\n\n".join(region.text for region in made.regions)
        for region in made.regions:
            spoken = [
                piece for piece in region.pieces if piece not in ("#", "\n", "|", "---", "$$")
            ]
            texts = [(word.text, word.mark) if word.mark else (word.text,) for word in region.words]
            assert spoken == list(itertools.chain(*texts))


def test_ink_is_where_the_regions_are() -> None:
    for made in pages(4):
        picture = render.draw(made)
        for region in made.regions:
            for word in region.words:
                spot = picture[word.row * 32 : (word.row + 1) * 32, word.left : word.right]
                assert spot.min() < 120, word
        for left, top, right, bottom in (region.box for region in made.regions):
            picture[top:bottom, left:right] = 255
        assert picture.min() == 255


def test_a_visual_token_shows_a_single_line_and_the_begin_of_a_single_word() -> None:
    for made in pages():
        cells = [(word.row, word.column) for word in made.words]
        assert len(set(cells)) == len(cells)
    for word in lexicon.words():
        for style in glyphs.SIZES:
            ink = glyphs.ink(word + ".", style)
            assert ink[0].max() == ink[-1].max() == 0, (word, style)


def test_words_of_a_line_do_not_touch() -> None:
    for made in pages():
        lines: dict[int, list[page.DrawnWord]] = {}
        for word in made.words:
            lines.setdefault(word.row, []).append(word)
        for line in lines.values():
            line.sort(key=lambda word: word.left)
            for previous, other in itertools.pairwise(line):
                assert previous.right + 2 <= other.left


def test_full_pages_are_full_and_of_all_kinds() -> None:
    rng = np.random.default_rng(0)
    made = [world.sample_page(rng) for _ in range(60)]
    assert {region.label for sample in made for region in sample.regions} == set(page.LABELS)
    assert np.mean([len(sample.words) for sample in made]) > 75
    assert any(_columns(sample) == 2 for sample in made)
    assert any(_columns(sample) == 1 for sample in made)


def _columns(made: page.DrawnPage) -> int:
    tops = [region.box[1] for region in made.regions]
    return 1 + sum(later < before for before, later in itertools.pairwise(tops))


@pytest.mark.parametrize("size", [(0, 16), (4, 5)])
def test_a_page_without_room_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1 row and 6 columns"):
        world.sample_page(np.random.default_rng(0), *size)


def test_the_tokenizer_of_the_weights_returns_its_input() -> None:
    tokenizer = AutoTokenizer.from_pretrained(miniatures.find("document").target)
    for made in pages():
        ids = tokenizer(made.markdown, add_special_tokens=False).input_ids
        parts = [region.pieces for region in made.regions]
        pieces = [*parts[0], *(piece for part in parts[1:] for piece in ("\n\n", *part))]
        assert tokenizer.convert_ids_to_tokens(ids) == pieces
        assert tokenizer.decode(ids) == made.markdown
