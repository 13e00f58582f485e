"""The repositories for the model hub, run by their folders through transformers' own door."""

from __future__ import annotations

import itertools
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import assistants
import standins
import tiny
from sooner import SoonerError
from sooner.registry import METHODS, choices

HUB = Path(__file__).parents[2] / "hub"
TOOL = runpy.run_path(str(HUB.parent / "tools" / "hub_pages.py"))
PAGES = TOOL["PAGES"]
FAMILY, LONG = "qwen2_5_vl", 24


@pytest.fixture(autouse=True, scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The repositories' code is copied to a folder of the tests' own, not to the user's."""
    with standins.isolated_modules(tmp_path_factory.mktemp("hub") / "modules"):
        yield


def call(model: Any, name: str, **arguments: Any) -> Any:
    return model.generate(**arguments, custom_generate=str(HUB / name), trust_remote_code=True)


def report(name: str, folder: Path) -> dict[str, Any]:
    """What the repository is given, small enough for a tiny model."""
    if name in ("speculative", "sd-tree", "parallelvlm", "onsd"):
        return {"assistant_model": tiny.noisy(FAMILY)}
    if name == "eagle":
        tiny.head(FAMILY).save_pretrained(folder)
        return {"assistant_model": str(folder), "nodes": 8, "depth": 3}
    if name in ("dflash", "ddtree"):
        return {"assistant_model": tiny.block_drafter(FAMILY)}
    if name == "assistant":
        return {"assistant_model": assistants.of(FAMILY)}
    return {}


def test_the_folder_is_what_is_written() -> None:
    written = {
        str(path.relative_to(HUB)): path.read_text(encoding="utf-8")
        for path in HUB.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }  # fmt: skip
    assert written == TOOL["files"](), "run python tools/hub_pages.py"


def test_every_method_of_the_command_line_has_a_repository() -> None:
    there = {page.type_name for page in PAGES}
    bundled = (entry for entry in METHODS if entry.is_choice and entry.name != "plain")
    expected = {entry.type_name for entry in bundled}
    assert expected <= there, "add it to tools/hub_pages.py"


@pytest.mark.parametrize(
    ("name", "kind"),
    zip(
        [page.name for page in PAGES
         if page.type_name in {entry.type_name for entry in choices().values()}],
        itertools.cycle(tiny.kinds(FAMILY)),
    ),
)  # fmt: skip
def test_ids_are_those_of_generate(name: str, kind: str, tmp_path: Path) -> None:
    model, inputs = tiny.model(FAMILY), tiny.inputs(FAMILY, kind, rows=2)
    expected = model.generate(**inputs, max_new_tokens=LONG, do_sample=False)
    options = report(name, tmp_path) | {"max_new_tokens": LONG, "do_sample": False}
    assert torch.equal(call(model, name, **inputs, **options), expected)
    output = call(model, name, **inputs, **options, return_dict_in_generate=True)
    assert torch.equal(output.sequences, expected)
    assert output.stats.num_spec_steps > 0


def test_texts_of_a_page() -> None:
    model, inputs = tiny.model(FAMILY), tiny.inputs(FAMILY, "image", rows=2)
    options = {"max_new_tokens": LONG, "do_sample": False}
    expected = model.generate(**inputs, **options)
    generated = expected[:, inputs["input_ids"].shape[1] :]
    output = call(
        model, "hsd", **inputs, **options, return_dict_in_generate=True,
        drafts=[[generated[0].tolist()], []], nodes=8,
    )  # fmt: skip
    assert torch.equal(output.sequences, expected)
    assert output.stats.num_accepted_draft_tokens > 4


def test_a_sparse_prefill_leaves_short_prompts_alone() -> None:
    model, inputs = tiny.model(FAMILY), tiny.inputs(FAMILY, "image")
    options = {"max_new_tokens": LONG, "do_sample": False}
    assert torch.equal(
        call(model, "mminference", **inputs, **options, dense_below=4096),
        model.generate(**inputs, **options),
    )


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("speculative", {}, "give assistant_model, a small model"),
        ("speculative", {"assistant_model": "org/draft"}, "load the model and pass that"),
        ("eagle", {}, "give assistant_model, a trained head"),
        ("prompt-lookup", {"assistant_model": "org/draft"}, "leave assistant_model out"),
        ("hsd", {}, "give drafts"),
        ("parallelvlm", {"assistant_model": "org/draft", "prune": 2.0}, "prune"),
    ],
)
def test_a_line_for_what_is_wrong(name: str, options: dict[str, Any], match: str) -> None:
    if options.get("prune"):
        options = options | {"assistant_model": tiny.model(FAMILY)}
    with pytest.raises(SoonerError, match=match):
        call(tiny.model(FAMILY), name, **tiny.inputs(FAMILY), **options)
