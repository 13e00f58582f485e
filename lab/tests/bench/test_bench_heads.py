"""`sooner bench heads`: prompts of other files, one recording for all formats, a small run."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import tiny
from sooner.tasks.loading import Loaded, ModelPair
from sooner_lab.bench.heads import run as bench
from sooner_lab.bench.heads import texts
from sooner_lab.bench.heads.settings import RECIPES, WORKLOADS, HeadsSettings
from sooner_lab.bench.heads.texts import files, training_prompts
from sooner_lab.bench.real.texts import MODULES
from sooner_lab.bench.real.texts import WORKLOADS as PROMPTS
from sooner_lab.bench.report import markdown

WORDS = ("the", "of", "a", "in", "text", "to", "is", "for", "and", "it", "def", "return")


@pytest.fixture(scope="module")
def pair() -> ModelPair:
    words = {word: number for number, word in enumerate(["?", *WORDS])}
    rules = Tokenizer(models.WordLevel(words, unk_token="?"))
    rules.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="?", pad_token="?")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    model = copy.deepcopy(tiny.model("llama", layers=4))
    model.config.max_position_embeddings = 4096
    return ModelPair(Loaded("tiny", model, tokenizer, is_text=True))


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [path for path in files() if path.stem in ("tarfile", "pprint", "shutil", "ast")]
    monkeypatch.setattr(texts, "files", lambda: paths)


@pytest.mark.usefixtures("few_files")
def test_prompts_to_learn_from_are_of_other_files_and_of_every_kind() -> None:
    names = {path.stem for path in files()}
    assert not names & {*MODULES, "topics"}
    prompts = training_prompts(80, seed=1)
    learnt = {prompt.text for prompt in prompts}
    assert len(learnt) == 80
    assert prompts == training_prompts(80, seed=1) != training_prompts(80, seed=2)
    for begin in ("Explain in", "Summarise this", "Repeat this", "Rename "):
        assert sum(text.startswith(begin) for text in learnt) >= 5, begin
    for workload in WORKLOADS:
        assert not learnt & {prompt.text for prompt in PROMPTS[workload](18)}


@pytest.mark.usefixtures("few_files")
def test_a_small_run_trains_measures_and_goes_on(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "load_pair", lambda *args, **options: pair)
    settings = HeadsSettings(
        folder=tmp_path, samples=12, answer=8, steps=2, workloads=("chat",), prompts=2,
        max_new_tokens=12, threads=1,
    )  # fmt: skip
    lines: list[str] = []
    result = bench.run(settings, lines.append)
    assert sum(line.startswith("recorded") for line in lines) == 2
    assert [row["format"] for row in result["training"]] == list(RECIPES)
    for row in result["training"]:
        assert (row["steps"], row["samples"]) == (2, 12)
        assert row["last_loss"] > 0
        assert row["bytes"] > 4 * row["parameters"]
    arms = {arm["method"]: arm for arm in result["arms"]}
    assert arms.keys() == {"plain", "hf", *settings.arms}
    assert {arm["parity"] for arm in arms.values()} <= {"identical", "tie"}
    assert all("depths" in arms[f"{kind}-chain"] for kind in RECIPES)
    page = markdown(result, "heads.json")
    assert "Acceptance on prompts of other files" in page
    assert "dflash-chain" in page
    again = bench.run(settings, lines.append)
    for first, second in zip(result["training"], again["training"], strict=True):
        assert first["last_loss"] == second["last_loss"], "nothing is recorded or trained anew"
    assert sum(line.startswith("recorded") for line in lines) == 2


def test_all_formats_read_their_layers_of_one_recording(
    pair: ModelPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "training_prompts", lambda count, seed: PROMPTS["chat"](count))
    settings = HeadsSettings(folder=tmp_path, samples=3, answer=6)
    data: Any = bench.recording(pair, settings, lambda line: None)
    whole = data[0].states.unflatten(-1, (-1, 48))  # [tokens, layers, hidden]
    layers = [1, 2, 3, 4]
    for chosen in ((), (4, 2, 2, 1), (3,)):
        states = bench.LayerSelection(data, chosen)[0].states
        places = [layers.index(layer) for layer in chosen or (4,)]
        assert torch.equal(states, whole[:, places].flatten(1))
