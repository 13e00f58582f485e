"""Options, prompts and logits that Jacobi decoding refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import sooner
import tiny_canvas
from fake_models import FakeAdapter, adapt_fakes, generate_ids
from fakes import Table
from methods.doors import refused
from sooner import CoupledJacobi, SoonerError
from sooner.errors import BadLogitsError


@pytest.mark.parametrize("strength", [-0.1, 1.1, math.nan, math.inf, "x", None])
def test_strengths_that_are_no_probability(strength: Any) -> None:
    with refused(SoonerError, "CoupledJacobi", f"strength is {strength!r}", "0 to 1"):
        CoupledJacobi(strength=strength)


@pytest.mark.parametrize(
    ("option", "value", "meant"),
    [
        ("coupling", "gumble", "gumbel"),
        ("coupling", "maximum", "maximal"),
        ("init", "lst", "last"),
        ("init", "previous_frame", "previous-frame"),
    ],
)
def test_unknown_names_get_the_nearest_known_name(option: str, value: str, meant: str) -> None:
    with refused(SoonerError, f"unknown {option} '{value}'", f"did you mean '{meant}'?"):
        CoupledJacobi(**{option: value})


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"top_k": 0}, "top_k is 0"),
        ({"top_k": 2.5}, "top_k is 2.5"),
        ({"top_p": 0.0}, "top_p is 0;"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"guidance": -1}, "guidance is -1"),
        ({"guidance": math.nan}, "guidance is nan"),
        ({"guidance": "x"}, "guidance is 'x'"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": 0}, "temperature is 0"),
        ({"temperature": -1.0}, "temperature is -1;"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"count": 0}, "count is 0"),
        ({"count": 1.5}, "count is 1.5"),
    ],
    ids=str,
)
def test_drawing_refuses_what_it_can_not_draw_with(options: dict[str, Any], word: str) -> None:
    with refused(SoonerError, word):
        sooner.draw(tiny_canvas.canvas(), tiny_canvas.prompts(1), **options)


def test_a_prompt_that_leaves_no_room_for_the_picture_is_refused() -> None:
    inputs = tiny_canvas.prompts(1)
    ids = inputs["input_ids"].repeat(1, 20)
    long = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with refused(SoonerError, str(ids.shape[1]), "128", "shorter prompt"):
        sooner.draw(tiny_canvas.canvas(), long)


@pytest.mark.parametrize("coupling", ["independent", "maximal", "gumbel"])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_nan_logits_are_named(coupling: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, or only behind tokens that a window holds."""
    adapt_fakes(monkeypatch)
    table = Table(2, 5, seed=1)
    first = sum(2**depth for depth in range(at))
    table.p[first : first + 2**at] = math.nan
    with refused(BadLogitsError, "NaN", "float32"):
        generate_ids(CoupledJacobi(3, coupling), FakeAdapter(table), 4, 5)
