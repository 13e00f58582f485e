"""One declaration makes a method: command line, public name, benchmark and page follow from it."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import sooner
from method_matrix import METHODS
from sooner import registry
from sooner.errors import SoonerError
from sooner.registry import choices, methods

NEVER_EXACT = {"relaxed"}
BUNDLED = {entry.name: entry for entry in registry.METHODS}


@pytest.mark.parametrize("name", BUNDLED)
def test_what_is_listed_is_what_the_class_is(name: str) -> None:
    entry = BUNDLED[name]
    method = entry.load()
    assert method.name == name
    assert getattr(sooner, entry.type_name) is method
    assert getattr(sooner.methods, entry.type_name) is method
    assert entry.type_name in dir(sooner)


def test_every_method_of_the_package_is_listed() -> None:
    for module in pkgutil.walk_packages(sooner.methods.__path__, "sooner.methods."):
        importlib.import_module(module.name)
    kinds, waiting = set(), [sooner.Method]
    while waiting:
        kinds.update(kind := waiting.pop().__subclasses__())
        waiting += kind
    names = {kind.name for kind in kinds if kind.__module__.startswith("sooner.methods.")}
    assert names - {""} == BUNDLED.keys()


def test_every_exact_method_is_in_the_matrix() -> None:
    assert BUNDLED.keys() - {make("llama").name for make in METHODS.values()} == NEVER_EXACT


def test_the_page_of_methods_is_the_registry() -> None:
    root = Path(__file__).parents[2]
    tool = runpy.run_path(str(root / "tools" / "methods_page.py"))
    written = (root / "docs" / "methods.md").read_text(encoding="utf-8")
    assert written == tool["page"](), "run python tools/methods_page.py"


def test_the_command_line_knows_them_without_torch() -> None:
    code = (
        "import sys; from sooner.cli import from_settings; from sooner.tasks import settings;"
        "print(from_settings.option_of(settings.CaptionSettings, 'method').help);"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    output, loaded = done.stdout.strip().rsplit("\n", 1)
    assert loaded == "[]"
    for name, entry in choices().items():
        assert f"{name}: {entry.summary}" in output


def test_the_caption_benchmark_has_an_arm_for_each() -> None:
    settings = pytest.importorskip("sooner_lab.bench.caption_settings")
    heads = {name for name, entry in choices().items() if entry.draft_model == "head"}
    assert heads == {"assistant", "ddtree", "dflash", "eagle"}
    # EAGLE's arms are named apart, and the miniature, which is no Gemma 4, has no assistant.
    assert choices().keys() - set(settings.KNOWN) == {"assistant", "eagle"}


def test_a_name_that_two_methods_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METHODS", (*registry.METHODS, registry.METHODS[0]))
    with pytest.raises(SoonerError, match=r"method 'assistant' .* has the name of another"):
        methods.__wrapped__()


DRAFT_SIZES = ("num_draft_tokens", "nodes", "branching")
"""Options that say how much a method drafts a round."""
NO_SIZE = {
    "plain": "drafts nothing",
    "relaxed": "drafts what another method drafts",
    "jacobi": "the window is a part of the iteration: it says which places are drawn anew",
}


@pytest.mark.parametrize("name", methods())
def test_every_method_drafts_what_pays_by_default(name: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(methods()[name].load())}
    sizes = {option: fields[option].default for option in DRAFT_SIZES if option in fields}
    if name in NO_SIZE:
        assert not sizes
    else:
        assert list(sizes.values()) == ["auto"]
