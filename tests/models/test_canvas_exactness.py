"""Greedy pictures of every method equal those of the families' own incremental decoding."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch

import canvas_reference as reference
import sooner
import tiny_canvas as tiny
from sooner import Autoregressive, CoupledJacobi

METHODS = {
    "plain": Autoregressive(),
    **{
        f"{coupling}-{window}": CoupledJacobi(jacobi_window=window, coupling=coupling)
        for coupling in ("gumbel", "maximal", "independent")
        for window in (1, 5, 64)
    },
}
BATCHES, COUNTS = (1, 3), (1, 2)


@dataclass(frozen=True)
class Case:
    family: str
    method: str
    guidance: float
    rows: int
    count: int

    def __str__(self) -> str:
        return f"{self.family}-{self.method}-g{self.guidance:g}-b{self.rows}-c{self.count}"


def cases() -> list[Case]:
    """A covering subset: the eight settings take turns over the methods of each family."""
    subset = []
    for i, family in enumerate(tiny.FAMILIES):
        scales = (1.0, 3.0) if family in tiny.GUIDED else (1.0,)
        settings = list(itertools.product(scales, BATCHES, COUNTS))
        for j, method in enumerate(METHODS):
            subset.append(Case(family, method, *settings[(3 * i + j) % len(settings)]))
    return subset


@pytest.mark.parametrize("case", cases(), ids=str)
def test_greedy_pictures_equal_incremental_decoding(case: Case) -> None:
    drawing = sooner.draw(
        tiny.canvas(case.family),
        tiny.inputs(case.family, case.rows),
        METHODS[case.method],
        count=case.count,
        do_sample=False,
        guidance=case.guidance,
    )
    expected = reference.drawn(case.family, case.rows, case.guidance, case.count)
    assert drawing.tokens.tolist() == expected


@pytest.mark.parametrize("scale", [1.5, 5.0])
def test_janus_draws_what_its_generate_draws(scale: float) -> None:
    model, inputs = tiny.janus(), tiny.inputs("janus", 3)
    expected = model.generate(
        **inputs, generation_mode="image", guidance_scale=scale, do_sample=False
    )
    for method in METHODS.values():
        drawing = sooner.draw(tiny.canvas(), inputs, method, do_sample=False, guidance=scale)
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
