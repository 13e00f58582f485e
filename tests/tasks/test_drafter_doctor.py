"""`sooner doctor drafter`: each planted fault of a trained drafter is found, and named."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import sooner
import tiny
from published_heads import write_eagle3
from sooner import miniatures
from sooner.cli.main import app
from sooner.methods.drafter_changes import file_changes, layers_of
from sooner.models import adapt
from sooner.tasks.drafter_doctor import Diagnosis, diagnose, measure, record_answer
from sooner.tasks.loading import Loaded, ModelPair, load_pair
from sooner.tasks.settings import CaptionSettings
from sooner.tasks.train_draft.recording import FilePrompt, read_inputs, record
from sooner.tasks.train_draft.settings import HeadTraining
from sooner.tasks.train_draft.training import train

TOKENS = 150
IDS = "eagle_aux_hidden_state_layer_ids"
Config, Tensors = dict[str, Any], dict[str, torch.Tensor]
Plant = Callable[[Config, Tensors], None]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The video miniature as shallow as it is stored, its drafters, and a question."""
    root, small = tmp_path_factory.mktemp("doctor"), miniatures.find("video")
    shutil.copytree(small.target, root / "target")
    (root / "target" / "sooner.json").unlink()  # of silent layers, which only take time
    for name in ("eagle3", "dflash", "mtp"):
        shutil.copytree(small.target.parent / name, root / name)

        def shallow(config: Config, tensors: Tensors) -> None:
            del config["sooner"]["target"]
            if "eagle_config" in config:
                config["eagle_config"][IDS] = [0, 0, 0]
            elif "text_config" in config:
                text = config["text_config"]
                text["num_hidden_layers"], text["layer_types"] = 4, text["layer_types"][:4]
            else:
                config["dflash_config"]["target_layer_ids"] = [1, 2]

        rewrite(root / name, shallow)
    question = {"video": str(small.sample), "prompt": small.prompt}
    (root / "sample.jsonl").write_text(json.dumps(question))
    return root


@pytest.fixture(scope="module")
def pair(home: Path) -> ModelPair:
    return load_pair(str(home / "target"))


def rewrite(folder: Path, plant: Plant) -> Path:
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    plant(config, tensors)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def planted(home: Path, kind: str, plant: Plant, folder: Path) -> Path:
    return rewrite(Path(shutil.copytree(home / kind, folder / "drafter")), plant)


def setting(diagnosis: Diagnosis) -> str:
    assert diagnosis.remedy is not None
    return diagnosis.remedy[0].setting


# --- faults


def other_layers(config: Config, tensors: Tensors) -> None:
    config["dflash_config"]["target_layer_ids"] = [2, 3]


def norm_before_residual(config: Config, tensors: Tensors) -> None:
    config["norm_before_residual"] = True


def shifted_vocabulary(config: Config, tensors: Tensors) -> None:
    config["draft_vocab_size"] = 127  # the first token of 128 is never drafted
    tensors["lm_head.weight"] = tensors["lm_head.weight"][1:].clone()
    tensors["d2t"] = torch.full((127,), 2)  # instead of 1
    tensors.pop("t2d", None)


def placeholders(config: Config, tensors: Tensors) -> None:
    config["sooner"]["sees_pixels"] = False


def slow_positions(config: Config, tensors: Tensors) -> None:
    config["rope_theta"] = 10.0


def shifted_blocks(config: Config, tensors: Tensors) -> None:
    config["sample_from_anchor"] = True


def foreign_head(config: Config, tensors: Tensors) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors["lm_head.weight"] = torch.randn(256, 128, generator=generator)


def foreign_embedding(config: Config, tensors: Tensors) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors["embed_tokens.weight"] = torch.randn(256, 128, generator=generator)


