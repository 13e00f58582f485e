"""The examples of `docs/add-a-method.md` and `docs/add-a-model.md` run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

import sooner
import tiny
from sooner.models import FAMILIES, adapt

DOCS = Path(__file__).parents[2] / "docs"
TEST = """
import torch, tiny, sooner
from sooner_repeat import Repeat
model = tiny.model("llama")
ids = torch.tensor([[5, 6, 7, 7, 7], [9, 9, 4, 3, 9]])
inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
expected = model.generate(**inputs, max_new_tokens=24, do_sample=False)
made = model.generate(**inputs, custom_generate=Repeat(), max_new_tokens=24)
assert made.tolist() == expected.tolist()
stats = sooner.generate(model, inputs, Repeat(count=2), max_new_tokens=24).stats
assert stats.mode == "exact" and stats.num_draft_tokens > 0
engine = sooner.Engine(model, Repeat(), max_rows=2)
requests = []
for row in range(2):
    prompt = {"input_ids": ids[row : row + 1], "attention_mask": torch.ones(1, 5)}
    requests.append(engine.add_request(prompt, max_new_tokens=24))
    engine.step()
assert len(engine.running) == 2  # they decode together: the drafter merges
engine.run()
for row, request in enumerate(requests):
    (tokens,) = request.tokens
    assert len(tokens) == 24 or tokens[-1] == tiny.EOS
    assert tokens == expected[row, 5:][: len(tokens)].tolist()
"""


def block(page: str, language: str) -> str:
    """The first code block of a page in a language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    match = re.search(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    assert match is not None, page
    return match[1]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The example of a method as an installed distribution, with the page's entry point."""
    (tmp_path / "sooner_repeat.py").write_text(block("add-a-method.md", "python"))
    lines = block("add-a-method.md", "toml").splitlines()
    assert lines[0] == '[project.entry-points."sooner.methods"]'
    info = tmp_path / "sooner_repeat-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sooner-repeat\nVersion: 1.0\n")
    entries = "\n".join(line.replace('"', "") for line in lines[1:])
    (info / "entry_points.txt").write_text(f"[sooner.methods]\n{entries}\n")
    return tmp_path


def run(package: Path, *arguments: str) -> str:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([str(package), tests, *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_method_of_another_distribution_is_exact(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package)
    try:
        exec(TEST, {})
    finally:
        sys.modules.pop("sooner_repeat", None)


def test_the_command_line_knows_it_without_importing_it(package: Path) -> None:
    code = (
        "import sys; from sooner.cli import from_settings; from sooner.tasks import settings;"
        "print(from_settings.option_of(settings.CaptionSettings, 'method').help);"
        "print([name for name in ('torch', 'sooner_repeat') if name in sys.modules])"
    )
    listing, loaded = run(package, "-c", code).strip().rsplit("\n", 1)
    assert "repeat: of sooner-repeat" in listing
    assert loaded == "[]"


def test_an_entry_point_that_names_no_class_is_a_single_line(package: Path) -> None:
    entries = next(package.glob("*.dist-info")) / "entry_points.txt"
    for value in ("sooner_repeat:Other", "no_such_module:Repeat", "no.such.module:Repeat"):
        entries.write_text(f"[sooner.methods]\nrepeat = {value}\n")
        code = (
            "from sooner.errors import SoonerError; from sooner.registry import methods\n"
            "try: methods()['repeat'].load()\nexcept SoonerError as error: print(error)"
        )
        assert f"is '{value}', which is no class that can be imported" in run(package, "-c", code)


def test_the_smallest_adapter_decodes_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FAMILIES, "qwen3", raising=False)
    names: dict[str, object] = {}
    exec(compile(block("add-a-model.md", "python"), "add-a-model.md", "exec"), names)
    torch.manual_seed(0)
    config = Qwen3Config(**tiny.TEXT, num_hidden_layers=2, head_dim=12)
    model = Qwen3ForCausalLM(config).eval()
    try:
        assert type(adapt(model)) is names["Qwen3"]
        ids = torch.tensor([[5, 6, 7, 5, 6, 7, 5], [1, 2, 3, 4, 5, 1, 2]])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        expected = model.generate(**inputs, max_new_tokens=30, do_sample=False)
        method = sooner.PromptLookup(num_draft_tokens=4)
        assert sooner.generate(model, inputs, method, max_new_tokens=30).sequences.tolist() == (
            expected.tolist()
        )
    finally:
        FAMILIES.pop("qwen3", None)
