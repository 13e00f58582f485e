"""Which backend a device gets, and what is said where there is none of ours."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch

from sooner.errors import SoonerError
from sooner.sparse.attention import run as choose
from sooner.sparse.attention.run import backend_for

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _no_warnings_yet() -> None:
    choose._emit.cache_clear()


def test_a_cpu_gets_the_fused_backend() -> None:
    assert backend_for(CPU).name == "fused"


@pytest.mark.parametrize("name", ["reference", "fused"])
def test_a_backend_is_had_by_its_name(name: str) -> None:
    assert backend_for(CPU, name).name == name


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(SoonerError, match="did you mean 'triton'"):
        backend_for(CPU, "tritton")


def test_triton_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(SoonerError, match="there is no GPU, but cpu; use 'reference'"):
        backend_for(CPU, "triton")


def test_fused_is_refused_on_a_gpu() -> None:
    with pytest.raises(SoonerError, match="runs on CPUs, not on cuda"):
        backend_for(GPU, "fused")


def test_a_gpu_without_triton_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(choose, "find_spec", lambda name: None)
    with caplog.at_level(logging.WARNING, "sooner"):
        names = [backend_for(GPU).name for _ in range(3)]
    assert names == ["reference"] * 3
    (record,) = caplog.records
    assert "Triton is not installed" in record.getMessage()
    assert "masks" in record.getMessage()


@pytest.mark.slow
def test_choosing_a_backend_for_a_cpu_imports_no_triton() -> None:
    code = (
        "import sys, torch; from sooner.sparse.attention.run import backend_for; "
        "backend_for(torch.device('cpu')); "
        "sys.exit(any(name.startswith('triton') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
