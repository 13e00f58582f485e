"""Arms of trained drafters: the shipped weights, acceptance by depth, goals, pages."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sooner
from sooner.errors import SoonerError
from sooner.methods.eagle.eagle3 import Eagle3Head
from sooner.tasks.loading import load_pair
from sooner_lab.bench.caption_settings import TRAINED, DrafterBenchSettings
from sooner_lab.bench.drafters import depths, run
from sooner_lab.bench.report import markdown, tables


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    settings = DrafterBenchSettings(arms=("plain", *TRAINED), clips=1, repeats=1, max_new_tokens=60)
    return run(settings, lambda line: None)


def test_arms_are_exact_and_their_drafts_hold(result: dict[str, Any]) -> None:
    for arm in result["arms"]:
        assert arm["parity"] in ("identical", "tie")
        if arm["method"] in TRAINED:
            assert arm["mean_acceptance_length"] > 1.8
            assert arm["depths"] == sorted(arm["depths"], reverse=True)
            assert arm["baseline"] == TRAINED[arm["method"]].baseline


def test_the_page_shows_goals_speeds_and_depths(result: dict[str, Any]) -> None:
    page = markdown(result, "drafters.json")
    assert "# Trained drafters" in page
    assert "Acceptance by depth" in page
    assert all(name in page for name in TRAINED)
    assert next(table.title for table in tables(result)) == "Goals"


def test_the_assistant_of_transformers_generates_the_same() -> None:
    """It drafts with the weights of arm `dflash`."""
    pytest.importorskip("transformers.models.muse_glimmer_assistant")
    settings = DrafterBenchSettings(
        arms=("plain", "hf-dflash"), clips=1, repeats=1, max_new_tokens=40
    )
    arm = run(settings, lambda line: None)["arms"][1]
    assert arm["method"] == "hf-dflash"
    assert arm["parity"] in ("identical", "tie")


def test_a_folder_is_an_arm_of_its_name(tmp_path: Path) -> None:
    heads = (f"{tmp_path}/chain", f"{tmp_path}/block/head")  # the latter as training leaves it
    for drafter, folder in zip(("eagle3", "dflash"), heads, strict=True):
        shutil.copytree(TRAINED[drafter].folder, folder)
    settings = DrafterBenchSettings(
        arms=("plain",), heads=heads, clips=1, repeats=1, max_new_tokens=40
    )
    _, *arms = run(settings, lambda line: None)["arms"]
    assert [arm["method"] for arm in arms] == ["chain", "block"]
    assert all(arm["parity"] in ("identical", "tie") and arm["depths"][0] > 0.5 for arm in arms)
    with pytest.raises(SoonerError, match="a second arm 'chain'; rename the folder"):
        run(replace(settings, heads=heads * 2), lambda line: None)


def test_depths_are_shares_of_steps() -> None:
    assert depths({0: 5, 1: 3, 3: 2}, 4) == [0.5, 0.2, 0.2, 0.0]
    assert depths({}, 2) == [0.0, 0.0]


@pytest.mark.parametrize(("name", "kind"), [("eagle3", Eagle3Head), ("mtp", sooner.MtpHead)])
def test_the_weights_record_their_provenance(name: str, kind: type[Any]) -> None:
    folder = TRAINED[f"{name}-chain"].folder
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_500_000
    card = json.loads((folder / "card.json").read_text())
    method = sooner.load_drafter(folder)
    assert isinstance(method, sooner.Eagle)
    assert isinstance(method.head, kind)
    assert card["parameters"] == sum(weight.numel() for weight in method.head.parameters())
    origin = method.head.config.provenance
    assert card["acceptance"] == origin["acceptance"]
    assert card["steps"] == origin["step"]
    assert method.head.config.temperature > 0
    from sooner.models import adapt

    method.head.check(adapt(load_pair(None, None, device="cpu", dtype="auto").target.model))


def test_other_libraries_read_the_folder() -> None:
    config = json.loads((TRAINED["eagle3"].folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [0, 1, 2]
    assert config["draft_vocab_size"] == 128
