"""Models whose new tokens attend to the prompt in a way of its own, by cross-attention or behind a
window: rows that join, leave and begin anew. That methods say what `generate` says is a law of the
zoo."""

from __future__ import annotations

import functools

import pytest
import torch

import sooner
from sooner.engine.runner import ModelRunner
from sooner.errors import UnsupportedError
from sooner.models import adapt
from zoo import laws
from zoo.species import Species, model_of
from zoo.zoo import DECODED

CROSS, WINDOW = (
    next((species for species in DECODED if species.model_type == name), None)
    for name in ("mllama", "unlimited_ocr")
)
SPECIES = [species for species in (CROSS, WINDOW) if species is not None]

each = pytest.mark.parametrize("species", SPECIES, ids=str)


@functools.cache
def alone(species: Species, kind: str, seed: int) -> list[int]:
    """What `generate` says to a prompt of a row."""
    return laws.output(species, species.inputs(model_of(species), kind, 1, seed))[0]


@each
@pytest.mark.parametrize("name", ["plain", "tree"])
def test_requests_with_and_without_pictures_join_and_leave(species: Species, name: str) -> None:
    model = model_of(species)
    engine = sooner.Engine(model, laws.METHODS[name](species), max_rows=3)
    requests = []
    for kind, new in (("text", 24), ("image", 6), ("images", 24), ("text", 9), ("image", 18)):
        request = engine.add_request(
            species.inputs(model, kind, 1, new), max_new_tokens=new, do_sample=False,
            eos_token_id=None,
        )  # fmt: skip
        requests.append((request, alone(species, kind, new)[:new]))
        engine.step()
    engine.run()
    for request, expected in requests:
        assert request.error is None, request.error
        assert request.tokens == [expected]


@each
@pytest.mark.parametrize("kind", ["text", "images"])
def test_a_row_that_begins_anew_sees_what_it_saw(species: Species, kind: str) -> None:
    """Half of the answer is prefilled with the prompt, the rest is decoded."""
    adapter, half = adapt(model_of(species)), laws.NEW // 2
    inputs = species.inputs(adapter.model, kind, laws.ROWS, 0)
    output = torch.tensor(laws.reference(species, kind))
    ids = torch.cat([inputs["input_ids"], output[:, :half]], 1)
    mask = torch.cat([inputs["attention_mask"], torch.ones_like(output[:, :half])], 1)
    prompt = adapter.embed_prompt({**inputs, "input_ids": ids, "attention_mask": mask})
    prompt.generated = half
    runner = ModelRunner(adapter, prompt.width + laws.NEW)
    with torch.inference_mode():
        first = runner.prefill(prompt).logits[:, -1]
        rest = runner.forward_chain(output[:, half:-1]).logits
    decoded = torch.cat([first[:, None], rest], 1).argmax(-1)
    assert decoded.tolist() == output[:, half:].tolist()


@pytest.mark.skipif(WINDOW is None, reason="no type with such a window")
@pytest.mark.parametrize("chunk", [3, 7])
def test_a_prompt_in_chunks_hides_nothing_of_itself(chunk: int) -> None:
    assert WINDOW is not None
    model = model_of(WINDOW)
    made = sooner.generate(
        model, WINDOW.inputs(model, "image", laws.ROWS, 0), max_new_tokens=laws.NEW,
        do_sample=False, eos_token_id=None, prefill_chunk_size=chunk,
    )  # fmt: skip
    assert made.tokens == laws.reference(WINDOW, "image")


@pytest.mark.skipif(CROSS is None, reason="no type with cross-attention")
def test_what_cross_attention_does_not_take_is_refused_by_name() -> None:
    assert CROSS is not None
    model = model_of(CROSS)
    inputs = CROSS.inputs(model, "image", 2, 0)
    with pytest.raises(UnsupportedError, match="leave prefill_chunk_size unset"):
        sooner.generate(model, inputs, max_new_tokens=2, prefill_chunk_size=3)
    with pytest.raises(UnsupportedError, match="knows no cross-attention"):
        adapt(model).require_plain_causal("MMInference")
    del inputs["cross_attention_mask"]
    with pytest.raises(UnsupportedError, match="pictures without cross_attention_mask"):
        sooner.generate(model, inputs, max_new_tokens=2)
