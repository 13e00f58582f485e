"""Steps that are padded, recorded and replayed say what steps say that are not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters

import sooner
import tiny
from covering import diagonal, thinned
from method_matrix import LONG, METHODS, reference
from methods.test_engine import schedule
from recorders import MockCuda, Refusing, StandIn, poisoned
from sooner.engine.graphs.recorder import CudaGraphs, Replays
from sooner.engine.graphs.steps import StepGraphs

SAMPLED: dict[str, Any] = {"do_sample": True, "top_k": 20, "temperature": 0.8, "seed": 5}
GREEDY: dict[str, Any] = {"do_sample": False}
FAMILIES = ("llama", "qwen2_5_vl")


def output(
    family: str, name: str, graphs: Any, rows: int = 3, new: int = LONG, **options: Any
) -> sooner.Generation:
    return sooner.generate(
        tiny.model(family), tiny.inputs(family, tiny.kinds(family)[0], rows),
        METHODS[name](family), max_new_tokens=new, eos_token_id=None, graphs=graphs, **options,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "family"), diagonal([*METHODS], FAMILIES))
def test_padded_steps_give_plain_ids_out_of_a_cache_of_nans(
    name: str, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ragged batch, drafts of all sizes, everything behind a row's length not a number."""
    monkeypatch.setattr(StepGraphs, "step", poisoned(StepGraphs.step))
    recorder = StandIn()
    made = output(family, name, recorder, **GREEDY)
    assert torch.equal(made.sequences, reference(family, tiny.kinds(family)[0], 3, LONG))
    assert recorder.replayed > 0
    assert made.stats.graphs == recorder.recorded


CLOCKED = {"noisy-auto", "parallel", "parallel-paper", "sd-tree-auto"}
"""Methods whose drafts are as long as the clock says, and decide what is drawn."""


KINDS = {
    "plain", "prompt-lookup", "noisy-4", "sd-tree", "jacobi-4", "eagle",
    "eagle3", "dflash", "domino", "ddtree", "hsd",
}  # fmt: skip
"""A method of each kind of drafter; the merge lane has the others."""


@pytest.mark.parametrize("name", thinned(sorted({*METHODS} - CLOCKED), KINDS))
def test_padded_steps_draw_what_unpadded_steps_draw(name: str) -> None:
    recorder = StandIn()
    assert (
        output("llama", name, recorder, **SAMPLED).tokens
        == output("llama", name, "off", **SAMPLED).tokens
    )
    assert recorder.replayed > 0


@pytest.mark.parametrize("seed", thinned(range(10), {0}))
def test_rows_join_and_leave_padded_steps(seed: int) -> None:
    recorder = StandIn()
    schedule(seed, graphs=recorder)
    schedule(seed + 40, graphs=recorder)


def test_processors_stand_between_the_two_graphs() -> None:
    from transformers import LogitsProcessor, LogitsProcessorList

    class NotTwice(LogitsProcessor):
        """Reads the text: the token before can't be said again."""

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return scores.scatter(1, input_ids[:, -1:], -torch.inf)

    for name in ("noisy-4", "sd-tree"):
        recorder, options = StandIn(), {"logits_processor": LogitsProcessorList([NotTwice()])}
        made = output("llama", name, recorder, **GREEDY, **options)
        assert made.tokens == output("llama", name, "off", **GREEDY, **options).tokens
        assert recorder.replayed > 0
        penalty = {"repetition_penalty": 1.3}
        assert output("llama", name, StandIn(), **GREEDY, **penalty).tokens == output(
            "llama", name, "off", **GREEDY, **penalty
        ).tokens  # fmt: skip


def test_what_cannot_be_recorded_is_run() -> None:
    made = output("llama", "noisy-4", Refusing(), **GREEDY)
    assert torch.equal(made.sequences, reference("llama", "text", 3, LONG))
    assert "graphs are off: operation not permitted when stream is capturing" in made.stats.notes


@pytest.mark.parametrize("fails_at", ["begin", "run", "instantiate"])
def test_a_capture_that_fails_leaves_the_allocator_as_it_was(
    fails_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`empty_cache` works behind it, no pool is leaked, and torch's generator draws again."""
    cuda = MockCuda(monkeypatch, fails_at)
    replays, runs = Replays(CudaGraphs(torch.device("cuda", 0))), []

    def run() -> None:
        runs.append(not cuda.open)
        cuda.fail(fails_at == "run" and bool(cuda.open))

    for _ in range(3):
        replays.run("step", run, [])
    assert replays.failure == "operation not permitted when stream is capturing"
    assert [outside for outside in runs if outside] == [True] * 3, "as it is, each time"
    torch.cuda.empty_cache()
    assert cuda.uses == {(0, 1): 0}
    assert not cuda.is_drawing


def test_a_reason_without_words_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StandIn, "record", Mock(side_effect=AssertionError))
    replays = Replays(StandIn())
    replays.run("step", lambda: None, [])
    assert replays.failure == "AssertionError"


def test_graphs_keep_the_workspaces_that_they_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, where = MockCuda(monkeypatch), []
    replays = Replays(CudaGraphs(torch.device("cuda", 0)))
    for key in range(2):
        replays.run(key, lambda: where.append(cuda.multiply()), [])
        assert cuda.multiply() == "outside"
    assert where == ["outside", (0, 1)] * 2


def test_each_thread_records_on_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    MockCuda(monkeypatch)
    recorder = CudaGraphs(torch.device("cuda", 0))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: recorder.stream).result()
    assert recorder.stream is recorder.stream is not other
    assert recorder.stream.priority < 0, "no draft worker's, whose kernels would be captured"


@pytest.mark.parametrize("limit", ["MAX_ENTRIES", "MAX_PARTS"])
def test_drafts_record_no_more_shapes_than_there_is_memory_for(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"sooner.engine.graphs.drafts.{limit}", 1)
    made = output("llama", "noisy-4", StandIn(), **GREEDY)
    assert torch.equal(made.sequences, reference("llama", "text", 3, LONG))
    monkeypatch.undo()
    assert 0 < made.stats.graphs < output("llama", "noisy-4", StandIn(), **GREEDY).stats.graphs


def test_graphs_are_off_where_they_can_t_be_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny.model("llama")
    monkeypatch.setattr(model, "hf_device_map", {"a": 0, "b": 1}, raising=False)
    made = output("llama", "plain", StandIn(), **GREEDY)
    assert made.stats.graphs == 0
    assert "graphs are off: the model's layers lie on several devices" in made.stats.notes
    with pytest.raises(sooner.SoonerError, match=r"graphs 'of'.*off"):
        output("llama", "plain", "of", **GREEDY)


@pytest.mark.slow
def test_a_compiled_forward_is_a_single_graph_per_bucket() -> None:
    """No break, and none is compiled again: not for other lengths, nor for a run that follows."""
    kinds: set[str] = set()

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        kinds.update(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    options = {"backend": aot_autograd(fw_compiler=keep), "fullgraph": True}
    torch._dynamo.reset()
    counters.clear()
    counts = []
    for name in ("prompt-lookup", "prompt-lookup", "hsd", "hsd"):
        made = output("llama", name, "off", rows=2, compile=options, **GREEDY)
        assert torch.equal(made.sequences, reference("llama", "text", 2, LONG))
        counts.append(counters["stats"]["unique_graphs"])
    torch._dynamo.reset()
    assert counts[0] > 1, "several buckets"
    assert counts[1] == counts[0]
    assert counts[3] == counts[2]
    assert "aten.index_put.default" in kinds
    assert "aten.scatter.src" not in kinds, "for which Inductor copies all keys and values"
