"""`sooner bench step`: a clean static step passes, planted faults are named, loops are counted."""

from __future__ import annotations

import functools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

import sooner
from covering import thinned
from sooner.cli.main import main
from sooner.engine.acceptance import follow_choices
from sooner.engine.interface import Outcome
from sooner.engine.stats.run import Timeline
from sooner.engine.tree import Tree
from sooner.methods.speculative import ChainDrafter
from sooner_lab.bench.step import engine, rounds
from sooner_lab.bench.step.guard import NoWaiting, StepWaitsError, Waits, fake_cuda
from sooner_lab.bench.step.run import counted, faults, static_row
from sooner_lab.bench.step.settings import LAW, StepSettings
from sooner_lab.bench.step.simulated import DEVICE, simulated_device, to_device

QUICK = ("--length", "2000", "--layers", "1", "--no-compile")
LAYERS = 2
"""The fast run builds so many layers of the 7B shape."""
FIGURES = {
    "method", "ops_per_round", "host_reads_per_round", "uploads_per_round", "graph_breaks",
    "recompiles", "verify_bytes_over_plain",
}  # fmt: skip


COMPILED = ("plain", "hsd-relaxed")
"""Methods whose steps the fast run compiles and pads; others run with the slow tests."""
SOON = ("plain", "prompt-lookup", "speculative", "sd-tree", "jacobi", "hsd")
"""Methods whose rounds the fast run counts, drawn; of batches those of a tree and of windows."""


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["bench", "step", *arguments])
    return int(end.value.code or 0)


@functools.cache
def skip_where_hf_reads() -> None:
    """Older releases of transformers read the length of a static cache on the host, which fake
    memory has no answer to: there is nothing to compare with."""
    try:
        static_row(engine.HF, StepSettings(("plain",), layers=1), compiles=False)
    except DataDependentOutputException:
        pytest.skip("HF's own static step reads the device with this transformers")


def test_steps_and_rounds_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skip_where_hf_reads()
    target = tmp_path / "step.json"
    assert run("--methods", "plain,prompt-lookup", *QUICK, "--json", str(target)) == 0
    result = json.loads(target.read_text())
    rows = {row["method"]: row for row in (*result["methods"], *result["hf"])}
    assert set(rows) == {"plain", "prompt-lookup", "hf-static", "hf-generate"}
    assert all(set(row) >= FIGURES for row in rows.values())
    plain = rows["plain"]
    assert plain["reads_of_round"] == 1, "the report"
    assert plain["uploads_of_round"] == 0
    assert plain["clocks_of_round"] == 0, "times come from events"
    assert plain["ops_of_round"] <= rows["hf-generate"]["ops_of_round"]
    assert rows["prompt-lookup"]["uploads_of_round"] <= 1, "the draft"
    assert rows["hf-static"]["growth"] is None
    assert rows["hf-static"]["first_wait"] is None
    assert rows["hf-generate"]["reads_of_round"] > 0
    assert "provenance" in result
    assert "hf-gen" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["bench", "report", str(target)])
    page = target.with_suffix(".md").read_text()
    assert "| plain | static |" in page
    assert "Waits of plain" in page


@pytest.mark.parametrize("method", thinned(engine.STATIC, COMPILED))
def test_a_step_of_every_method_keeps_the_laws(method: str) -> None:
    """No wait, no upload, no growth, one graph, and a verification that moves a plain step's bytes;
    plain launches no more than HF's own round does."""
    settings = StepSettings((method,), layers=LAYERS)
    row = static_row(engine.STATIC[method], settings, compiles=True)
    assert faults(row) == []
    assert (row["host_reads_per_round"], row["uploads_per_round"]) == (0, 0)


@pytest.mark.parametrize("method", thinned(engine.PADDED, COMPILED))
def test_a_padded_step_keeps_them_too(method: str) -> None:
    """Nothing waits, and consecutive steps are the same: a graph may be replayed."""
    settings = StepSettings((method,), layers=LAYERS)
    row = static_row(engine.PADDED[method], settings, compiles=False)
    assert (row["first_wait"], row["growth"]) == (None, None)
    assert (row["host_reads_per_round"], row["uploads_per_round"]) == (0, 0)
    assert row["ops_at_length"] == row["ops_per_round"]
    assert row["verify_bytes_over_plain"] <= LAW


def test_a_path_is_compacted_by_operations_independent_of_layers() -> None:
    def more(name: str) -> int:
        """Operations that another layer takes."""
        counts = []
        factory = engine.STATIC[name]
        for layers in (1, 2):
            with fake_cuda(), torch.inference_mode():
                step = factory.build(engine.qwen2_5_7b(layers), 1, 100)
                step(1, factory.entries)
                counts.append(counted(step, 1, factory.entries, factory)[0].launched.total())
        return counts[1] - counts[0]

    assert more("eagle") == more("sd-tree") == more("prompt-lookup"), "a tree's as a chain's"


def test_hfs_static_step_moves_too_much() -> None:
    skip_where_hf_reads()
    hf = static_row(engine.HF, StepSettings(("plain",), layers=8), compiles=False)
    assert hf["verify_bytes_over_plain"] > 2, "it expands grouped heads, and reads a mask"
    assert len(faults(hf)) == 1


