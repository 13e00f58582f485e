"""dots.ocr and DeepSeek-OCR from checkpoints that bring their own code: only on demand, exactly."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from packaging import version
from PIL import Image
from transformers import dynamic_module_utils

import sooner
import standins
import tiny
from method_matrix import LONG
from same_drafts import SameDrafts
from sooner.cli.main import main
from sooner.errors import SoonerError, UnsupportedError
from sooner.models import adapt
from sooner.tasks.loading import Loaded, load, load_pair
from sooner.tasks.parse import PageParser, ParseSettings, load_parser
from tasks.parsing import draft_of, noise_page
from tasks.test_task_families import tokenizer

CPU, F32 = torch.device("cpu"), torch.float32


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Two checkpoints; their code is copied to a folder of the tests' own."""
    home = tmp_path_factory.mktemp("remote")
    with standins.isolated_modules(home / "modules"):
        yield {
            "dots_ocr": standins.dots(home / "dots", tokenizer()),
            "deepseek_ocr": standins.deepseek(home / "deepseek", tokenizer()),
        }


@pytest.fixture(scope="module")
def loaded(folders: dict[str, Path]) -> dict[str, Loaded]:
    return {
        name: load(str(folder), CPU, F32, trust_remote_code=True)
        for name, folder in folders.items()
    }


def dots_inputs(loaded: dict[str, Loaded]) -> dict[str, Any]:
    """Two ragged prompts through the checkpoint's own processor, a picture of 28 x 42 each."""
    processor = loaded["dots_ocr"].processor
    generator = torch.Generator().manual_seed(3)
    pictures = [
        torch.randint(0, 256, (28, 42, 3), generator=generator, dtype=torch.uint8).numpy()
        for _ in range(2)
    ]
    questions = ["w8 w9", "w10 w11 w12 w13 w14"]
    texts = [
        processor.apply_chat_template(
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": words}]}],
            tokenize=False,
        )
        for words in questions
    ]
    return dict(
        processor(
            text=texts,
            images=[[picture] for picture in pictures],
            padding=True,
            padding_side="left",
            return_tensors="pt",
        )
    )


def inputs_of(loaded: dict[str, Loaded], name: str) -> dict[str, Any]:
    made = dots_inputs(loaded) if name == "dots_ocr" else standins.deepseek_inputs()
    made.pop("mm_token_type_ids", None)  # of Qwen's processors; the model's generate refuses them
    return made


IS_NEW = version.parse(transformers.__version__) >= version.parse("5.24")
NAMES = (
    pytest.param(
        "dots_ocr",
        marks=pytest.mark.skipif(IS_NEW, reason="its published code takes no `cache`, 5.24's name"),
    ),
    "deepseek_ocr",
)
Make = Callable[[Any, list[list[int]]], sooner.Method]
METHODS: dict[str, Make] = {
    "prompt-lookup": lambda model, output: sooner.PromptLookup(),
    "itself": lambda model, output: sooner.Speculative(model, num_draft_tokens=4),
    "stranger": lambda model, output: sooner.Speculative(
        tiny.model("qwen2", seed=5), num_draft_tokens=3
    ),
    "tree": lambda model, output: sooner.SDTree(model),
    "hsd-partly": lambda model, output: SameDrafts(
        [[output[0][12:], output[1][:9] + output[0][3:6]]]
    ),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_the_model_s_generate(
    loaded: dict[str, Loaded], name: str, method: str
) -> None:
    model, inputs = loaded[name].model, inputs_of(loaded, name)
    options = {"max_new_tokens": LONG, "eos_token_id": None, "do_sample": False}
    expected = model.generate(**inputs, **options)
    output_ids = expected[:, inputs["input_ids"].shape[1] :].tolist()
    assert all(len(set(row)) > 3 for row in output_ids[1:])
    made = METHODS[method](model, output_ids)
    result = sooner.generate(model, inputs, made, **options)
    assert result.sequences.tolist() == expected.tolist()
    if method == "itself":
        assert result.stats.nfe < LONG


def test_what_deepseek_ocr_can_not_do_is_refused(loaded: dict[str, Loaded]) -> None:
    model, inputs = loaded["deepseek_ocr"].model, standins.deepseek_inputs()
    options = {"max_new_tokens": 4, "eos_token_id": None, "do_sample": False}
    with pytest.raises(UnsupportedError, match="as a whole; leave prefill_chunk_size unset"):
        sooner.generate(model, inputs, prefill_chunk_size=4, **options)
    adapter = adapt(model)
    prompt = adapter.embed_prompt(inputs)
    with pytest.raises(UnsupportedError, match="can't be pruned"):
        adapter.prune_prompt(prompt, [torch.arange(1)])


# Trust


@pytest.mark.parametrize("name", NAMES)
def test_no_code_is_run_unasked(
    folders: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("code of the checkpoint was run")

    monkeypatch.setattr(dynamic_module_utils, "get_class_in_module", fail)
    folder = str(folders[name])
    for ask in (lambda: load(folder, CPU, F32), lambda: load_pair(folder),
                lambda: load_parser(folder)):  # fmt: skip
        with pytest.raises(SoonerError, match="give --trust-remote-code") as caught:
            ask()
        assert "\n" not in str(caught.value)
        assert "modeling_" in str(caught.value)


def test_running_code_is_logged_in_a_single_line(
    folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="sooner"):
        load(str(folders["dots_ocr"]), CPU, F32, trust_remote_code=True)
    (record,) = [record for record in caplog.records if record.name == "sooner"]
    message = record.getMessage()
    assert message.startswith("running code of the checkpoint '")
    assert message.endswith("configuration_dots.py, modeling_dots_ocr.py")


# Pages


def test_a_page_is_parsed_as_plain_decoding_parses_it(folders: dict[str, Path]) -> None:
    pair = load_parser(str(folders["dots_ocr"]), trust_remote_code=True)
    settings = ParseSettings(prompt="w8 w9", form="markdown", stages="page", max_new_tokens=LONG)
    plain = PageParser(pair, settings)(noise_page())
    words = plain.raw.split(" ")
    draft = draft_of(noise_page(), " ".join(words[:14]), " ".join(words[14:]))
    parsed = PageParser(pair, settings)(noise_page(), draft)
    assert parsed.raw == plain.raw
    assert parsed.mode == "exact"
    assert parsed.last.steps < plain.last.steps


def test_a_model_without_a_processor_reads_no_pages(folders: dict[str, Path]) -> None:
    with pytest.raises(SoonerError, match="a tokenizer, but no processor of pictures"):
        load_parser(str(folders["deepseek_ocr"]), trust_remote_code=True)


@pytest.mark.parametrize("trusted", [False, True])
def test_the_command_line_needs_the_remote_code_option(
    folders: dict[str, Path],
    tmp_path: Path,
    trusted: bool,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = torch.get_num_threads()
    Image.fromarray(noise_page().picture).save(tmp_path / "page.png")
    arguments = ["parse", tmp_path / "page.png", "-o", tmp_path / "out", "--model",
             folders["dots_ocr"], "--drafter", "none", "--max-new-tokens", 4, "--prompt", "w8",
             "--form", "markdown"]  # fmt: skip
    arguments += ["--trust-remote-code"] * trusted
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    torch.set_num_threads(threads)
    text = capsys.readouterr().err + caplog.text
    if trusted:
        assert not left.value.code, text
        assert list((tmp_path / "out").rglob("*.md"))
        assert text.count("running code of the checkpoint") == 1
    else:
        assert left.value.code == 2
        assert "give --trust-remote-code" in text
