"""Greedy pictures of every method equal those of the families' own incremental decoding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import canvas_reference as reference
import sooner
import tiny_canvas as tiny
from covering import pairwise
from sooner import Autoregressive, CoupledJacobi


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
