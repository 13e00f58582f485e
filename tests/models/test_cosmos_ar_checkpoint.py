"""Published checkpoints of Cosmos: same keys, same numbers, and refusals that name what is wrong.

`published_logits` restates the published arithmetic in loops over single heads and tokens, in
doubles, straight from the checkpoint's tensors. It shares nothing with the model.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from sooner.errors import SoonerError, UnsupportedError
from sooner.models.cosmos_ar import checkpoint
from sooner.models.cosmos_ar.checkpoint import load_published
from sooner.models.cosmos_ar.model import CosmosARForCausalLM

VOCAB, WIDTH, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 40, 32, 48, 2, 4, 2, 8
SHAPE, THETA, EPS = (3, 2, 5), 500_000.0, 1e-5
CODES = torch.randint(0, VOCAB, (30,), generator=torch.Generator().manual_seed(3)).tolist()

State = dict[str, Tensor]


def published_state(prefix: str = "model.") -> State:
    """Random tensors under the published names."""
    sizes = {"tok_embeddings": (VOCAB, WIDTH), "norm": (WIDTH,), "output": (VOCAB, WIDTH)}
    for layer in range(LAYERS):
        at = f"layers.{layer}"
        sizes |= {
            f"{at}.attention.wq": (HEADS * HEAD_DIM, WIDTH),
            f"{at}.attention.wk": (KV_HEADS * HEAD_DIM, WIDTH),
            f"{at}.attention.wv": (KV_HEADS * HEAD_DIM, WIDTH),
            f"{at}.attention.wo": (WIDTH, HEADS * HEAD_DIM),
            f"{at}.attention.q_norm": (HEAD_DIM,),
            f"{at}.attention.k_norm": (HEAD_DIM,),
            f"{at}.attention_norm": (WIDTH,),
            f"{at}.ffn_norm": (WIDTH,),
            f"{at}.feed_forward.w1": (FFN, WIDTH),
            f"{at}.feed_forward.w2": (WIDTH, FFN),
            f"{at}.feed_forward.w3": (FFN, WIDTH),
        }
    noise = torch.Generator().manual_seed(5)
    return {
        f"{prefix}{name}.weight": 0.3 * torch.randn(size, generator=noise) + (len(size) == 1)
        for name, size in sizes.items()
    }


def published_logits(
    state: State, codes: list[int], absolute: bool = False, yarn: bool = False
) -> Tensor:
    """Logits `[entries, vocab]` of the published model, head by head and token by token."""
    weights = {name: tensor.double() for name, tensor in state.items()}
    h = [weights["model.tok_embeddings.weight"][code] for code in codes]
    for layer in range(LAYERS):
        at = {
            name.removeprefix(f"model.layers.{layer}.").removesuffix(".weight"): tensor
            for name, tensor in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        if absolute:  # in front of every layer
            h = [x + sinusoids(place) for place, x in enumerate(h)]
        normed = [rms(x, at["attention_norm"]) for x in h]
        keys = [[key(at, x, place, kv, yarn) for kv in range(KV_HEADS)]
                for place, x in enumerate(normed)]  # fmt: skip
        values = [(at["attention.wv"] @ x).view(KV_HEADS, HEAD_DIM) for x in normed]
        for place, x in enumerate(normed):
            queries = (at["attention.wq"] @ x).view(HEADS, HEAD_DIM)
            heads = []
            for head in range(HEADS):
                query = turned(rms(queries[head], at["attention.q_norm"]), place, yarn)
                kv = head // (HEADS // KV_HEADS)
                scores = torch.stack([query @ keys[past][kv] for past in range(place + 1)])
                shares = (scores / math.sqrt(HEAD_DIM)).softmax(0)
                heads.append(sum(shares[past] * values[past][kv] for past in range(place + 1)))
            h[place] = h[place] + at["attention.wo"] @ torch.cat(heads)
            y = rms(h[place], at["ffn_norm"])
            gate = at["feed_forward.w1"] @ y
            inner = gate * gate.sigmoid() * (at["feed_forward.w3"] @ y)
            h[place] = h[place] + at["feed_forward.w2"] @ inner
    output = weights["model.output.weight"]
    return torch.stack([output @ rms(x, weights["model.norm.weight"]) for x in h])


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / math.sqrt(float((x * x).mean()) + EPS) * weight


def key(at: State, x: Tensor, place: int, kv: int, yarn: bool) -> Tensor:
    states = (at["attention.wk"] @ x).view(KV_HEADS, HEAD_DIM)[kv]
    return turned(rms(states, at["attention.k_norm"]), place, yarn)


def where(place: int) -> tuple[int, int, int]:
    _, height, width = SHAPE
    return place // (height * width), place % (height * width) // width, place % width


def turned(x: Tensor, place: int, yarn: bool) -> Tensor:
    """Head of 8: two even thirds of 2 for row and column, the 4 left for the frame."""
    t, h, w = where(place)
    frequencies = [(t, THETA**0, 3), (t, THETA**-0.5, 3), (h, THETA**0, 4), (w, THETA**0, 4)]
    out = x.clone()
    for plane, (at, turn, original) in enumerate(frequencies):
        if yarn:
            fast, slow = 2 * math.pi * 4 / original, 2 * math.pi * 1 / original
            blend = min(max((turn - slow) / (fast - slow), 0), 1)
            turn *= (1 - blend) / 2 + blend
        cos, sin = math.cos(at * turn), math.sin(at * turn)
        out[plane] = x[plane] * cos - x[plane + 4] * sin
        out[plane + 4] = x[plane + 4] * cos + x[plane] * sin
    return out


def sinusoids(place: int) -> Tensor:
    """Width of 32: 12 channels for the frame, 10 each for row and column."""
    out: list[float] = []
    for at, size in zip(where(place), (12, 10, 10), strict=True):
        turns = [at * 10_000 ** (-2 * index / size) for index in range(size // 2)]
        out += [math.sin(turn) for turn in turns] + [math.cos(turn) for turn in turns]
    return torch.tensor(out, dtype=torch.float64)


def write(folder: Path, state: Any, data: dict | None = None, name: str = "model.pt") -> Path:
    save_file(state, folder / name) if name.endswith("safetensors") else torch.save(
        state, folder / name
    )
    if data is not None:
        (folder / "config.json").write_text(json.dumps(data))
    return folder


def logits(model: CosmosARForCausalLM) -> Tensor:
    with torch.no_grad():
        return model(torch.tensor([CODES])).logits[0].double()


def close(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-4)


def test_a_published_checkpoint_gives_the_published_numbers(tmp_path: Path) -> None:
    state = published_state()
    model = load_published(write(tmp_path, state), latent_shape=SHAPE)
    assert not model.training
    config = model.config
    assert (config.head_dim, config.num_key_value_heads, config.num_hidden_layers) == (8, 2, 2)
    assert (config.rope_theta, config.rms_norm_eps, config.yarn_scale) == (THETA, EPS, None)
    close(logits(model), published_logits(state, CODES))


@pytest.mark.parametrize(
    ("name", "prefix", "nested"),
    [
        ("model.pt", "model.", False),
        ("model.pt", "", False),
        ("model.pt", "", True),
        ("model.safetensors", "model.", False),
        ("model.safetensors", "", False),
    ],
)
def test_every_layout_of_the_file_is_read(
    tmp_path: Path, name: str, prefix: str, nested: bool
) -> None:
    state: Any = published_state(prefix)
    state[f"{prefix}layers.0.attention._extra_state"] = torch.zeros(1)
    state = {"model": state} if nested else state
    folder = write(tmp_path, state, name=name)
    expected = published_logits(published_state(), CODES)
    close(logits(load_published(folder, latent_shape=SHAPE)), expected)
    close(logits(load_published(folder / name, latent_shape=SHAPE)), expected)


def test_config_json_tells_what_tensors_cannot(tmp_path: Path) -> None:
    state = published_state()
    config = {
        "dim": WIDTH,
        "n_layers": 7,  # the tensors know better
        "n_kv_heads": None,
        "video_latent_shape": list(SHAPE),
        "apply_abs_pos_emb": True,
        "rope_dim": "3D",
        "apply_yarn": True,
        "yarn_scale": 2,
        "yarn_beta_fast": 4,
        "yarn_beta_slow": 1,
        "original_latent_shape": [3, 4, 9],
        "input_types": ["video"],
    }
    model = load_published(write(tmp_path, state, config))
    assert model.config.num_hidden_layers == LAYERS
    close(logits(model), published_logits(state, CODES, absolute=True, yarn=True))


def test_the_stretched_model_is_known_by_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = checkpoint.STRETCHED[40, 5120]
    assert published["original_latent_shape"] == (3, 40, 64)
    tiny = published | {"original_latent_shape": (3, 4, 9)}
    monkeypatch.setitem(checkpoint.STRETCHED, (LAYERS, WIDTH), tiny)
    state = published_state()
    folder = write(tmp_path, state)
    close(
        logits(load_published(folder, latent_shape=SHAPE)),
        published_logits(state, CODES, yarn=True),
    )
    plain = load_published(folder, latent_shape=SHAPE, yarn_scale=None)
    close(logits(plain), published_logits(state, CODES))


def test_head_size_comes_from_config_json_where_norms_are_missing(tmp_path: Path) -> None:
    state = {k: v for k, v in published_state().items() if "q_norm" not in k and "k_norm" not in k}
    with pytest.raises(SoonerError, match="'n_heads'"):
        load_published(write(tmp_path, state))
    model = load_published(write(tmp_path, state, {"n_heads": HEADS}))
    assert (model.config.head_dim, model.config.use_qk_norm) == (HEAD_DIM, False)


def broken(tmp_path: Path, change: dict[str, Tensor | None], config: dict | None = None) -> Path:
    """A checkpoint with some tensors replaced, or taken out."""
    state = published_state() | change
    return write(
        tmp_path, {key: value for key, value in state.items() if value is not None}, config
    )


def test_missing_and_left_over_tensors_are_listed(tmp_path: Path) -> None:
    missing = {"model.norm.weight": None, "model.layers.1.ffn_norm.weight": None}
    with pytest.raises(SoonerError, match=r"lacks norm.weight, layers.1.ffn_norm.weight \("):
        load_published(broken(tmp_path, missing))
    with pytest.raises(SoonerError, match=r"lacks tok_embeddings.weight \("):
        load_published(broken(tmp_path, {"model.tok_embeddings.weight": None}))
    with pytest.raises(SoonerError, match=r"has unknown mm_projector.weight \("):
        load_published(broken(tmp_path, {"mm_projector.weight": torch.zeros(1)}))
    beyond = {"model.layers.4.ffn_norm.weight": torch.zeros(1)}
    with pytest.raises(SoonerError, match=r"lacks layers.2.* and \d+ more .*give a whole"):
        load_published(broken(tmp_path, beyond))


def test_other_refusals_name_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="rope_dim '1D'"):
        load_published(broken(tmp_path, {}, {"rope_dim": "1D"}))
    with pytest.raises(SoonerError, match="no yarn_scale"):
        load_published(broken(tmp_path, {}, {"apply_yarn": True}))
    with pytest.raises(SoonerError, match=r"model.safetensors or model.pt"):
        load_published(tmp_path / "nowhere")
    (tmp_path / "config.json").unlink()
    with pytest.raises(SoonerError, match="did you mean 'latent_shape'"):
        load_published(tmp_path, latent_shapes=SHAPE)
