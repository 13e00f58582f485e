"""Heads are trained on what their target said, resumably, and on nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import sooner
import tiny
from published_heads import run_head
from sooner.cli.main import app
from sooner.methods.eagle.method import HeadRunner
from sooner.methods.trained import load_for
from sooner.models import adapt
from sooner.tasks.train_draft.heads import HeadTask, unroll
from sooner.tasks.train_draft.recording import DataSet, TrainingSample, read_questions, record
from sooner.tasks.train_draft.settings import HeadTraining, make_recipe
from sooner.tasks.train_draft.training import train

NEW = 7
SHORT = HeadTraining(
    steps=12, warmup=3, batch=4, lr=2e-3, check_every=5, save_every=50, unroll=2, depth=3
)


def batches(family: str, kind: str, count: int) -> Iterator[dict[str, Any]]:
    for seed in range(count):
        yield tiny.inputs(family, kind, 3, seed)


def recording(folder: Path, family: str = "llama", count: int = 4, **options: Any) -> DataSet:
    kind = tiny.kinds(family)[-1]
    arguments = {"eos_token_id": None, **options}
    return record(tiny.model(family), batches(family, kind, count), folder, NEW, **arguments)


def same(ours: TrainingSample, other: TrainingSample) -> bool:
    parts = ("tokens", "states", "stored", "embeds")
    return ours.prompt == other.prompt and all(
        torch.equal(getattr(ours, part), getattr(other, part)) for part in parts
    )


# --- recording


@pytest.mark.parametrize("family", ["llama", "llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_samples_are_the_output_of_the_target_and_its_states(family: str, tmp_path: Path) -> None:
    model, kind = tiny.model(family), tiny.kinds(family)[-1]
    data = recording(tmp_path, family, 2)
    assert len(data) == 6
    inputs = tiny.inputs(family, kind, 3, 1)
    made = model.generate(
        **inputs, max_new_tokens=NEW, eos_token_id=None, do_sample=False,
        return_dict_in_generate=True, output_hidden_states=True,
    )  # fmt: skip
    width = inputs["input_ids"].shape[1]
    for row in range(3):
        sample = data[3 + row]
        length = int(inputs["attention_mask"][row].sum())
        assert sample.prompt == length
        assert sample.tokens[length:].tolist() == made.sequences[row, width:].tolist()
        prompt = inputs["input_ids"][row, width - length :]
        assert sample.tokens[:length][~sample.stored[:length]].tolist() == (
            prompt[~sample.stored[:length]].tolist()
        )
        steps = [states[-1][row] for states in made.hidden_states]
        expected = torch.cat([steps[0][-length:], *steps[1:]])
        assert sample.states.shape == (length + NEW - 1, 48)
        torch.testing.assert_close(sample.states.float(), expected, rtol=2e-3, atol=2e-3)


def test_an_interrupted_recording_goes_on_and_is_the_same(tmp_path: Path) -> None:
    whole = recording(tmp_path / "whole", count=5, shard_samples=4)
    resumes: list[int] = []

    def failing() -> Iterator[dict[str, Any]]:
        for number, batch in enumerate(batches("llama", "text", 5)):
            if number == 3 and not resumes:
                raise KeyboardInterrupt
            yield batch

    options = {"eos_token_id": None, "shard_samples": 4}
    with pytest.raises(KeyboardInterrupt):
        record(tiny.model("llama"), failing(), tmp_path / "cut", NEW, **options)
    assert DataSet.open(tmp_path / "cut").index["batches"] == 3
    resumes.append(1)
    rest: list[int] = []
    cut = record(
        tiny.model("llama"), failing(), tmp_path / "cut", NEW,
        on_batch=lambda index: rest.append(1), **options,
    )  # fmt: skip
    assert len(rest) == 2
    assert cut.index["is_complete"]
    assert len(cut) == len(whole) == 15
    assert all(same(ours, expected) for ours, expected in zip(cut, whole, strict=True))
    assert not list((tmp_path / "cut").glob(".*"))


# --- a head as it is trained is a head as it drafts


def test_recordings_of_something_else_are_refused(tmp_path: Path) -> None:
    recording(tmp_path, count=1)
    with pytest.raises(sooner.SoonerError, match="another target"):
        record(tiny.model("llama", seed=5), [], tmp_path, NEW, eos_token_id=None)
    with pytest.raises(sooner.SoonerError, match="with options"):
        recording(tmp_path, count=1, temperature=0.5)
    with pytest.raises(sooner.SoonerError, match="has no recording"):
        DataSet.open(tmp_path / "elsewhere")
    recording(tmp_path / "named", count=1, source="these")
    with pytest.raises(sooner.SoonerError, match="answers to other prompts"):
        recording(tmp_path / "named", count=1, source="those")
    recording(tmp_path / "none", count=0, source="these")
    assert len(recording(tmp_path / "none", count=1, source="those")) == 3


def test_no_recorded_state_is_infinite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny.model("llama").model.norm.weight, "data", 1e6 * torch.ones(48))
    states = recording(tmp_path, count=1)[0].states
    assert states.abs().max() == torch.finfo(torch.float16).max


def test_unrolling_is_drafting_tokens_that_are_all_accepted(tmp_path: Path) -> None:
    data, head = recording(tmp_path, "qwen2", 1), tiny.head("qwen2")
    adapter = adapt(tiny.model("qwen2"))
    samples = list(data)
    batch = HeadTask(head, adapter, SHORT).batch(samples, SHORT.steps)
    with torch.no_grad():
        steps = list(unroll(head, batch, 3))
        for row, sample in enumerate(samples):
            embeds = adapter.embed_tokens(sample.tokens[1:-1])[None]
            states = sample.states.float()[None]
            for start in range(NEW - 1):
                count = sample.prompt + start  # entries of the target's own states
                runner = HeadRunner(head, adapter, 64)
                runner.remember(embeds[:, : count - 1], states[:, : count - 1], [count - 1])
                last = slice(count - 1, count)
                made = runner.feed(embeds[:, last], states[:, last], torch.tensor([1]), [1])
                visible, token = runner.visible, sample.tokens[None, count + 1 :]
                for level in range(min(3, NEW - 1 - start)):
                    if level:
                        made, visible = runner.level(
                            token[:, level - 1 : level], made, level - 1, visible, level - 1
                        )
                    estimates, valid = steps[level]
                    assert valid[row, start + level]
                    torch.testing.assert_close(
                        estimates[row, start + level], made[0, 0], rtol=1e-4, atol=1e-4
                    )
    assert not steps[2][1][:, :2].any()


def test_the_loss_is_that_of_the_paper(tmp_path: Path) -> None:
    data, head = recording(tmp_path, "llama", 1), tiny.head("llama")
    adapter = adapt(tiny.model("llama"))
    settings = HeadTraining(token_weight=0.3, state_weight=0.7)
    task = HeadTask(head, adapter, settings)
    far, unlike, places = 0.0, 0.0, 0
    with torch.no_grad():
        got = task(task.batch(list(data), settings.steps))
        for sample in data:
            embeds, states = adapter.embed_tokens(sample.tokens[1:-1]), sample.states.float()
            made = run_head(head, embeds[None], states[None, :-1])[0]
            for entry in range(sample.prompt - 1, sample.entries):
                gap = (made[entry] - states[entry + 1]).abs()
                far += float(torch.where(gap < 1, 0.5 * gap**2, gap - 0.5).mean())
                p = adapter.logits(states[entry + 1]).softmax(-1)
                unlike -= float((p * adapter.logits(made[entry]).log_softmax(-1)).sum())
                places += 1
    assert float(got["states"]) == pytest.approx(far / places, rel=1e-4)
    assert float(got["tokens"]) == pytest.approx(unlike / places, rel=1e-4)
    assert float(got["loss"]) == pytest.approx((0.7 * far + 0.3 * unlike) / places, rel=1e-4)


# --- training


def test_a_resumed_training_is_bit_equal(tmp_path: Path) -> None:
    data, model = recording(tmp_path / "data"), tiny.model("llama")
    losses: dict[str, list[float]] = {"whole": [], "cut": []}

    def run(name: str, **options: Any) -> Any:
        return train(
            model, data, tmp_path / name, SHORT, progress=False,
            on_step=lambda entry: losses[name].append(entry["loss"]), **options,
        )  # fmt: skip

    whole = run("whole")
    run("cut", stop_after=7)
    torch.rand(5)  # the global generator plays no part
    cut = run("cut")
    assert losses["cut"] == losses["whole"]
    assert len(losses["whole"]) == 12
    ours, other = whole.state_dict(), cut.state_dict()
    assert all(torch.equal(ours[name], other[name]) for name in ours)
    for state in (tmp_path / "whole", tmp_path / "cut"):
        entries = [json.loads(line) for line in (state / "log.jsonl").read_text().splitlines()]
        assert [entry["step"] for entry in entries if "check" in entry] == [5, 10]


def test_training_teaches_the_output_of_the_target_and_leaves_it_alone(tmp_path: Path) -> None:
    model = tiny.model("openvla")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trainable = {name: weight.requires_grad for name, weight in model.named_parameters()}
    data = recording(tmp_path / "data", "openvla", 3)
    losses = []
    settings = HeadTraining(
        steps=80, warmup=4, batch=8, lr=4e-3, noise=0.0, token_weight=1.0, holdout=0.1
    )
    head = train(
        model, data, tmp_path, settings, progress=False,
        on_step=lambda entry: losses.append(entry["states"]),
    )  # fmt: skip
    assert losses[-1] < 0.3 * losses[0]
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name])
        assert weight.requires_grad == trainable[name]
        assert weight.grad is None
    kind = tiny.kinds("openvla")[-1]
    counts = []
    for eagle_head in (tiny.head("openvla"), load_for("eagle", tmp_path / "head")):
        made = sooner.generate(
            model, tiny.inputs("openvla", kind, 3, 0), sooner.Eagle(eagle_head, nodes=50),
            max_new_tokens=NEW, eos_token_id=None, do_sample=False,
        )  # fmt: skip
        counts.append(made.stats.num_accepted_draft_tokens)
    assert counts[1] > counts[0] + 3
    provenance = head.config.provenance
    assert provenance["settings"]["lr"] == 4e-3
    assert provenance["data"] == [{"samples": 9, "sha256": data.digest}]
    assert len(provenance["acceptance"]["chain"]) == 5
    assert {"sooner", "torch", "transformers"} <= set(provenance["versions"])


def test_states_and_data_of_something_else_are_refused(tmp_path: Path) -> None:
    data, model = recording(tmp_path / "data"), tiny.model("llama")
    options = {"progress": False, "stop_after": 1}
    train(model, data, tmp_path, SHORT, **options)
    with pytest.raises(sooner.SoonerError, match="other settings"):
        train(model, data, tmp_path, HeadTraining(steps=13, warmup=3), **options)
    with pytest.raises(sooner.SoonerError, match="another target"):
        train(tiny.model("llama", seed=5), data, tmp_path / "other", SHORT, **options)
    few = record(tiny.model("llama"), [tiny.inputs("llama", "text", 1)], tmp_path / "few", NEW)
    with pytest.raises(sooner.SoonerError, match="too few"):
        train(model, few, tmp_path / "other", SHORT, **options)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"learning_rate": 1.0}, "unknown training setting 'learning_rate'"),
        ({"warmpu": 1}, "did you mean 'warmup'"),
        ({"lr": -1}, "lr is -1; it must be above 0"),
        ({"steps": 100, "warmup": 100}, "warmup is 100 of 100 steps"),
        ({"holdout": 1.0}, "holdout is 1.0"),
        ({"token_weight": 0, "state_weight": 0}, "are both 0"),
        ({"lr": "fast"}, "HeadTraining: "),
    ],
)
def test_settings_out_of_range_are_refused(values: dict[str, Any], error: str) -> None:
    with pytest.raises(sooner.SoonerError, match=error):
        make_recipe("eagle", values)


# --- the command line


def test_questions_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    file = tmp_path / "questions.jsonl"
    file.write_text(
        '{"image": "a.png", "prompt": "what is it?"}\n\n{"image": "a.png"}\n{"prompt": "why?"}'
    )
    first, second, third = read_questions(file)
    assert (first.path, first.is_image, first.prompt) == (tmp_path / "a.png", True, "what is it?")
    assert second.prompt is None
    assert (third.path, third.prompt) == (None, "why?")
    for line, error in (
        ('{"image": "a.png", "video": "b.mp4"}', "line 1 needs 'prompt'"),
        ('{"image": "b.png"}', "does not exist"),
        ('{"image": "a.png", "promt": "x"}', "did you mean 'prompt'"),
        ("image", "is no JSON"),
        ('{"prompt": 3}', "'prompt' is 3; write a text"),
        ("", "has no question or prompt"),
    ):
        file.write_text(line)
        with pytest.raises(sooner.SoonerError, match=error):
            read_questions(file)


def test_the_command_takes_settings_from_a_file(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('{"steps": 2, "warmpu": 1}')
    made = CliRunner().invoke(app, ["train", "draft", "-o", "x", "--config", str(settings)])
    assert made.exit_code != 0
    assert "did you mean 'warmup'" in str(made.output) + str(made.exception)
