"""GGUF files and folders load as transformers reads them; others are refused in a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sooner.checkpoints import checkpoint
from sooner.errors import SoonerError
from sooner.models.model_types import config_dict
from sooner.tasks.identity import fingerprint
from sooner.tasks.loading import load_pair

gguf = pytest.importorskip("gguf")

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
HEADS = 4


def write_gguf(path: Path, architecture: str = "llama") -> LlamaForCausalLM:
    """Write a tiny Llama with a byte-level tokenizer; return the same model of transformers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **SIZES, num_attention_heads=HEADS, num_key_value_heads=HEADS, tie_word_embeddings=False,
        max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(SIZES["vocab_size"])
    tokens = ["<unk>", "<s>", "</s>", *(chr(33 + number) for number in range(60)), '!"']
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3, *([1] * 61)])
    writer.add_token_merges(['! "'])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, SIZES["num_hidden_layers"])
    for name, tensor in model.state_dict().items():
        stem, _, suffix = name.rpartition(".")
        array = tensor.numpy()
        if "q_proj" in name or "k_proj" in name:  # llama.cpp interleaves the halves of a head
            halves = array.reshape(HEADS, 2, array.shape[0] // HEADS // 2, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(f"{names.get_name(stem)}.{suffix}", np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


@pytest.mark.parametrize("named", ["file", "folder"])
def test_a_gguf_file_is_the_model_that_it_holds(named: str, tmp_path: Path) -> None:
    model = write_gguf(tmp_path / "tiny.gguf")
    name = str(tmp_path / "tiny.gguf" if named == "file" else tmp_path)
    assert config_dict(name)["model_type"] == "llama"
    pair = load_pair(name, sees=False)
    ids = torch.arange(3, 19)[None]  # [1, 16]
    with torch.inference_mode():
        assert torch.allclose(pair.target.model(ids).logits, model(ids).logits, atol=1e-5)
    assert pair.target.tokenizer.vocab_size == SIZES["vocab_size"]


def test_a_changed_file_has_another_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    before = fingerprint(str(path))
    assert fingerprint(str(tmp_path)) == before
    with path.open("ab") as file:
        file.write(b"\0")
    assert fingerprint(str(path)) != before


def test_what_is_no_model_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"<html>")
    with pytest.raises(SoonerError, match=r"broken\.gguf' is no GGUF file: it begins with b'<htm'"):
        checkpoint(str(tmp_path / "broken.gguf"))
    with pytest.raises(SoonerError, match=r"missing\.gguf' does not exist"):
        checkpoint(str(tmp_path / "missing.gguf"))
    write_gguf(tmp_path / "odd.gguf", "no-such-architecture")
    with pytest.raises(SoonerError, match=r"several GGUF files \(broken\.gguf, odd\.gguf\)"):
        checkpoint(str(tmp_path))
    with pytest.raises(SoonerError, match=r"odd\.gguf' can't be read: .*no-such-architecture"):
        config_dict(str(tmp_path / "odd.gguf"))
    whole = (tmp_path / "odd.gguf").read_bytes()
    for length in (200, len(whole) - 1000):  # within its header, within its weights
        (tmp_path / f"cut{length}.gguf").write_bytes(whole[:length])
        with pytest.raises(SoonerError, match=r"gguf' can't be read: .*; if it is cut off, downl"):
            config_dict(str(tmp_path / f"cut{length}.gguf"))
