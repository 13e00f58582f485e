"""Lumina-mGPT in folders as published: a tokenizer, no processor, and decoders of others."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import movqgan_reference
import tiny_canvas
from models.test_chameleon_files import vqgan
from sooner.errors import SoonerError
from sooner.models.chameleon_files import VQGANDecoder
from sooner.models.movqgan import MoVQGANDecoder
from sooner.tasks.imagine.job import imagine
from sooner.tasks.imagine.loading import SEPARATOR, WordsOnly, load_drawing_model
from sooner.tasks.imagine.settings import ImagineSettings

SEPARATOR_ID, BEGIN = 40, 2
SIZE = {"lumina": (64, 64), "lumina2": (32, 32)}


def published(folder: Path, second: bool) -> Path:
    """Names, files and shapes of the published folders, tiny: config, weights with norms of a
    shard, a tokenizer; neither a processor's config nor a VQ model."""
    model = copy.deepcopy(tiny_canvas.chameleon(second))
    model.save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in state.items() if ".vqmodel." not in name}
    for name, tensor in kept.items():
        if ".q_norm." in name or ".k_norm." in name:
            kept[name] = tensor[:1].contiguous()  # one shard
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    words = dict(tiny_canvas.chameleon_names(second))
    names = (SEPARATOR, "Generate", "an", "image", "a", "fox")
    for token, name in enumerate(names, SEPARATOR_ID):
        del words[f"word{token}"]
        words[name] = token
    whole = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    whole.add_special_tokens([SEPARATOR])
    whole.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"}
    if not second:
        told |= {"bos_token": "<s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("lumina") / "Lumina-mGPT-2.0", second=True)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("lumina") / "Lumina-mGPT-7B-768", second=False)


@pytest.fixture(scope="module")
def movqgan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout of Lumina-mGPT 2, `movqgan/270M/movqgan_270M.ckpt` in it."""
    root = tmp_path_factory.mktemp("lumina_mgpt")
    (root / "movqgan" / "270M").mkdir(parents=True)
    torch.manual_seed(0)
    torch.save(
        movqgan_reference.weights(tiny_canvas.CODES), root / "movqgan/270M/movqgan_270M.ckpt"
    )
    return root


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout of Lumina-mGPT with Meta's files in it."""
    root = tmp_path_factory.mktemp("lumina_mgpt_1")
    place = root / "ckpts" / "chameleon" / "tokenizer"
    place.mkdir(parents=True)
    torch.manual_seed(0)
    torch.save({"state_dict": vqgan()}, place / "vqgan.ckpt")
    (place / "vqgan.yaml").write_text("model: {}\n")
    return root


@pytest.mark.parametrize("place", ["", "movqgan/270M", "movqgan/270M/movqgan_270M.ckpt"])
def test_lumina_2_draws_from_its_published_folder(second: Path, movqgan: Path, place: str) -> None:
    drawing_model = load_drawing_model(
        str(second), layout="lumina2", tokenizer=str(movqgan / place), threads=1
    )
    assert isinstance(drawing_model.options["decoder"], MoVQGANDecoder)
    settings = ImagineSettings(size=SIZE["lumina2"], method="plain")
    made = imagine("a fox", drawing_model, settings)
    assert made.record["mode"] == "exact"
    assert made.record["tokens"] >= 4 * 4


def test_lumina_draws_from_its_published_folder(first: Path, meta: Path) -> None:
    drawing_model = load_drawing_model(str(first), layout="lumina", tokenizer=str(meta), threads=1)
    assert isinstance(drawing_model.options["decoder"], VQGANDecoder)
    loaded, model = drawing_model.model, tiny_canvas.chameleon()
    assert loaded.model.layers[0].self_attn.q_norm.weight.shape == (
        model.model.layers[0].self_attn.q_norm.weight.shape
    )
    assert imagine(
        "a fox", drawing_model, ImagineSettings(size=SIZE["lumina"], method="plain")
    ).record["tokens"]  # fmt: skip


def test_prompts_are_those_of_the_published_code(first: Path, second: Path) -> None:
    """The begin (the end stands for it where there is none), the words, the end of the turn."""
    for folder, begin in ((first, 0), (second, BEGIN)):
        from transformers import AutoTokenizer

        words = WordsOnly(AutoTokenizer.from_pretrained(folder))
        made = words(text=["Generate an image", "a fox"], padding=True, return_tensors="pt")
        pad = 1 if folder == first else 0
        assert made["input_ids"].tolist() == [
            [begin, 41, 42, 43, SEPARATOR_ID], [pad, begin, 44, 45, SEPARATOR_ID],
        ]  # fmt: skip
        assert made["attention_mask"].tolist() == [[1] * 5, [0, 1, 1, 1, 1]]


def test_the_wrong_decoder_is_refused(second: Path, first: Path, movqgan: Path, meta: Path) -> None:
    with pytest.raises(SoonerError, match=r"give its movqgan_270M\.ckpt with --tokenizer"):
        load_drawing_model(str(second), layout="lumina2")
    with pytest.raises(SoonerError, match=r"give its movqgan_270M\.ckpt with --tokenizer"):
        load_drawing_model(str(second), layout="lumina2", tokenizer=str(meta))
    with pytest.raises(SoonerError, match=r"give its vqgan\.ckpt with --tokenizer"):
        load_drawing_model(str(first), layout="lumina", tokenizer=str(movqgan))
    file = movqgan / "movqgan/270M/movqgan_270M.ckpt"
    with pytest.raises(SoonerError, match=r"has no decoder\.norm_out\.weight"):
        load_drawing_model(str(first), layout="lumina", tokenizer=str(file))


SCRIPT = """
import sys
from sooner.tasks.imagine.loading import load_drawing_model
name = "Alpha-VLLM/Lumina-mGPT-2.0"
loaded = load_drawing_model(name, layout="lumina2", tokenizer=sys.argv[1], threads=1)
weight = loaded.model.lm_head.weight
print(loaded.name, type(loaded.processor).__name__, weight.double().sum().item())
"""


def test_a_hub_id_is_read_as_its_folder_is(second: Path, movqgan: Path, tmp_path: Path) -> None:
    """From a cache, without the network."""
    revision = "0" * 40
    cache = tmp_path / "hub" / "models--Alpha-VLLM--Lumina-mGPT-2.0"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text(revision)
    (cache / "snapshots").mkdir()
    os.symlink(second, cache / "snapshots" / revision)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(movqgan)],
        env={**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1",
             "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    name, processor, total = done.stdout.split()
    assert (name, processor) == ("Alpha-VLLM/Lumina-mGPT-2.0", "WordsOnly")
    weights = load_file(second / "model.safetensors")["lm_head.weight"]
    assert float(total) == pytest.approx(float(weights.double().sum()))
