"""Canvases draw and write: pictures and words equal the families' own incremental decoding."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList

import canvas_reference as reference
import sooner
import tiny_canvas as tiny
from covering import pairwise
from sooner import Autoregressive, CoupledJacobi, PromptLookup
from sooner.errors import SoonerError


def method(coupling: str, window: int) -> sooner.Method:
    if coupling == "plain":
        return Autoregressive()
    return CoupledJacobi(jacobi_window=window, coupling=coupling)


CASES = pairwise(
    {
        "family": list(tiny.FAMILIES),
        "coupling": ("gumbel", "maximal", "independent", "plain"),
        "window": (1, 5, 64),
        "guidance": (1.0, 3.0),
        "rows": (1, 3),
        "count": (1, 2),
    },
    lambda case: case.get("guidance") != 3.0 or case.get("family", "janus") in tiny.GUIDED,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_greedy_pictures_equal_incremental_decoding(case: dict[str, Any]) -> None:
    family, rows, count, guidance = (case[name] for name in ("family", "rows", "count", "guidance"))
    drawing = sooner.draw(
        tiny.canvas(family),
        tiny.inputs(family, rows),
        method(case["coupling"], case["window"]),
        count=count,
        do_sample=False,
        guidance=guidance,
    )
    assert drawing.tokens.tolist() == reference.drawn(family, rows, guidance, count)


@pytest.mark.parametrize("scale", [1.5, 5.0])
def test_janus_draws_what_its_generate_draws(scale: float) -> None:
    model, inputs = tiny.janus(), tiny.inputs("janus", 3)
    expected = model.generate(
        **inputs, generation_mode="image", guidance_scale=scale, do_sample=False
    )
    for coupling in ("plain", "gumbel", "maximal", "independent"):
        drawing = sooner.draw(
            tiny.canvas(), inputs, method(coupling, 5), do_sample=False, guidance=scale
        )
        assert drawing.tokens.tolist() == expected.tolist()


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_emu3_draws_what_generate_draws_under_its_constraint(scale: float) -> None:
    """One row: HF's guidance takes the places of a padded negative prompt for real ones."""
    model, inputs = tiny.emu3(), tiny.inputs("emu3", 1)
    width = inputs["input_ids"].shape[1]
    rule = list(reference.emu3_allowed(3, 5))
    expected = model.generate(
        **inputs,
        prefix_allowed_tokens_fn=lambda row, ids: rule[ids.shape[0] - width],
        negative_prompt_ids=torch.tensor([[tiny.E_BOS, *inputs["input_ids"][0, -5:].tolist()]]),
        guidance_scale=scale,
        max_new_tokens=len(rule),
        do_sample=False,
    )
    canvas = tiny.canvas("emu3")
    drawing = sooner.draw(canvas, inputs, do_sample=False, guidance=scale)
    assert drawing.tokens.tolist() == expected[:, width:].tolist()


METHODS = (Autoregressive(), PromptLookup(), CoupledJacobi(jacobi_window=5))
NEW = 20


def seen(family: str, rows: int) -> dict[str, Any]:
    """Uneven prompts with a picture each, and its pixels."""
    generator = torch.Generator().manual_seed(3)
    side, begin, image, end, low, high, pad = {
        "chameleon": (16, [tiny.C_BOI], [tiny.C_IMAGE] * 16, [tiny.C_EOI], 40, 64, 1),
        "emu3": (
            6, [tiny.E_BOI, 3, 20, 3, tiny.E_PICTURE], [tiny.E_IMAGE] * 12,
            [tiny.E_EOF, tiny.E_EOI], 0, 20, tiny.E_PAD,
        ),
        "janus": (16, [tiny.BOI], [tiny.IMAGE] * 16, [59], 0, 59, tiny.PAD),
    }[family]  # fmt: skip
    lists = []
    for row in range(rows):
        words = torch.randint(low, high, (5 + 2 * row,), generator=generator).tolist()
        lists.append(words[:2] + begin + image + end + words[2:])
    pixels = torch.randn(rows, 3, side, side, generator=generator)
    sizes = {"image_sizes": torch.tensor([[side, side]] * rows)} if family == "emu3" else {}
    return {**tiny.padded(lists, pad), "pixel_values": pixels, **sizes}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name or "plain")
