"""Lumina-mGPT in folders as published: a tokenizer, no processor, and decoders of others."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers

import tiny_canvas
from models.test_canvas import vqgan
from sooner.models.chameleon_files import VQGANDecoder
from sooner.tasks.imagine.job import imagine
from sooner.tasks.imagine.loading import SEPARATOR, load_drawing_model
from sooner.tasks.imagine.settings import ImagineSettings

SEPARATOR_ID = 40
SIZE = (64, 64)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names, files and shapes of the published folders, tiny: config, weights with norms of a
    shard, a tokenizer; neither a processor's config nor a VQ model."""
    folder = tmp_path_factory.mktemp("lumina") / "Lumina-mGPT-7B-768"
    model = copy.deepcopy(tiny_canvas.chameleon())
    model.save_pretrained(folder)
    state = load_file(folder / "model.safetensors")
    weights = {name: tensor for name, tensor in state.items() if ".vqmodel." not in name}
    for name, tensor in weights.items():
        if ".q_norm." in name or ".k_norm." in name:
            weights[name] = tensor[:1].contiguous()  # one shard
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    words = dict(tiny_canvas.chameleon_names())
    names = (SEPARATOR, "Generate", "an", "image", "a", "fox")
    for token, name in enumerate(names, SEPARATOR_ID):
        del words[f"word{token}"]
        words[name] = token
    whole = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    whole.add_special_tokens([SEPARATOR])
    whole.save(str(folder / "tokenizer.json"))
    marks = {"eos": "</s>", "unk": "<unk>", "bos": "<s>", "pad": "<pad>"}
    tokenizer_info = {f"{name}_token": mark for name, mark in marks.items()}
    tokenizer_info["tokenizer_class"] = "PreTrainedTokenizerFast"
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_info))
    return folder


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


def test_lumina_draws_from_its_published_folder(first: Path, meta: Path) -> None:
    drawing_model = load_drawing_model(str(first), layout="lumina", tokenizer=str(meta), threads=1)
    assert isinstance(drawing_model.options["decoder"], VQGANDecoder)
    loaded, model = drawing_model.model, tiny_canvas.chameleon()
    assert loaded.model.layers[0].self_attn.q_norm.weight.shape == (
        model.model.layers[0].self_attn.q_norm.weight.shape
    )
    assert imagine(
        "a fox", drawing_model, ImagineSettings(size=SIZE, method="plain")
    ).record["tokens"]  # fmt: skip
