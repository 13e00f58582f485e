"""Drafters whose tokens depend on each other inside a block (DFlash 2, DSpark, Domino), and
HunyuanOCR's own draft: published folders, logits against their descriptions, tokens of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import linear, sigmoid, silu

import sooner
import tiny
from methods.dflash_reference import literal_logits, literal_states, recorded_drafts
from sooner import DFlashModel
from sooner.methods.dflash.model import DFlashConfig
from sooner.methods.trained import load_for

GREEDY: dict[str, Any] = {"max_new_tokens": 14, "do_sample": False, "eos_token_id": None}
VOCAB, HIDDEN, INNER, RANK, WIDTH, EMB = 96, 48, 40, 6, 10, 7
REDUCED = torch.arange(0, VOCAB, 2)
LAYERS: dict[str, Any] = {
    "model_type": "qwen3", "hidden_size": HIDDEN, "intermediate_size": INNER, "head_dim": 12,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6, "vocab_size": VOCAB, "rope_theta": 10_000.0,
}  # fmt: skip
MASK: dict[str, Any] = {"mask_token_id": 95, "target_layer_ids": [0, 1]}
MARKOV: dict[str, Any] = {"projector_type": "dspark", "markov_rank": RANK}
DOMINO: dict[str, Any] = {
    "projector_type": "domino", "emb_dim": EMB, "gru_hidden_dim": WIDTH, "pure_draft_prefix_len": 1
}  # fmt: skip
SELECTOR: dict[str, Any] = {
    "conv_group_size": 16, "conv_kernel_size": 2, "selector_rank": RANK, "selector_top_k": 5,
}  # fmt: skip
WITHIN = {"transformer_layer_config": LAYERS, "mask_token_id": 95}

CONFIGS: dict[str, dict[str, Any]] = {
    "dspark-deepspec": {
        **LAYERS, **MASK, "architectures": ["Qwen3DSparkModel"], "block_size": 5,
        "markov_rank": RANK, "markov_head_type": "vanilla", "num_anchors": 512,
        "enable_confidence_head": True, "confidence_head_with_markov": True,
    },
    "dspark-specforge": {
        **LAYERS, "architectures": ["DSparkDraftModel"], "block_size": 5,
        "dflash_config": {**MASK, **MARKOV, "markov_head_type": "gated"},
    },
    "dspark-speculators": {  # what equals a default need not be in a file
        **WITHIN, "speculators_model_type": "dspark", "block_size": 5, "markov_rank": RANK,
        "aux_hidden_state_layer_ids": [1, 2], "draft_vocab_size": len(REDUCED),
        "markov_head_type": "rnn",
    },
    "domino": {
        **LAYERS, "architectures": ["DominoDraftModel"], "block_size": 6, "emb_dim": EMB,
        "dflash_config": {**MASK, **DOMINO, "shift_label": True},
    },
    "domino-unshifted": {
        **LAYERS, "architectures": ["DFlashDraftModel"], "block_size": 6,
        "dflash_config": {**MASK, **DOMINO, "shift_label": False},
    },
    "dflash2": {
        **LAYERS, "architectures": ["DFlash2DraftModel"], "is_causal": False,
        "layer_types": ["sliding_attention"] * 2, "sliding_window": 9,
        "dflash_config": {
            **MASK, **SELECTOR, "block_size": 6, "final_logit_softcapping": 20.0,
            "output_multiplier": 0.7,
        },
    },
    "dflash2-speculators": {
        **WITHIN, **SELECTOR, "speculators_model_type": "dflash2", "block_size": 6,
        "aux_hidden_state_layer_ids": [1, 2], "conv_kernel_size": 3, "draft_vocab_size": VOCAB,
    },
}  # fmt: skip
ANCHORED = {"dspark-deepspec", "dspark-specforge", "dspark-speculators", "domino"}


def published(name: str) -> dict[str, Tensor]:
    """Tensors of a folder by their published names, at random."""
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (HIDDEN, 2 * HIDDEN), "hidden_norm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
    }  # fmt: skip
    for layer in ("layers.0.", "layers.1."):
        shapes |= {
            f"{layer}input_layernorm.weight": (HIDDEN,),
            f"{layer}post_attention_layernorm.weight": (HIDDEN,),
            f"{layer}self_attn.q_proj.weight": (48, HIDDEN),
            f"{layer}self_attn.k_proj.weight": (24, HIDDEN),
            f"{layer}self_attn.v_proj.weight": (24, HIDDEN),
            f"{layer}self_attn.o_proj.weight": (HIDDEN, 48),
            f"{layer}self_attn.q_norm.weight": (12,), f"{layer}self_attn.k_norm.weight": (12,),
            f"{layer}mlp.gate_proj.weight": (INNER, HIDDEN),
            f"{layer}mlp.up_proj.weight": (INNER, HIDDEN),
            f"{layer}mlp.down_proj.weight": (HIDDEN, INNER),
        }  # fmt: skip
        if name.startswith("dflash2"):
            taps = 3 if "speculators" in name else 2
            for conv in ("attention_conv", "mlp_conv"):
                shapes[f"{layer}{conv}.base_kernel"] = (2, taps, HIDDEN)
                shapes[f"{layer}{conv}.kernel_projection.weight"] = (2 * taps * 3, HIDDEN)
    if name.startswith("dflash2"):
        shapes["candidate_selector.hidden_projection.weight"] = (RANK, HIDDEN)
        for book in ("predecessor_codebook", "successor_codebook"):
            shapes[f"candidate_selector.{book}"] = (VOCAB, RANK)
    if name.startswith("domino"):
        shapes |= {
            "prefix_gru.weight_ih_l0": (3 * WIDTH, HIDDEN),
            "prefix_gru.weight_hh_l0": (3 * WIDTH, WIDTH),
            "embed_proj.0.weight": (EMB, HIDDEN + WIDTH), "embed_proj.2.weight": (VOCAB, EMB),
        }  # fmt: skip
    if name.startswith("dspark"):
        drafted = len(REDUCED) if "speculators" in name else VOCAB
        shapes["markov_head.markov_w1.weight"] = (VOCAB, RANK)
        shapes["markov_head.markov_w2.weight"] = (drafted, RANK)
        shapes["confidence_head.proj.weight"] = (1, HIDDEN + RANK)
        shapes["confidence_head.proj.bias"] = (1,)
    if name == "dspark-deepspec":
        shapes |= {"embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN)}
    if name == "dspark-specforge":
        shapes["markov_head.gate_proj.weight"] = (RANK, HIDDEN + RANK)
        shapes["markov_head.gate_proj.bias"] = (RANK,)
    if name == "dspark-speculators":
        shapes["markov_head.joint_proj.weight"] = (3 * RANK, 2 * RANK + HIDDEN)
        shapes["markov_head.joint_proj.bias"] = (3 * RANK,)
        shapes["lm_head.weight"] = (drafted, HIDDEN)
    torch.manual_seed(4)
    tensors = {
        key: torch.randn(shape) * 0.3 + float(key.endswith("norm.weight"))
        for key, shape in shapes.items()
    }
    if name == "dspark-speculators":
        tensors["d2t"] = REDUCED - torch.arange(len(REDUCED))
        tensors["t2d"] = torch.isin(torch.arange(VOCAB), REDUCED)
    return tensors


def written(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def gru(inputs: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The last state of a GRU over `inputs [length, hidden]`, as its authors write it."""
    state = torch.zeros(WIDTH)
    for entry in inputs:
        r, z, n = (weights["prefix_gru.weight_ih_l0"] @ entry).chunk(3)
        hr, hz, hn = (weights["prefix_gru.weight_hh_l0"] @ state).chunk(3)
        z = sigmoid(z + hz)
        state = (1 - z) * torch.tanh(n + sigmoid(r + hr) * hn) + z * state
    return state


