"""The document recipe: training inputs are the processor's, and the hints say what is drawn."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from sooner_lab.worlds.document import (
    architecture,
    build,
    data,
    evaluate,
    losses,
    page_loss,
    render,
    words,
    world,
)

SHAPE = architecture.DocumentShape(4, 32, 2, 1, 16, 32, 704, 2, 32, 2)


def tiny_model(layers: int = 3, seed: int = 0):
    torch.manual_seed(seed)
    return architecture.build_model(dataclasses.replace(SHAPE, layers=layers)).eval()


@pytest.mark.parametrize("size", [(1, 16), (4, 8), world.PAGE])
def test_training_reads_what_the_processor_writes(size: tuple[int, int]) -> None:
    """Token for token, pixel for pixel, place for place, and the same loss from `forward`."""
    model, writer = tiny_model(), data.PageRowWriter()
    rng = np.random.default_rng(7)
    page = world.sample_page(rng, *size)
    sheets = writer.sheets([page], np.random.default_rng(8))
    picture = render.rgb(render.vary(render.draw(page), np.random.default_rng(8)))
    rows = writer.rows(np.random.default_rng(9), [writer.answer(page)], *size)
    text = writer.tokenizer.decode(rows.ids[0])
    prompt = next(prompt for prompt in words.PROMPTS if prompt in text)
    inputs = evaluate.build_inputs(build.build_processor(), [picture], prompt)
    begin = rows.begin + 1
    assert torch.equal(inputs["input_ids"], rows.ids[:, :begin])
    assert torch.equal(inputs["image_grid_thw"], sheets.grid)
    grey = inputs["pixel_values"].unflatten(1, (6, -1))
    assert torch.allclose(grey, sheets.patches[:, None].expand_as(grey), atol=1e-5)
    with torch.no_grad():
        seen = losses.see(model, sheets.patches, sheets.grid)
        pages = page_loss.PageInputs(seen, sheets.words, sheets.previous)
        hints = losses.DocumentHints(SHAPE.width)
        loss, _ = page_loss.read(model, hints, rows, pages, 0.0, bf16=False)
        kinds = (rows.ids == writer.image).int()
        output = model(
            input_ids=rows.ids, mm_token_type_ids=kinds, labels=rows.labels,
            pixel_values=inputs["pixel_values"], image_grid_thw=inputs["image_grid_thw"],
        )  # fmt: skip
    assert torch.allclose(loss, output.loss, atol=1e-4)


def test_visual_tokens_are_labelled_with_what_they_show() -> None:
    writer, vocabulary = data.PageRowWriter(), words.vocabulary()
    rng = np.random.default_rng(3)
    page = world.sample_page(rng)
    sheets = writer.sheets([page], rng)
    by_cell = {word.row * 16 + word.column: word for word in page.words}
    last = None
    for word in page.words:
        cell = word.row * 16 + word.column
        assert vocabulary[sheets.words[0, cell]] == word.text
        assert data.MARKS[sheets.marks[0, cell]] == word.mark
        assert sheets.previous[0, cell] == (data.IGNORE if last is None else last)
        last = cell
    empty = [cell for cell in range(320) if cell not in by_cell]
    assert (sheets.words[0, empty] == writer.image).all()
    assert (sheets.labels[0, empty] == 0).all()


def test_pointers_lead_from_word_to_word() -> None:
    """Every token is guided to the last word said and to the next one, structure skipped."""
    writer = data.PageRowWriter()
    page = world.sample_page(np.random.default_rng(11))
    answer = writer.answer(page)
    rows = writer.rows(np.random.default_rng(0), [answer], page.rows, page.columns)
    places = [word.row * page.columns + word.column for word in page.words]
    begin = rows.begin
    assert rows.next[0, begin] == places[0]
    current = -1
    for at, (_, number) in enumerate(page.pieces):
        current = current if number is None else number
        assert rows.here[0, begin + 1 + at] == (places[current] if current >= 0 else data.IGNORE)
        coming = [number for _, number in page.pieces[at + 1 :] if number is not None]
        expected = places[coming[0]] if coming else data.IGNORE
        assert rows.next[0, begin + 1 + at] == expected


def test_the_guide_reads_the_decoder_s_attention() -> None:
    """The guided scores are those of the head itself, and its gradient reaches the tower's side."""
    model, writer = tiny_model(), data.PageRowWriter()
    rng = np.random.default_rng(5)
    page = world.sample_page(rng, 2, 16)
    sheets = writer.sheets([page], rng)
    rows = writer.rows(rng, [writer.answer(page)], 2, 16)
    seen = losses.see(model, sheets.patches, sheets.grid)
    pages = page_loss.PageInputs(seen, sheets.words, sheets.previous)
    loss, report = page_loss.read(
        model, losses.DocumentHints(SHAPE.width), rows, pages, 0.5, bf16=False
    )
    loss.backward()
    attention = model.model.language_model.layers[1].self_attn
    with torch.no_grad():
        model.set_attn_implementation("eager")
        kinds = (rows.ids == writer.image).int()
        scores = model(
            input_ids=rows.ids, mm_token_type_ids=kinds, output_attentions=True,
            pixel_values=sheets.patches.repeat(1, 6), image_grid_thw=sheets.grid,
        ).attentions[1][0, 0]  # fmt: skip
    known = rows.here[0] != data.IGNORE
    best = scores[known].argmax(-1) - rows.image
    assert report["here"] == pytest.approx(
        float((best == rows.here[0][known]).float().mean()), abs=1e-4
    )
    assert attention.k_proj.weight.grad is not None


def test_word_accuracy_counts_edits() -> None:
    page = world.sample_page(np.random.default_rng(2), 4, 16)
    truth = page.markdown.split()
    assert evaluate.score([page.markdown], [page]) == {"words": 1.0, "pages": 1.0}
    wrong = " ".join(["nonsense", *truth[1:]])
    assert evaluate.score([wrong], [page])["words"] == pytest.approx(1 - 1 / len(truth), abs=1e-4)
    assert evaluate.score([""], [page])["words"] == 0
    assert evaluate.distance("kitten", "sitting") == 3
