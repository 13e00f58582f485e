"""Native MTP: what the layer of a checkpoint computes, what it drafts, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import sooner
import tiny
from published_heads import draw, run_head
from published_mtp import GLM, QWEN, PublishedMtp, write_mtp
from sooner.methods.eagle.mtp import MtpHead
from sooner.methods.trained import load_for
from sooner.models import adapt
from zoo import laws
from zoo.species import model_of
from zoo.zoo import ZOO


def target(name: str) -> Any:
    return model_of(ZOO[name]) if name in ("qwen3_5", "qwen3_5_moe") else tiny.model(name)


def read(folder: Path) -> MtpHead:
    return load_for("eagle", folder)


TARGETS = [("glm_ocr", GLM), ("qwen3_5", QWEN), ("llava_onevision", QWEN)]


@pytest.mark.parametrize(("name", "layout"), TARGETS)
def test_logits_are_those_of_the_published_layout(name: str, layout: str, tmp_path: Path) -> None:
    """Behind the target's states, and behind one of the layer's own; positions of three axes."""
    model = target(name)
    head = read(write_mtp(tmp_path, model, layout)).double()
    text = model.config.get_text_config()
    reference = PublishedMtp(tmp_path, text, layout)
    embeds, states = (5 * draw(n, 9, text.hidden_size).double() for n in (7, 8))
    made, line = states[None], torch.arange(9)
    positions = torch.stack([line, line // 2, line % 3]) if head.wants_positions else line
    where = positions[:, None] if positions.ndim == 2 else positions[None]
    with torch.no_grad():
        for _ in range(2):
            states, expected = reference.run(embeds, states, positions)
            made = run_head(head, embeds[None], made, where)
            torch.testing.assert_close(made[0], states, atol=1e-5, rtol=1e-5)
            normed = made if head.config.layout.goes_on_normed else head.norm(made)
            torch.testing.assert_close(normed[0], expected, atol=1e-5, rtol=1e-5)


def taught(head: MtpHead, model: Any, rows: list[list[int]], steps: int = 80) -> MtpHead:
    """A head that has learnt by heart what a target said."""
    adapter = adapt(model)
    head = head.placed(adapter)
    batches = []
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([row])
            hidden_states = model(input_ids=ids, output_hidden_states=True).hidden_states[-1]
            batches.append((adapter.embed_tokens(ids[:, 1:]), hidden_states[:, :-1], ids[0, 2:]))
    optimizer = torch.optim.Adam(head.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = torch.zeros(())
        for embeds, states, labels in batches:
            logits = head.scores(run_head(head, embeds, states), adapter)[0, :-1]
            loss = loss + torch.nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head.eval()


@pytest.mark.parametrize("name", ["qwen3_5", "qwen3_5_moe"])
def test_a_target_whose_layers_keep_a_state_is_drafted_chains(name: str, tmp_path: Path) -> None:
    """Greedy and drawn, a ragged batch of three; the chains are accepted and rejected."""
    species, model = ZOO[name], target(name)
    inputs = species.inputs(model, "text", laws.ROWS, 0)
    outputs = laws.reference(species, "text")
    masks = inputs["attention_mask"].bool()
    prompts = [ids[mask].tolist() for ids, mask in zip(inputs["input_ids"], masks, strict=True)]
    head = taught(
        MtpHead.like(adapt(model)),
        model,
        [[*prompt, *row] for prompt, row in zip(prompts, outputs, strict=True)],
    )
    head.save_pretrained(tmp_path)
    method = sooner.load_drafter(tmp_path, depth=3)
    assert method.top_k == 1
    options = {"max_new_tokens": laws.NEW, "eos_token_id": None}
    made = sooner.generate(model, inputs, method, do_sample=False, **options)
    assert made.tokens == outputs
    assert 0 < made.stats.num_accepted_draft_tokens < made.stats.num_draft_tokens
    drawn = {"do_sample": True, "temperature": 1.1, "seed": 3, **options}
    plain = sooner.generate(model, inputs, None, **drawn)
    assert sooner.generate(model, inputs, method, **drawn).tokens == plain.tokens
    with pytest.raises(sooner.UnsupportedError, match="takes chains alone"):
        sooner.generate(model, inputs, sooner.Eagle(head, top_k=4), do_sample=False, **options)


def test_only_the_tensors_of_the_layer_are_read(tmp_path: Path, monkeypatch: Any) -> None:
    """A checkpoint has several files; the index says which hold the layer's tensors."""
    write_mtp(tmp_path, tiny.model("glm_ocr"), GLM)
    whole = load_file(tmp_path / "model.safetensors")
    last = (
        f"model.language_model.layers.{tiny.model('glm_ocr').config.text_config.num_hidden_layers}."
    )
    parts = {
        "model-00001-of-00002.safetensors": {n: v for n, v in whole.items() if last not in n},
        "model-00002-of-00002.safetensors": {n: v for n, v in whole.items() if last in n},
    }
    (tmp_path / "model.safetensors").unlink()
    for name, tensors in parts.items():
        save_file(tensors, tmp_path / name)
    weight_map = {n: name for name, tensors in parts.items() for n in tensors}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"never read")
    assert read(tmp_path).fc.weight.shape == (48, 96)


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    model = tiny.model("llava_onevision")

    def refused(match: str, error: Any = sooner.SoonerError) -> None:
        with pytest.raises(error, match=match) as caught:
            sooner.load_drafter(tmp_path)
        assert "\n" not in str(caught.value)

    write_mtp(tmp_path, model, QWEN)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "mtp.layers.0.mlp.extra.weight": torch.zeros(1)},
              tmp_path / "model.safetensors")  # fmt: skip
    refused("'mtp.layers.0.mlp.extra.weight' that is no part of its MTP layer")
    write_mtp(tmp_path, model, QWEN, mtp_num_hidden_layers=2)
    refused("several MTP layers", sooner.UnsupportedError)
    write_mtp(tmp_path, model, QWEN)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({n.replace("mtp.fc", "mtp.eh"): v for n, v in tensors.items()},
              tmp_path / "model.safetensors")  # fmt: skip
    refused("a layout that isn't known", sooner.UnsupportedError)


def test_another_target_or_family_is_refused(tmp_path: Path) -> None:
    method = sooner.load_drafter(write_mtp(tmp_path / "a", tiny.model("llava_onevision"), QWEN))
    with pytest.raises(sooner.SoonerError, match="a target with model_type qwen2"):
        sooner.generate(
            tiny.model("llama"), tiny.inputs("llama", "text", 1), method, max_new_tokens=2
        )
    with pytest.raises(sooner.UnsupportedError, match="a 'gemma3_text': layers of this family"):
        sooner.load_drafter(write_mtp(tmp_path / "b", model_of(ZOO["gemma3"]), QWEN))
