"""One declaration makes a method: command line, public name, benchmark and page follow from it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

import sooner
from method_matrix import METHODS
from sooner import registry
from sooner.errors import SoonerError
from sooner.registry import choices, methods

NEVER_EXACT = {"gsd", "relaxed"}


@pytest.mark.parametrize("name", methods())
def test_what_is_read_is_what_the_class_has(name: str) -> None:
    entry = methods()[name]
    method = entry.load()
    assert (method.name, method.summary) == (entry.name, entry.summary)
    assert method.draft_model == entry.draft_model
    assert ("from_settings" in vars(method)) == entry.is_choice
    assert getattr(sooner, entry.type_name) is method
    assert getattr(sooner.methods, entry.type_name) is method
    assert entry.type_name in dir(sooner)


def test_every_exact_method_is_in_the_matrix() -> None:
    assert methods().keys() - {make("llama").name for make in METHODS.values()} == NEVER_EXACT


def test_the_page_of_methods_is_the_registry() -> None:
    path = Path(__file__).parents[2] / "docs" / "methods.md"
    assert path.read_text(encoding="utf-8") == registry.page()


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


GOOD = {"name": '"toy"', "summary": '"tokens"', "draft_model": '"none"'}


def declared(folder: Path, base: str = "Method", **changes: str | None) -> Path:
    values = {**GOOD, **changes}
    lines = [f"    {what}: ClassVar[str] = {value}" for what, value in values.items() if value]
    path = folder / "methods" / "toy.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([f"class Toy({base}):", "    n: ClassVar[int] = 1", *lines]) + "\n")
    return path


def read(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, registry.Entry]:
    monkeypatch.setattr(registry, "FOLDER", folder / "methods")
    return methods.__wrapped__()


def test_a_file_is_all_that_a_method_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = declared(tmp_path)
    toy = registry.Entry("toy", "tokens", "none", "Toy", "sooner.methods.toy", False)
    assert read(monkeypatch, tmp_path) == {"toy": toy}
    with path.open("a") as file:
        file.write("    @classmethod\n    def from_settings(cls, settings): ...\n")
    assert read(monkeypatch, tmp_path)["toy"].is_choice
    declared(tmp_path, name='""')
    assert read(monkeypatch, tmp_path) == {}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"name": "NAME"}, r"toy\.py:3: name of Toy is no literal text"),
        ({"summary": 'f"{NAME}"'}, "summary of Toy is no literal text"),
        ({"summary": None}, "Toy declares no summary"),
        ({"base": "Speculative", "draft_model": None}, "Toy declares no draft_model"),
        ({"name": None}, "Toy declares no name"),
        ({"draft_model": '"large"'}, "draft_model of Toy is 'large'; it must be one of none, wor"),
    ],
)
def test_a_declaration_that_can_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None], error: str
) -> None:
    declared(tmp_path, **changes)  # type: ignore[arg-type]
    with pytest.raises(SoonerError, match=error):
        read(monkeypatch, tmp_path)


def test_a_name_that_two_classes_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = declared(tmp_path)
    path.with_name("other.py").write_text(path.read_text())
    with pytest.raises(SoonerError, match="method 'toy' is declared twice"):
        read(monkeypatch, tmp_path)


DRAFT_SIZES = ("num_draft_tokens", "nodes", "branching")
"""Options that say how much a method drafts a round."""
NO_SIZE = {
    "plain": "drafts nothing",
    "relaxed": "drafts what another method drafts",
    "jacobi": "the window is a part of the iteration: it says which places are drawn anew",
    "gsd": "the same",
}


@pytest.mark.parametrize("name", methods())
def test_every_method_drafts_what_pays_by_default(name: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(methods()[name].load())}
    sizes = {option: fields[option].default for option in DRAFT_SIZES if option in fields}
    if name in NO_SIZE:
        assert not sizes
    else:
        assert list(sizes.values()) == ["auto"]