@pytest.mark.parametrize(
    ("kind", "plant", "remedy"),
    [
        ("dflash", other_layers, "dflash_config.target_layer_ids: [1, 2] in "),
        ("eagle3", norm_before_residual, "norm_before_residual: false in "),
        ("eagle3", shifted_vocabulary, "d2t -1 as d2t, no t2d in "),
        ("eagle3", placeholders, "sooner.sees_pixels: true in "),
        (
            "eagle3",
            slow_positions,
            'rope_parameters: {"rope_theta": 10000.0, "rope_type": "default"} in ',
        ),
        ("dflash", shifted_blocks, "sample_from_anchor: false in "),
        ("dflash", foreign_head, "no lm_head.weight (d2t, t2d) in "),
        ("eagle3", foreign_embedding, "no embed_tokens.weight in "),
    ],
)
def test_a_fault_of_the_files_is_found(
    kind: str, plant: Plant, remedy: str, home: Path, pair: ModelPair, tmp_path: Path
) -> None:
    folder = planted(home, kind, plant, tmp_path)
    diagnosis = diagnose(pair, folder, home / "sample.jsonl", tokens=TOKENS)
    assert setting(diagnosis).startswith(remedy), list(diagnosis.rows())
    assert diagnosis.summary().startswith(f"set {remedy}")


@pytest.mark.parametrize("kind", ["eagle3", "dflash", "mtp"])
def test_a_sound_drafter_passes_and_decoding_accepts_what_is_measured(
    kind: str, home: Path, pair: ModelPair
) -> None:
    diagnosis = diagnose(pair, home / kind, home / "sample.jsonl", tokens=TOKENS)
    assert diagnosis.remedy is None, list(diagnosis.rows())
    assert "no change is clearly better" in diagnosis.summary()
    assert diagnosis.training[0] > 0.85
    length = diagnosis.results[0][1].length
    assert length == pytest.approx(decoded_length(home / kind, home, pair), abs=0.12)
    assert length > 3


def test_a_head_that_sees_placeholders_drafts_as_it_is_measured(
    home: Path, pair: ModelPair, tmp_path: Path
) -> None:
    folder = planted(home, "eagle3", placeholders, tmp_path)
    length = diagnose(pair, folder, home / "sample.jsonl", tokens=TOKENS).results[0][1].length
    assert length == pytest.approx(decoded_length(folder, home, pair), abs=0.12)
    assert length < decoded_length(home / "eagle3", home, pair) - 1


def test_a_chain_head_is_measured_as_it_drafts(home: Path, pair: ModelPair, tmp_path: Path) -> None:
    """A head that confuses some places: the token before each counts, as in decoding."""

    def chained(config: Config, tensors: Tensors) -> None:
        rank, width, vocab = 4, config["hidden_size"], config["vocab_size"]
        config["dflash_config"] |= {
            "projector_type": "domino", "shift_label": False, "pure_draft_prefix_len": 0,
            "gru_hidden_dim": rank, "emb_dim": rank,
        }  # fmt: skip
        torch.manual_seed(5)
        for name, shape in (
            ("prefix_gru.weight_ih_l0", (3 * rank, width)),
            ("prefix_gru.weight_hh_l0", (3 * rank, rank)),
            ("embed_proj.0.weight", (rank, width + rank)), ("embed_proj.2.weight", (vocab, rank)),
        ):  # fmt: skip
            tensors[name] = torch.randn(shape)

    folder = planted(home, "dflash", chained, tmp_path)
    length = diagnose(pair, folder, home / "sample.jsonl", tokens=TOKENS).results[0][1].length
    assert length == pytest.approx(decoded_length(folder, home, pair), abs=0.12)
    assert 1.2 < length < decoded_length(home / "dflash", home, pair) - 0.5


def decoded_length(drafter: Path, home: Path, pair: ModelPair) -> float:
    """The accepted length of decoding with chains of five draft tokens."""
    is_dflash = "dflash_config" in (drafter / "config.json").read_text()
    sizes = {"num_draft_tokens": 5} if is_dflash else {"nodes": 5, "depth": 5, "top_k": 1}
    sample = json.loads((home / "sample.jsonl").read_text())
    question = FilePrompt(Path(sample["video"]), prompt=sample["prompt"])
    inputs = read_inputs(question, pair, CaptionSettings())
    method = sooner.load_drafter(drafter, **sizes)
    model = pair.target.model
    made = sooner.generate(model, inputs, method, max_new_tokens=TOKENS, do_sample=False)
    return made.stats.mean_acceptance_length


