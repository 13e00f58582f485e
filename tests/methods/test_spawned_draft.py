"""A spawned draft process: exact, loaded as the parent's draft was, gone however things end.

Starting one takes seconds, so most tests share that of the module.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    SuppressTokensLogitsProcessor,
)

import method_matrix as matrix
import sooner
import tiny
from fakes import ERROR, chi_square
from sooner.methods.parallel import spawned as spawned_module
from sooner.methods.parallel.draft_source import DraftSource, HandedOver
from sooner.methods.parallel.shared_memory import Arena, SharedFile
from sooner.methods.parallel.worker import spawns

FAMILY = "llava_onevision"
NEW = 24


@pytest.fixture(scope="module")
def held() -> Iterator[sooner.SpawnedDraft]:
    with sooner.SpawnedDraft(tiny.noisy(FAMILY)) as one:
        assert one.start() is None
        yield one
    assert not children()


def generate(draft: sooner.SpawnedDraft, kind: str = "video", rows: int = 1, **options: Any) -> Any:
    method = sooner.ParallelVLM(
        draft.draft, num_draft_tokens=6, least=0, standing=draft, prune=options.pop("prune", 0.5)
    )
    return run(method, FAMILY, kind, rows, **options)


def run(method: sooner.Method, family: str, kind: str, rows: int = 1, **options: Any) -> Any:
    options = {"max_new_tokens": NEW, "eos_token_id": None, "do_sample": False, **options}
    return sooner.generate(tiny.model(family), tiny.inputs(family, kind, rows), method, **options)


def children() -> list[Any]:
    """Draft processes; multiprocessing's resource tracker is none of them."""
    return multiprocessing.active_children()


def in_shm(process: int | str) -> set[str]:
    """Names in /dev/shm that a process holds, open or mapped; those of an OpenMP left out."""
    links = (Path(f"/proc/{process}/fd")).iterdir()
    opened = {os.readlink(one) for one in links if one.is_symlink()}
    mapped = {line.split()[-1] for line in Path(f"/proc/{process}/maps").read_text().splitlines()}
    return {one for one in opened | mapped if re.match("/dev/shm/(?!__KMP)", one)}


def pid(draft: sooner.SpawnedDraft) -> int:
    (one,) = draft.held
    return int(one.process.pid)


def test_every_run_equals_hf_in_one_process(held: sooner.SpawnedDraft) -> None:
    seen = set()
    for kind, rows, prune in (
        ("video", 1, 0.5), ("images", 3, 0.0), ("text", 2, 0.0), ("uneven", 5, 0.9),
    ):  # fmt: skip
        made = generate(held, kind, rows, prune=prune)
        assert torch.equal(made.sequences, matrix.reference(FAMILY, kind, rows, NEW))
        assert not made.stats.notes
        assert made.stats.num_draft_tokens > 0
        seen.add(pid(held))
    assert len(seen) == 1


def test_starting_costs_later_runs_nothing(held: sooner.SpawnedDraft) -> None:
    """A start takes seconds; a run of a process that stands does not."""
    begin = time.perf_counter()
    generate(held)
    assert time.perf_counter() - begin < 1.5


def test_memory_grows_in_place(held: sooner.SpawnedDraft) -> None:
    """A larger prompt must not cost another load of the draft."""
    generate(held)
    before, size = pid(held), held.held[0].arena.size
    assert held._fits(size + 1)  # as a job of that size would ask
    assert held.held[0].arena.size >= 2 * size
    held.held[0].arena.memory[size:] = b"\1" * (held.held[0].arena.size - size)
    for kind in ("video", "images"):
        made = generate(held, kind, 2)
        assert torch.equal(made.sequences, matrix.reference(FAMILY, kind, 2, NEW))
        assert not made.stats.notes
    assert pid(held) == before
    mapped = Path(f"/proc/{before}/maps").read_text().splitlines()
    ends = [line.split()[0].split("-") for line in mapped if "memfd:sooner" in line]
    assert held.held[0].arena.size in [int(end, 16) - int(begin, 16) for begin, end in ends]


def test_sampling_keeps_the_joint_distribution(held: sooner.SpawnedDraft) -> None:
    """Three tokens of the best two each, against the target's own probabilities."""
    rows, sampled = 400, {"do_sample": True, "top_k": 2, "temperature": 2.0}
    inputs, target = tiny.inputs(FAMILY, "text"), tiny.model(FAMILY)
    method = sooner.ParallelVLM(held.draft, num_draft_tokens=2, prune=0, standing=held)
    width, said, drafted = inputs["input_ids"].shape[1], [], 0
    for seed in range(4):
        made = sooner.generate(
            target, inputs, method, max_new_tokens=3, eos_token_id=None, seed=seed,
            num_return_sequences=rows, **sampled,
        )  # fmt: skip
        said.append(made.sequences[:, width:])
        drafted += made.stats.num_draft_tokens
    assert drafted > 0
    assert chi_square(torch.cat(said), joint(target, inputs["input_ids"], 3)) > ERROR