@pytest.mark.parametrize("family", ["chameleon", "emu3", "janus"])
def test_words_after_a_picture_equal_those_of_generate(family: str, method: sooner.Method) -> None:
    model, inputs = tiny.model(family), seen(family, 3)
    options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None}
    # A begun picture is where HF and sooner part ways; here nobody begins one.
    options["suppress_tokens"] = [{"chameleon": tiny.C_BOI, "emu3": 0, "janus": 0}[family]]
    expected = model.generate(**inputs, **options)
    result = sooner.generate(model, inputs, method, **options)
    assert result.sequences.tolist() == expected.tolist()
    assert len(set(expected[:, -NEW:].flatten().tolist())) > 8
    wordless = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    blind = sooner.generate(model, wordless, method, **options)
    assert blind.sequences.tolist() != expected.tolist(), "the pixels should matter"


def test_pixels_that_fit_no_placeholder_are_refused() -> None:
    inputs = seen("chameleon", 1)
    inputs["input_ids"][0, 4] = 50
    with pytest.raises(SoonerError, match="15 image placeholders do not match 16 codes"):
        sooner.generate(tiny.chameleon(), inputs, max_new_tokens=3)


class Begins(LogitsProcessor):
    """Begins a picture once a row has said some words, each row in its own time."""

    def __init__(self, width: int, words: list[int]) -> None:
        self.width, self.words = width, words

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        due = input_ids.shape[1] - self.width
        for row, words in enumerate(self.words):
            scores[row, tiny.C_BOI] = 1e4 if due == words else -1e4
        return scores


WORDS = [3, 6, 1]


@torch.no_grad()
def interleaved(rows: int, new: int) -> list[list[int]]:
    """What a loop by hand says: words, at `WORDS` words a picture, words again."""
    model, inputs = tiny.chameleon(), tiny.inputs("chameleon", rows)
    outputs = []
    for row in range(rows):
        ids = inputs["input_ids"][row][inputs["attention_mask"][row].bool()].tolist()
        cache, generated = DynamicCache(), []
        for count in range(new):
            tokens = torch.tensor([generated[-1:] or ids])
            states = model.model(input_ids=tokens, past_key_values=cache, use_cache=True)
            logits = model.lm_head(states.last_hidden_state[0, -1])
            inside = count - WORDS[row] - 1  # place in the picture
            allowed = [token for token in range(tiny.VOCAB) if not 4 <= token < 28]
            allowed.remove(tiny.C_BOI)
            if inside == -1:
                allowed = [tiny.C_BOI]
            elif 0 <= inside < 16:
                allowed = list(range(4, 28))
            elif inside == 16:
                allowed = [tiny.C_EOI]
            generated.append(allowed[int(logits[allowed].argmax())])
        outputs.append(generated)
    return outputs


@functools.cache
def written(method: sooner.Method, rows: int = 3, new: int = 34) -> sooner.Generation:
    inputs = tiny.inputs("chameleon", rows)
    begins = LogitsProcessorList([Begins(inputs["input_ids"].shape[1], WORDS[:rows])])
    return sooner.generate(
        tiny.chameleon(),
        inputs,
        method,
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=None,
        logits_processor=begins,
    )


@pytest.mark.parametrize("window", [1, 5, 64])
@pytest.mark.parametrize("rows", [1, 3])
def test_a_picture_inside_of_a_text_equals_plain_decoding(rows: int, window: int) -> None:
    expected = interleaved(rows, 34)
    assert written(Autoregressive(), rows).tokens == expected
    assert written(CoupledJacobi(jacobi_window=window), rows).tokens == expected