def test_a_number_format_that_overflows_is_found(home: Path, tmp_path: Path) -> None:
    def large(config: Config, tensors: Tensors) -> None:
        for name in ("norm.weight", "lm_head.weight"):
            tensors[name] *= 256.0

    folder = planted(home, "eagle3", large, tmp_path)
    half = load_pair(str(home / "target"), dtype="float16")
    diagnosis = diagnose(half, folder, home / "sample.jsonl", tokens=TOKENS)
    assert setting(diagnosis) == "--dtype float32", list(diagnosis.rows())


def test_a_missing_chat_template_is_found(pair: ModelPair, tmp_path: Path) -> None:
    tokenizer, model = copy.deepcopy(pair.target.tokenizer), tiny.model("llama", vocab=256)
    text = "{% for m in messages %}scene one : a {{ m['content'] }} moves{% endfor %}"
    tokenizer.chat_template = text + " . scene two : a red"
    texts = ModelPair(Loaded("tiny", model, tokenizer, is_text=True))
    prompts = ["blue star", "red cross", "purple circle", "yellow star", "red circle on a black"]
    prompts += ["white background", "pink cross", "green star up"]
    recipe = HeadTraining(
        format="eagle3", layers=(0, 1, 2), steps=160, warmup=10, batch=8, lr=4e-3, unroll=2,
        check_every=200, save_every=200, holdout=0.1,
    )  # fmt: skip
    batches = (
        read_inputs(FilePrompt(None, prompt=prompt), texts, CaptionSettings()) for prompt in prompts
    )
    layers = recipe.recorded_layers(adapt(model).layers)
    data = record(model, batches, tmp_path / "data", 24, layers=layers, eos_token_id=None)
    train(model, data, tmp_path, recipe, progress=False)
    (tmp_path / "prompts.txt").write_text("\n".join(prompts))
    sample = {"sample": tmp_path / "prompts.txt", "tokens": 24}
    diagnosis = diagnose(texts, tmp_path, template=False, **sample)
    assert setting(diagnosis) == "a chat template for prompts", list(diagnosis.rows())
    assert diagnose(texts, tmp_path, **sample).remedy is None


def test_the_command_names_the_fault_and_fails(home: Path, tmp_path: Path) -> None:
    folder = planted(home, "eagle3", slow_positions, tmp_path)
    words = ["doctor", "drafter", home / "target", folder, "--sample", home / "sample.jsonl", "-q"]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 1, done.output
    lines = done.output.splitlines()
    header = next(line for line in lines if line.split()[:2] == ["depth", "1"])
    assert lines[lines.index(header) + 1].startswith("held out in training")
    assert lines[-1].startswith("set rope_parameters: ")


def test_positions_by_axis_are_tried_for_a_head_that_counts(tmp_path: Path) -> None:
    adapter = adapt(tiny.model("qwen2_5_vl"))
    write_eagle3(tmp_path)
    changes = file_changes(tmp_path, adapter)
    by_axis = [change for change in changes if change.name.endswith("the target's axes")]
    assert by_axis
    assert [change.drafter.wants_positions for change in (changes[0], by_axis[0])] == [False, True]
    layers = tuple(sorted({n for change in changes for n in layers_of(change.drafter, adapter)}))
    inputs = tiny.inputs("qwen2_5_vl", "image", 1)
    recording = record_answer(adapter, inputs, layers, 9)
    assert recording is not None
    width = inputs["input_ids"].shape[1]
    prompt = adapter.embed_prompt(inputs)
    assert torch.equal(recording.positions[..., :width], prompt.positions)
    assert torch.equal(recording.positions[..., width], prompt.next_position)
    for change in changes:
        made = measure(change.drafter, [recording], adapter)
        assert made.drafts.tolist() == sorted(made.drafts.tolist(), reverse=True)


def test_what_can_not_be_examined_is_refused(home: Path, pair: ModelPair, tmp_path: Path) -> None:
    (tmp_path / "no.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(sooner.SoonerError, match=r"no\.txt' can't be read"):
        diagnose(pair, home / "eagle3", tmp_path / "no.txt")
    (tmp_path / "no.txt").write_text("\n")
    with pytest.raises(sooner.SoonerError, match=r"no\.txt' has no question"):
        diagnose(pair, home / "eagle3", tmp_path / "no.txt")
