"""Planted faults: each way in which a step can wait or grow is caught; compilations are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from sooner_lab.bench.step.guard import (
    HOST_TENSOR,
    PIN,
    READ,
    UPLOAD,
    NoWaiting,
    StepGrowsError,
    StepWaitsError,
    Waits,
    check_static,
    compilation,
    fake_cuda,
)


def host(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.long, device="cpu")


FAULTS: dict[str, tuple[Callable[[Tensor], Any], str, str]] = {
    "item": (lambda x: x[0, 0].item(), READ, "_local_scalar_dense"),
    "tolist": (lambda x: x.tolist(), READ, "_local_scalar_dense"),
    "branch on a value": (lambda x: 1 if (x > 0).any() else 2, READ, "_local_scalar_dense"),
    "cpu": (lambda x: x.cpu(), READ, "_to_copy"),
    "torch.tensor of a list": (
        lambda x: torch.tensor([1, 2], device="cuda"), HOST_TENSOR, "lift_fresh"),
    "torch.tensor of a number": (lambda x: x + torch.tensor(1.0), HOST_TENSOR, "lift_fresh"),
    "list index": (lambda x: x[[0, 1]], HOST_TENSOR, "lift_fresh"),
    "index on the host": (lambda x: x[host(2)], UPLOAD, "index"),
    "write by an index on the host": (
        lambda x: x.index_put_((host(2),), x[:2]), UPLOAD, "index_put_"),
    "boolean index": (lambda x: x[x > 0], READ, "index"),
    "nonzero": (lambda x: (x > 0).nonzero(), READ, "nonzero"),
    "masked_select": (lambda x: x.masked_select(x > 0), READ, "masked_select"),
    "copy from the host": (lambda x: x.copy_(torch.ones(4, 4, device="cpu")), UPLOAD, "copy_"),
    "copy to the host": (
        lambda x: torch.ones(4, 4, device="cpu").copy_(x, non_blocking=True), READ, "copy_"),
    "to": (lambda x: host(4).to(x.device), UPLOAD, "_to_copy"),
    "pinned memory": (lambda x: torch.ones(4, device="cpu").pin_memory(), PIN, "_pin_memory"),
    "multinomial": (lambda x: torch.multinomial(x, 1), READ, "multinomial"),
    "equal": (lambda x: torch.equal(x, x), READ, "equal"),
}  # fmt: skip


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_wait_is_caught_with_its_line(name: str, inference: bool) -> None:
    fault, kind, op = FAULTS[name]
    with fake_cuda(), torch.inference_mode(inference):
        x = torch.ones(4, 4)
        with pytest.raises(StepWaitsError) as caught, NoWaiting():
            fault(x)
    assert caught.value.wait.kind == kind
    assert caught.value.wait.op.split(".")[1] == op
    assert "test_step_guard.py:" in caught.value.wait.line
    assert "step_guard.py:" in str(caught.value), "one line says where"
    assert "\n" not in str(caught.value)


def test_what_does_not_wait_is_let_through() -> None:
    with fake_cuda():
        x = torch.ones(4, 4)
        with NoWaiting():
            x[x > 0] = 1.0  # a masked fill
            x[0, 1] = 2.0
            x.index_select(0, torch.arange(2))
            x.repeat_interleave(torch.full((4,), 2), 0, output_size=8)
            x.to(torch.float16).cuda()


def test_a_shape_that_grows_is_caught() -> None:
    with fake_cuda():
        store, seen = torch.ones(4, 32), [3]

        def step() -> None:
            store[:, : seen[0]].sum()
            seen[0] += 1

        with pytest.raises(StepGrowsError, match=r"aten\.slice.*test_step_guard"):
            check_static(step)


def test_a_step_that_gets_longer_or_moves_a_constant_is_caught() -> None:
    """A graph would write to the first place for ever."""
    with fake_cuda():
        store, at = torch.ones(4, 32), [1]

        def move() -> None:
            store.narrow(1, at[0], 2).fill_(0)
            at[0] += 2

        def lengthen() -> None:
            for _ in range(at[0]):
                store.add_(1)
            at[0] += 1

        with pytest.raises(StepGrowsError, match=r"aten\.(slice|narrow)"):
            check_static(move)
        with pytest.raises(StepGrowsError, match="length"):
            check_static(lengthen)


def test_waits_are_counted_and_let_through() -> None:
    with fake_cuda(), Waits() as waits:
        x = torch.ones(4, 4)
        x[torch.tensor([1, 2], device="cuda")] + torch.tensor([[1.0]], device="cuda")
        x.cpu()
        x.to("cpu")
    assert (waits.reads.total(), waits.uploads.total()) == (2, 2)
    assert all("test_step_guard.py" in wait.line for _, wait in waits.lines)


class Lengths:
    def __init__(self) -> None:
        self.host, self.device = 3, torch.tensor(3)


def test_compilations_are_counted() -> None:
    lengths, store = Lengths(), torch.zeros(4, 32)

    def static(entries: int) -> Tensor:
        lengths.device.add_(1)
        return (store[:, :entries] + lengths.device).sum()

    def growing(entries: int) -> Tensor:
        lengths.host += 1
        return store[:, : lengths.host].sum() + entries

    def breaking(entries: int) -> Tensor:
        if store.sum() > 100:
            return store + entries
        return store - entries

    counts = compilation(static, [(1,), (4,)])
    assert (counts.graph_breaks, counts.recompiles, counts.graphs) == (0, 0, 2)
    assert compilation(growing, [(1,)], times=2).recompiles == 2
    assert compilation(breaking, [(1,)], times=0).graph_breaks == 1
