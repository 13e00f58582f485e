"""The command-line reference of the site is what the commands say of themselves."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "cli_reference.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.lab
def test_the_page_is_up_to_date(tool: ModuleType) -> None:
    written = tool.PAGE.read_text(encoding="utf-8")
    assert written == tool.page(), "run `python tools/cli_reference.py`"


def test_every_command_of_the_library_is_on_the_page(tool: ModuleType) -> None:
    titles = set(re.findall(r"^### (sooner .*)$", tool.page(), re.M))
    for name in ("caption", "parse", "imagine", "serve", "demo", "verify", "doctor", "train draft"):
        assert f"sooner {name}" in titles
    assert "sooner act" not in titles  # a group, which can't be run


def test_options_defaults_and_flags_are_documented(tool: ModuleType) -> None:
    text = tool.page()
    section = text.split("### sooner caption\n")[1].split("\n### ")[0]
    assert re.search(r"^\| `--max-new-tokens` `.*` \| .+ \| `\d+` \|$", section, re.M)
    assert "| `--model` `ID_OR_PATH` |" in section
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 300
    for row in rows:
        assert len(re.split(r"(?<!\\)\|", row)) == 5, row