def corrected(
    name: str, weights: dict[str, Tensor], place: int, logits: Tensor, states: Tensor,
    before: Tensor, embeds: Tensor,
) -> Tensor:  # fmt: skip
    """Scores of a place, of the draft's tokens `[drafted]`; minus infinity for what it excludes.

    Args:
        logits: of the place without correction, `[drafted]`.
        states: of all places, `[places, hidden]`.
        before: tokens before the place from the anchor on, `[place + 1]`, with their `embeds`.
    """
    h, last = states[place], before[-1]
    if name.startswith("dflash2"):
        best = logits.topk(5).indices
        a = weights["candidate_selector.predecessor_codebook"][last]
        b = weights["candidate_selector.successor_codebook"][best]
        h = weights["candidate_selector.hidden_projection.weight"] @ h
        scores = torch.full_like(logits, -torch.inf)
        scores[best] = logits[best] + b @ (a * h)
        return scores
    if name.startswith("domino"):
        if place < 1:
            return logits
        features = torch.cat([h, gru(embeds, weights)])
        inner = silu(weights["embed_proj.0.weight"] @ features)
        return logits + weights["embed_proj.2.weight"] @ inner
    w1, w2 = (weights[f"markov_head.markov_{part}.weight"] for part in ("w1", "w2"))
    if name == "dspark-deepspec":
        return logits + w2 @ w1[last]
    if name == "dspark-specforge":
        gate, bias = (weights[f"markov_head.gate_proj.{part}"] for part in ("weight", "bias"))
        return logits + w2 @ (sigmoid(gate @ torch.cat([h, w1[last]]) + bias) * w1[last])
    joint, bias = (weights[f"markov_head.joint_proj.{part}"] for part in ("weight", "bias"))
    state = output = torch.zeros(RANK)
    for step in range(place + 1):
        entry = torch.cat([state, w1[before[step]], states[step]])
        gate, candidate, output = (joint @ entry + bias).chunk(3)
        state = sigmoid(gate) * state + (1 - sigmoid(gate)) * candidate.tanh()
    return logits + w2 @ output.tanh()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_block_is_drafted_in_order_as_its_layout_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every place of every round of ragged rows, and the tokens of plain decoding."""
    weights = published(name)
    method = sooner.load_drafter(written(tmp_path, CONFIGS[name], weights), num_draft_tokens=9)
    assert isinstance(method, sooner.DFlash)
    model = method.drafter
    assert (model.config.layers, model.config.from_anchor) == ((1, 2), name in ANCHORED)
    assert model.config.drafts == 5 + (name == "domino")
    assert not any(model.config.causal)
    target, inputs = tiny.model("llama"), tiny.inputs("llama", "text", 2)
    seen, scores = recorded_drafts(inputs, monkeypatch), list[Tensor]()
    correct = DFlashModel.corrected_logits

    def record(self: DFlashModel, *arguments: Any) -> tuple[Tensor, Any]:
        made = correct(self, *arguments)
        scores.append(made[0])
        return made

    monkeypatch.setattr(DFlashModel, "corrected_logits", record)
    made = sooner.generate(target, inputs, method, **GREEDY)
    assert torch.equal(made.sequences, target.generate(**inputs, **GREEDY))
    assert len(seen) > 4
    ids = REDUCED if name == "dspark-speculators" else torch.arange(VOCAB)
    head = weights.get("lm_head.weight", target.lm_head.weight)
    table = weights.get("embed_tokens.weight", target.get_input_embeddings().weight)
    queue = iter(scores)
    with torch.no_grad():
        for texts, logits, tree in seen:
            places = tree.tokens.shape[1]
            ours = torch.cat([next(queue) for _ in range(places)], 1)
            for row, text in enumerate(texts):
                states = literal_states(model, target, text, weights)
                states = states[0 if name in ANCHORED else 1 :]
                expected = linear(states, head)
                if name == "dflash2":
                    expected = (expected * 0.7 / 20.0).tanh() * 20.0
                torch.testing.assert_close(logits[row][:, ids], expected, rtol=1e-4, atol=1e-4)
                before = torch.cat([text[-1:], tree.tokens[row]])
                for place in range(places):
                    read = before[: place + 1]
                    literal = corrected(
                        name, weights, place, expected[place], states, read, table[read]
                    )
                    is_open = literal.isfinite()
                    mine = ours[row, place, ids]
                    torch.testing.assert_close(
                        mine[is_open], literal[is_open], rtol=1e-3, atol=1e-3
                    )
                    assert (mine[~is_open] < literal[is_open].min() - 1000).all()
                    best = literal.topk(2)
                    if best.values[0] - best.values[1] > 1e-2:  # no tie
                        assert before[place + 1] == ids[best.indices[0]]
    assert next(queue, None) is None


@pytest.mark.parametrize("name", ["dspark-specforge", "domino", "dflash2"])
def test_drawn_chains_are_judged_by_what_they_were_drawn_from(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probabilities that the rule gets are those of the corrected places."""
    model = load_for("dflash", written(tmp_path, CONFIGS[name], published(name)))
    inputs, scores = tiny.inputs("llama", "text", 2), list[Tensor]()
    seen, correct = recorded_drafts(inputs, monkeypatch), DFlashModel.corrected_logits

    def record(self: DFlashModel, *arguments: Any) -> tuple[Tensor, Any]:
        made = correct(self, *arguments)
        scores.append(made[0])
        return made

    monkeypatch.setattr(DFlashModel, "corrected_logits", record)
    sooner.generate(
        tiny.model("llama"), inputs, sooner.DFlash(model, num_draft_tokens=3), max_new_tokens=8,
        do_sample=True, temperature=0.7, top_k=0, eos_token_id=None, seed=3,
    )  # fmt: skip
    queue = iter(scores)
    for _, _, tree in seen:
        places = tree.tokens.shape[1]
        expected = (torch.cat([next(queue) for _ in range(places)], 1) / 0.7).softmax(-1)
        assert tree.probs is not None
        torch.testing.assert_close(tree.probs[:, :places], expected, rtol=1e-4, atol=1e-6)
        assert (expected.gather(2, tree.tokens[..., None]) > 0).all()