def joint(target: Any, ids: torch.Tensor, length: int) -> dict[tuple[int, ...], float]:
    """Probabilities of all texts of `length` tokens, of the best two at temperature 2."""
    found = {(): 1.0}
    for _ in range(length):
        texts = list(found)
        prompts = torch.cat([ids.expand(len(texts), -1), torch.tensor(texts).long()], 1)
        with torch.inference_mode():
            best = (target(input_ids=prompts).logits[:, -1] / 2.0).topk(2)
        shares = zip(best.indices.tolist(), best.values.softmax(-1).tolist(), strict=True)
        found = {
            (*text, token): found[text] * share
            for text, pair in zip(texts, shares, strict=True)
            for token, share in zip(*pair, strict=True)
        }
    return found


class Unpicklable(LogitsProcessor):
    def __init__(self) -> None:
        self.scale = lambda scores: scores * 1.0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.scale(scores)


def test_processors_travel_or_the_run_does_without(held: sooner.SpawnedDraft) -> None:
    suppressed = SuppressTokensLogitsProcessor(list(range(40)))
    assert isinstance(suppressed.suppress_tokens, torch.Tensor)  # which has to travel
    made = generate(held, logits_processor=LogitsProcessorList([suppressed]))
    prompt = tiny.inputs(FAMILY, "video")["input_ids"].shape[1]
    assert int(made.sequences[:, prompt:].min()) >= 40
    assert not made.stats.notes
    assert made.stats.draft_forwards > 0
    other = generate(held, logits_processor=LogitsProcessorList([Unpicklable()]))
    assert torch.equal(other.sequences, matrix.reference(FAMILY, "video", 1, NEW))
    of_host, of_worker = other.stats.notes
    assert "the host reads" in of_host
    assert "can't take this run" in of_worker


def test_a_second_run_at_the_same_time_goes_on_without(held: sooner.SpawnedDraft) -> None:
    inner: list[Any] = []

    def nested(*_: Any) -> None:
        if not inner:
            inner.append(None)
            inner[0] = generate(held, "images")

    outer = generate(held, on_tokens=nested)
    assert torch.equal(outer.sequences, matrix.reference(FAMILY, "video", 1, NEW))
    assert torch.equal(inner[0].sequences, matrix.reference(FAMILY, "images", 1, NEW))
    assert len(children()) == 1
    assert "another run has it" in inner[0].stats.notes[0]
    assert not outer.stats.notes


def test_an_interrupted_run_does_not_affect_the_next(held: sooner.SpawnedDraft) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = pid(held)
    with pytest.raises(KeyboardInterrupt):
        generate(held, on_tokens=interrupt)
    os.kill(pid(held), signal.SIGINT)  # Ctrl-C reaches it, too
    made = generate(held, "images")
    assert torch.equal(made.sequences, matrix.reference(FAMILY, "images", 1, NEW))
    assert not made.stats.notes
    assert pid(held) == before


def test_nothing_is_named_in_dev_shm(held: sooner.SpawnedDraft) -> None:
    """What has no name there can't be left there, whoever is killed."""
    found: set[str] = set()

    def look(*_: Any) -> None:
        found.update(in_shm(pid(held)), in_shm("self"))

    generate(held, on_tokens=look)
    assert not found
    assert "memfd:sooner" in Path(f"/proc/{pid(held)}/maps").read_text()


