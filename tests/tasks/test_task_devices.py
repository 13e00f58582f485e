"""A target spread over devices by `device_map`, its draft on its own."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

import sooner
import tiny
from sooner.errors import SoonerError
from sooner.methods import Method
from sooner.tasks.caption import caption
from sooner.tasks.loading import load_pair
from sooner.tasks.settings import CaptionSettings

accelerate = pytest.importorskip("accelerate")
FAMILIES = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")


def spread(family: str) -> Any:
    """The tiny model in pieces, each behind accelerate's own hooks, as on several devices."""
    whole = copy.deepcopy(tiny.model(family))
    body, decoder = "model", "model.language_model"
    pieces = {
        f"{body}.{name}": "cpu"
        for name, _ in whole.model.named_children()
        if name != "language_model"
    }
    for name, child in whole.model.language_model.named_children():
        if name == "layers":
            pieces |= {f"{decoder}.layers.{index}": "cpu" for index in range(len(child))}
        else:
            pieces[f"{decoder}.{name}"] = "cpu"
    if family == "llava_onevision":
        pieces["model.image_newline"] = "cpu"  # a parameter beside the modules
    pieces["lm_head"] = "cpu"
    return accelerate.dispatch_model(whole, pieces, force_hooks=True)


METHODS: dict[str, Any] = {
    "parallel-process": lambda draft: sooner.ParallelVLM(
        draft, prune=0.5, least=0, placement="process"
    ),
    "parallel-thread": lambda draft: sooner.ParallelVLM(
        draft, prune=0.5, least=0, placement="thread"
    ),
    "speculative": lambda draft: sooner.Speculative(draft, num_draft_tokens=3),
}


@pytest.mark.filterwarnings("ignore:The following device_map keys")  # that parameter's
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", METHODS)
def test_a_target_in_pieces_says_the_same(family: str, name: str) -> None:
    method: Method = METHODS[name](tiny.noisy(family))
    inputs = tiny.inputs(family, "video")
    options = {"max_new_tokens": 12, "do_sample": False}
    model = spread(family)
    assert hasattr(model.get_decoder().layers[1], "_hf_hook")  # or this tests nothing
    made = sooner.generate(model, inputs, method, **options)
    whole = tiny.model(family).generate(**inputs, **options)
    assert made.sequences.tolist() == whole.tolist()


def test_a_map_reaches_the_target_and_the_draft_has_a_device_of_its_own(
    target_folder: Path, draft_folder: Path, clip: Path
) -> None:
    pair = load_pair(
        str(target_folder),
        str(draft_folder),
        device="cpu",
        device_map={"": "cpu"},
        draft_device="cpu",
    )
    assert pair.draft is not None
    settings = CaptionSettings(method="parallel", prune=0.5, max_new_tokens=8)
    plain = CaptionSettings(method="plain", max_new_tokens=8)
    assert caption(clip, pair, settings)["text"] == caption(clip, pair, plain)["text"]


def test_a_map_that_transformers_refuses_gets_one_line(target_folder: Path) -> None:
    with pytest.raises(SoonerError, match="can't be loaded"):
        load_pair(str(target_folder), device_map="nowhere")


def test_a_draft_device_that_is_not_there_is_named(target_folder: Path, draft_folder: Path) -> None:
    with pytest.raises(SoonerError, match="did you mean 'cuda'"):
        load_pair(str(target_folder), str(draft_folder), draft_device="cudaa")