def test_no_tree_is_made_of_places_that_depend_on_each_other(tmp_path: Path) -> None:
    folder = written(tmp_path, CONFIGS["domino"], published("domino"))
    with pytest.raises(sooner.UnsupportedError, match="DominoHead has no marginals; use DFlash"):
        sooner.DDTree(folder)
    model = load_for("dflash", folder)
    with pytest.raises(sooner.UnsupportedError, match=r"a chain head, .* layout; keep"):
        model.save_pretrained(tmp_path / "copy", "speculators")


@pytest.mark.parametrize(
    "name", ["dspark-deepspec", "dspark-specforge", "domino", "domino-unshifted", "dflash2"]
)
def test_chain_heads_are_written_as_they_are_published(name: str, tmp_path: Path) -> None:
    weights = published(name)
    model = load_for("dflash", written(tmp_path / "read", CONFIGS[name], weights))
    model.save_pretrained(tmp_path / "written")
    again = load_for("dflash", tmp_path / "written")
    assert again.config == model.config
    known = {key for key in weights if not key.startswith("confidence_head.")}
    with safe_open(tmp_path / "written" / "model.safetensors", "pt") as file:
        assert set(file.keys()) == known
        assert all(torch.equal(file.get_tensor(key), weights[key]) for key in known)


def test_heads_that_can_not_be_are_refused_by_name(tmp_path: Path) -> None:
    """And a rank of nothing is DFlash that also drafts from its anchor."""
    for change, message in (
        ({"markov_head_type": "tree"}, "markov_head_type in 'here'.*'tree'"),
        ({"vocab_size": None}, "vocab_size is None; it must be a whole number"),
    ):
        with pytest.raises(sooner.SoonerError, match=message):
            DFlashConfig.of_layout({**CONFIGS["dspark-deepspec"], **change}, "here")
    plain = DFlashConfig.of_layout({**CONFIGS["dspark-deepspec"], "markov_rank": 0}, "here")
    assert DFlashModel(plain).chain is None
    assert plain.drafts == 5
    odd = {**CONFIGS["dflash2-speculators"], "conv_group_size": 7}
    with pytest.raises(sooner.UnsupportedError, match="conv_group_size 7, which does not divide"):
        DFlashConfig.of_layout(odd, "here")
    nested = {
        f"logit_head.{key}" if key.startswith(("prefix_gru", "embed_proj")) else key: value
        for key, value in published("domino").items()
    }  # as the first Domino checkpoints have them
    assert load_for("dflash", written(tmp_path, CONFIGS["domino"], nested)).chain is not None