FAULTS: dict[str, tuple[Any, str]] = {
    "read": (lambda scores: int(scores.argmax()), "_local_scalar_dense"),
    "upload": (lambda scores: torch.tensor([0], device=scores.device), "lift"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_rule_with_a_planted_wait_fails(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fault, op = FAULTS[name]

    def planted(tree: Tree, scores: torch.Tensor, *more: Any) -> Any:
        fault(scores)
        return follow_choices(tree, scores, *more)

    factory = engine.STATIC["plain"]
    factory = replace(factory, build=functools.partial(factory.build, rule=planted))
    with fake_cuda(), torch.inference_mode():
        step = factory.build(engine.qwen2_5_7b(1), 1, 100)
        with pytest.raises(StepWaitsError, match=rf"{op}.*test_bench_step"), NoWaiting():
            step(1, 4)
    if name == "upload":  # a read can't go on with fake values
        monkeypatch.setitem(engine.STATIC, "plain", factory)
        assert run("--methods", "plain", *QUICK) == 1
        assert "plain: waits: aten.lift_fresh" in capsys.readouterr().err


def test_the_simulated_device_decodes_as_the_cpu_does() -> None:
    model, limits = engine.tiny(2), {"max_new_tokens": 20, "eos_token_id": None}
    made = rounds.methods(model)
    expected = sooner.generate(model, rounds.inputs(), **limits).tokens
    model = to_device(model)
    with simulated_device():
        for name in ("plain", "sd-tree", "jacobi"):
            assert (
                sooner.generate(model, rounds.placed(), made[name](), **limits).tokens == expected
            )


def test_copies_of_a_simulated_device_are_counted() -> None:
    with simulated_device(), torch.inference_mode(), Waits() as waits:
        x = torch.arange(6, device=DEVICE).view(2, 3)
        x[1] += 1
        assert x[[1, 0]].tolist() == [[4, 5, 6], [0, 1, 2]]  # an upload and a read
        assert int(x.sum()) == 18
        assert torch.tensor([7], device=DEVICE).cpu()[0] == 7  # an upload and a read
    assert x.device == DEVICE
    assert waits.uploads.total() == 2
    assert waits.reads.total() == 3


METHODS = (
    "plain", "prompt-lookup", "speculative", "sd-tree", "eagle", "eagle3", "dflash", "ddtree",
    "jacobi", "hsd",
)  # fmt: skip


ON_THE_HOST = ("prompt-lookup", "hsd")
"""Methods that make their drafts there and send them."""


@pytest.mark.parametrize("do_sample", thinned([False, True], [True]))
@pytest.mark.parametrize("name", thinned(METHODS, SOON))
def test_a_round_reads_once_uploads_once_and_waits_for_no_clock(name: str, do_sample: bool) -> None:
    """Nothing is read but the step's report."""
    model = engine.tiny(2)
    made = rounds.methods(model)
    watched = rounds.measure(name, to_device(model), made[name](), do_sample=do_sample)
    assert watched.rounds > 3
    assert watched.clocks == 0
    assert (watched.reads, watched.reads_between) == (1, 0), watched.lines
    assert watched.uploads == 0, watched.lines
    is_sent = name in ON_THE_HOST or (name == "jacobi" and do_sample)  # windows of ragged rows
    assert watched.uploads_between <= (1 if is_sent else 0.1), watched.lines


@pytest.mark.parametrize(
    "name",
    thinned(
        ["speculative", "sd-tree", "eagle", "eagle3", "dflash", "jacobi"], ["sd-tree", "jacobi"]
    ),
)
def test_ragged_rows_upload_no_more(name: str) -> None:
    """Only where rows end the device is told which go on, and then how much each may say."""
    model = engine.tiny(2)
    made = rounds.methods(model)
    watched = rounds.measure(name, to_device(model), made[name](), rows=3)
    assert watched.clocks == 0
    assert (watched.reads, watched.reads_between) == (1, 0), watched.lines
    assert watched.uploads + watched.uploads_between <= 1, watched.lines


def test_a_clock_that_waits_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(line: Timeline) -> float:
        torch.cuda.synchronize(line.device)
        return time.perf_counter()

    monkeypatch.setattr(Timeline, "mark", mark)
    model = engine.tiny(2)
    made = rounds.methods(model)
    assert rounds.measure("plain", to_device(model), made["plain"]()).clocks > 3


def test_waits_of_the_drafter_are_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter that asks the device how long its chains are, and sends them anew."""
    propose = ChainDrafter.propose

    def planted(drafter: ChainDrafter, outcome: Outcome) -> Tree:
        tree = propose(drafter, outcome)
        sizes = torch.tensor(tree.sizes.tolist()).to(tree.sizes.device)
        return replace(tree, sizes=sizes)

    monkeypatch.setattr(ChainDrafter, "propose", planted)
    model = engine.tiny(2)
    made = rounds.methods(model)
    watched = rounds.measure("speculative", to_device(model), made["speculative"]())
    assert watched.rounds > 5
    assert watched.reads == 1, "the table of a round"
    assert (watched.reads_between, watched.uploads_between) == (1, 1)
    assert sum("test_bench_step.py" in line for _, _, line in watched.lines) == 2
