"""A target spread over devices by `device_map`, its draft on its own."""

from __future__ import annotations

import copy
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

import sooner
import tiny
from sooner.cli.main import main
from sooner.errors import SoonerError
from sooner.methods import Method
from sooner.tasks.loading import load_pair, separate_device

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
        draft, prune=0.5, min_visual=0, placement="process"
    ),
    "parallel-thread": lambda draft: sooner.ParallelVLM(
        draft, prune=0.5, min_visual=0, placement="thread"
    ),
    "speculative": lambda draft: sooner.Speculative(draft, num_draft_tokens=3),
}


@pytest.mark.filterwarnings("ignore:The following device_map keys")  # that parameter's
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", METHODS)
def test_a_target_in_pieces_generates_the_same(family: str, name: str) -> None:
    method: Method = METHODS[name](tiny.noisy(family))
    inputs = tiny.inputs(family, "video")
    options = {"max_new_tokens": 12, "do_sample": False}
    model = spread(family)
    assert hasattr(model.get_decoder().layers[1], "_hf_hook")  # or this tests nothing
    made = sooner.generate(model, inputs, method, **options)
    whole = tiny.model(family).generate(**inputs, **options)
    assert made.sequences.tolist() == whole.tolist()


def test_a_draft_device_that_is_not_there_is_named(target_folder: Path, draft_folder: Path) -> None:
    with pytest.raises(SoonerError, match="did you mean 'cuda'"):
        load_pair(str(target_folder), str(draft_folder), draft_device="cudaa")


GIB = 1 << 30


@pytest.mark.parametrize(
    ("draft_device", "device", "device_map", "expected"),
    [
        (None, "cuda:0", None, None), ("cuda:1", "cuda:0", None, "cuda:1"),
        ("cuda:0", "cuda", None, None), ("cuda", "auto", "auto", "cuda"),
        ("cpu", "cpu", None, None), ("cpu", "cuda", None, "cpu"),
    ],
)  # fmt: skip
def test_a_draft_shares_the_targets_device_or_has_a_separate_device(
    draft_device: str | None, device: str, device_map: Any, expected: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert separate_device(draft_device, device, device_map) == expected


def test_the_target_is_loaded_into_what_is_left(
    target_folder: Path, draft_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_options: dict[str, Any] = {}

    def stop(auto: Any, name: str, **options: Any) -> Any:
        load_options.update(options)
        raise ValueError("that is all")

    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("accelerate.utils.get_max_memory", lambda: {0: GIB, 1: GIB, "cpu": GIB})
    monkeypatch.setattr("sooner.tasks.loading._from_pretrained", stop)
    with pytest.raises(SoonerError, match="that is all"):
        load_pair(str(target_folder), str(draft_folder), device_map="auto", draft_device="cuda:1")
    assert load_options["device_map"] == "auto"
    assert load_options["max_memory"][1] == 0
    assert load_options["max_memory"][0] > 0


@pytest.mark.slow
def test_a_command_spawns_its_draft_and_holds_no_weights_of_it(
    target_folder: Path, draft_folder: Path, clip: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """`sooner caption --method parallel --placement spawn`, here on a CPU."""
    children = set(multiprocessing.active_children())  # of pairs that await the garbage collector
    pairs: list[Any] = []
    monkeypatch.setattr(
        "sooner.tasks.loading.load_pair", lambda *names, **kw: noted(pairs, *names, **kw)
    )
    models = ["--model", str(target_folder), "--draft", str(draft_folder), "--draft-device", "cpu"]
    record = tmp_path / "out.jsonl"
    with pytest.raises(SystemExit) as end:
        main([
            "caption", str(clip), *models, "--method", "parallel", "--placement", "spawn", "-o",
            str(record), "--max-new-tokens", "48", "--compare",
        ])  # fmt: skip
    assert not end.value.code
    (pair,) = pairs
    result = json.loads(record.read_text())
    assert pair.draft.model.device.type == "meta"
    assert result["parity"]["verdict"] == "identical"
    assert result["acceptance_rate"] == 1.0  # the same weights, and pixels that reached them
    assert result["decisions"] == []
    assert result["draft_threads"] == 1
    pair.draft.spawned.close()
    assert set(multiprocessing.active_children()) <= children


def noted(pairs: list[Any], *names: Any, **options: Any) -> Any:
    pairs.append(load_pair(*names, **options))
    return pairs[-1]