def test_stopped_it_is_left_until_it_goes_on_or_replaced(
    held: sooner.SpawnedDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment's halt must not cost another load of the draft; the next run has another."""
    first, reference = pid(held), matrix.reference(FAMILY, "video", 1, NEW)
    os.kill(first, signal.SIGSTOP)
    for told in ("does not answer", "not done with an earlier run"):
        made = generate(held)
        assert torch.equal(made.sequences, reference)
        assert told in made.stats.notes[0]
    os.kill(first, signal.SIGCONT)
    deadline = time.monotonic() + 30
    while held._lags() and time.monotonic() < deadline:
        time.sleep(0.01)
    made = generate(held)
    assert torch.equal(made.sequences, reference)
    assert not made.stats.notes
    assert pid(held) == first
    os.kill(first, signal.SIGSTOP)
    assert generate(held).stats.notes
    monkeypatch.setattr(spawned_module, "HANGING", 0.0)
    made = generate(held)
    assert torch.equal(made.sequences, reference)
    assert not made.stats.notes
    assert pid(held) != first


def test_killed_in_a_run_it_is_gone_and_told_of(held: sooner.SpawnedDraft) -> None:
    held.start()
    long = 200
    plain = run(sooner.Autoregressive(), FAMILY, "video", max_new_tokens=long)
    killer = threading.Timer(0.05, os.kill, [pid(held), signal.SIGKILL])
    killer.start()
    made = generate(held, max_new_tokens=long, on_tokens=lambda *_: time.sleep(0.001))
    killer.join()
    assert torch.equal(made.sequences, plain.sequences)
    assert sum("exit code -9" in note for note in made.stats.notes) == 1
    assert not children()


def test_what_cannot_be_loaded_is_told_once_in_a_line(tmp_path: Path) -> None:
    """A folder that is gone: decoding goes on, and nobody tries again at every run."""
    draft = copy.deepcopy(tiny.noisy(FAMILY))
    draft.name_or_path = str(tmp_path / "gone")
    method = sooner.ParallelVLM(draft, prune=0, placement="spawn")
    notes = []
    for _ in range(2):
        begin = time.perf_counter()
        made = run(method, FAMILY, "video")
        assert torch.equal(made.sequences, matrix.reference(FAMILY, "video", 1, NEW))
        (note,) = made.stats.notes
        notes.append(note)
        spent = time.perf_counter() - begin
    assert spent < 1.5
    assert notes[0] == notes[1]
    assert "can't be loaded" in note
    assert "gone" in note
    assert "\n" not in note
    assert not children()


# Without a process of its own, or with one of another script's.


def test_a_source_loads_what_was_loaded(tmp_path: Path) -> None:
    tiny.noisy(FAMILY).to(torch.float32).save_pretrained(tmp_path)
    draft = type(tiny.noisy(FAMILY)).from_pretrained(
        tmp_path, dtype=torch.bfloat16, attn_implementation="eager"
    )
    source = DraftSource.of(draft)
    assert source is not None
    loaded = source.load(torch.device("cpu"))
    assert loaded.dtype == torch.bfloat16
    assert loaded.config._attn_implementation == "eager"
    assert not loaded.training
    theirs = loaded.state_dict()
    assert all(torch.equal(one, theirs[name]) for name, one in draft.state_dict().items())


def test_other_weights_than_the_drafts_are_refused(tmp_path: Path) -> None:
    tiny.model(FAMILY).save_pretrained(tmp_path)
    draft = type(tiny.model(FAMILY)).from_pretrained(tmp_path)
    for weights in draft.parameters():
        weights.data += 0.1
    source = DraftSource.of(draft)
    assert source is not None
    with pytest.raises(sooner.SoonerError, match=r"other weights.*from_memory=True"):
        source.load(torch.device("cpu"))


def test_quantized_weights_are_loaded_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantised on loading: the same config again, straight onto the device."""
    asked: dict[str, Any] = {}
    draft = copy.deepcopy(tiny.noisy("llama"))
    draft.name_or_path = "hub/name"
    draft.config._commit_hash = "abc"
    draft.hf_quantizer = Quantizer()

    def from_pretrained(name: str, **options: Any) -> Any:
        asked.update(options, name=name)
        return draft

    monkeypatch.setattr(type(draft), "from_pretrained", from_pretrained)
    source = DraftSource.of(draft)
    assert source is not None
    source.load(torch.device("cpu"))
    assert asked == {
        "name": "hub/name", "revision": "abc", "dtype": torch.float32,
        "attn_implementation": "sdpa", "quantization_config": "four bits",
        "device_map": {"": torch.device("cpu")},
    }  # fmt: skip


class Quantizer:
    pre_quantized = False
    quantization_config = "four bits"


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_model_in_memory_is_handed_over_whole(family: str) -> None:
    """One that has run carries local functions, and must travel all the same."""
    draft = copy.deepcopy(tiny.noisy(family))
    kind = "text" if family in tiny.TEXT_FAMILIES else "image"
    inputs = tiny.inputs(family, kind)
    with torch.inference_mode():
        expected = draft(**inputs).logits
    assert DraftSource.of(draft) is None
    loaded = HandedOver.of(draft).load(torch.device("cpu"))
    with torch.inference_mode():
        assert torch.equal(loaded(**inputs).logits, expected)
    assert loaded.generation_config.eos_token_id == tiny.EOS


def test_an_arena_over_a_file_grows_and_keeps_what_it_holds() -> None:
    file = SharedFile()
    ours = Arena(4096, file)
    ours.take((3,), torch.long).copy_(torch.tensor([1, 2, 3]))
    assert ours.reaching(4096) is ours
    larger, theirs = ours.reaching(1 << 16), Arena(4096, file)
    theirs.take((3,), torch.long)[1] = 7
    assert larger.take((3,), torch.long).tolist() == [1, 7, 3]
    descriptor = file.descriptor
    del file, ours, larger, theirs
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize(
    ("placement", "own", "device", "spawned"),
    [
        ("auto", None, "cpu", False), ("auto", "cpu", "cpu", False), ("auto", None, "cuda", False),
        ("auto", "cuda:1", "cuda:1", True), ("auto", "cuda:1", "meta", True),
        ("auto", "cpu", "cuda", True), ("spawn", None, "cpu", True),
        ("thread", "cuda:1", "cuda:1", False), ("process", "cpu", "cpu", False),
        ("spawn", None, None, True), ("auto", None, None, False),
    ],
)  # fmt: skip
def test_a_draft_with_a_device_of_its_own_is_spawned(
    placement: str, own: str | None, device: str | None, spawned: bool
) -> None:
    assert spawns(placement, own, device) is spawned


def test_options_that_cannot_be_are_refused() -> None:
    draft = tiny.noisy("llama")
    with pytest.raises(sooner.SoonerError, match="draft_device 'cuda:7' is not there"):
        sooner.ParallelVLM(draft, draft_device="cuda:7")
    with pytest.raises(sooner.SoonerError, match="draft_device is 'gpu'"):
        sooner.ParallelVLM(draft, placement="spawn", draft_device="gpu")
    with pytest.raises(sooner.SoonerError, match="use placement='spawn'"):
        sooner.ParallelVLM(draft, placement="thread", draft_device="cpu")
    with pytest.raises(sooner.SoonerError, match="placement is 'thread'; leave one"):
        sooner.ParallelVLM(draft, placement="thread", standing=sooner.SpawnedDraft(draft))
    empty = copy.deepcopy(draft).to("meta")
    with pytest.raises(sooner.SoonerError, match="no weights, here or in a checkpoint"):
        sooner.SpawnedDraft(empty, "cpu")
    empty.name_or_path = "hub/name"
    with pytest.raises(sooner.SoonerError, match="give draft_device"):
        sooner.SpawnedDraft(empty)


def live(told: Any) -> None:
    """A process that decodes beside a draft until it is killed."""
    draft = tiny.noisy("llama")
    held = sooner.SpawnedDraft(draft)
    assert held.start() is None
    method = sooner.ParallelVLM(draft, prune=0, standing=held)
    told.send(pid(held))
    while True:
        sooner.generate(
            tiny.model("llama"), tiny.inputs("llama", "text"), method, max_new_tokens=200,
            eos_token_id=None, do_sample=False,
        )  # fmt: skip


def test_it_ends_with_a_parent_that_is_killed() -> None:
    forking = multiprocessing.get_context("fork")
    ours, theirs = forking.Pipe()
    parent = forking.Process(target=live, args=(theirs,))
    parent.start()
    try:
        assert ours.poll(120)
        worker = ours.recv()
        time.sleep(0.2)  # in the midst of a run
        named = in_shm(parent.pid) | in_shm(worker)
    finally:
        parent.kill()
        parent.join()
    deadline = time.monotonic() + 10
    while is_alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(worker)
    assert not named


def is_alive(process: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "llama"])
def test_other_families_equal_hf(family: str, tmp_path: Path) -> None:
    """From a folder, by a method of its own, which keeps the process for its runs and ends it."""
    tiny.noisy(family).save_pretrained(tmp_path)
    draft = type(tiny.noisy(family)).from_pretrained(tmp_path, dtype=torch.float32)
    method = sooner.ParallelVLM(draft, prune=0.5, least=0, placement="spawn", draft_device="cpu")
    for kind in ("text",) if family in tiny.TEXT_FAMILIES else ("video", "images"):
        made = run(method, family, kind)
        assert torch.equal(made.sequences, matrix.reference(family, kind, 1, NEW))
        assert not made.stats.notes
        assert len(children()) == 1
    del method
    gc.collect()
    assert not children()


UNGUARDED = """
import sooner, tiny
print(sooner.SpawnedDraft(tiny.noisy("llama")).start())
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    paths = [str(Path(tiny.__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    told = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert 'needs `if __name__ == "__main__":`' in told.stdout


def test_killed_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    with sooner.SpawnedDraft(tiny.noisy(FAMILY)) as one:
        killer = threading.Timer(1.0, lambda: os.kill(pid(one), signal.SIGKILL))
        killer.start()
        made = generate(one)
        killer.join()
        assert torch.equal(made.sequences, matrix.reference(FAMILY, "video", 1, NEW))
        assert "exit code -9" in made.stats.notes[0]
    assert not children()