def test_hunyuan_ocrs_own_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder `dflash` of HunyuanOCR 1.5: 15 tokens from four layers, positions that count
    tokens where the target has four axes, and the last id of the vocabulary as mask."""
    target, inputs = tiny.model("hunyuan_vl"), tiny.inputs("hunyuan_vl", "image")
    released = {
        "architectures": ["DFlashDraftModel"], **LAYERS, "block_size": 16, "rms_norm_eps": 1e-5,
        "num_target_layers": 3,
        "dflash_config": {"mask_token_id": VOCAB - 1, "target_layer_ids": [0, 1]},
    }  # fmt: skip
    tensors = published("dflash")
    method = sooner.load_drafter(written(tmp_path / "dflash", released, tensors))
    assert isinstance(method, sooner.DFlash)
    assert method.largest().nodes == 15
    method = sooner.DFlash(method.drafter, num_draft_tokens=15)
    pixels = {key: inputs[key] for key in inputs if "pixel" in key or "grid" in key}
    prompts = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    seen = recorded_drafts(prompts, monkeypatch)
    made = sooner.generate(target, inputs, method, **GREEDY)
    assert torch.equal(made.sequences, target.generate(**inputs, **GREEDY))
    assert len(seen) > 4
    with torch.no_grad():
        for texts, logits, _ in seen:
            types = torch.zeros(1, len(texts[0]) - 1, dtype=torch.long)
            types[:, : inputs["input_ids"].shape[1]] = inputs["mm_token_type_ids"]
            expected = literal_logits(
                method.drafter, target, texts[0], tensors, mm_token_type_ids=types, **pixels
            )
            torch.testing.assert_close(logits[0], expected, rtol=1e-3, atol=1e-3)
