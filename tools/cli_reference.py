"""The page `docs/reference/cli.md`, made from the commands themselves.

    python tools/cli_reference.py            writes the page
    python tools/cli_reference.py --check    exits with 1 if the page is not up to date

Names, arguments, options, defaults and help are those that `sooner COMMAND --help` prints. The
lab's commands (`bench`, `eval`, `predict`) are on the page where `sooner-lab`
is installed, as it is in the development environment.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from sooner.cli.main import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
HEAD = """# Commands

This page is written by `python tools/cli_reference.py` from the commands; don't edit it by hand.
`sooner COMMAND --help` prints the same. Every command ends with 0 when it is done, 1 when it found
a parity bug or a drafter's fault, 2 for bad input or usage, and 130 when it was interrupted.

`--config FILE` reads options from YAML or TOML, by their names; what the command line says wins.
A name that the command does not have is refused, with the nearest that it has:

```yaml
# serve.yaml, for: sooner serve --config serve.yaml --port 8001
model: Qwen/Qwen3-VL-8B-Instruct
draft: Qwen/Qwen3-VL-2B-Instruct
max-rows: 16
gpu-memory-utilization: 0.9
```

Commands of the lab need the distribution `sooner-lab`; see [installation](../installation.md).
"""


def page() -> str:
    """The page's text: the library's commands in their order, then those of the lab."""
    root: Any = typer.main.get_command(app)
    entries = list(_commands(root, "sooner"))
    library = [entry for entry in entries if not _is_lab(entry[1])]
    lab = [entry for entry in entries if _is_lab(entry[1])]
    text = HEAD
    for title, commands in (("The library", library), ("The lab", lab)):
        text += f"\n## {title}\n"
        for name, command in commands:
            text += "\n" + "\n".join(_section(name, command)) + "\n"
    return text


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that can be run, with its full name."""
    groups = getattr(command, "commands", None)
    if not groups or (getattr(command, "invoke_without_command", False) and " " in name):
        yield name, command
    if not groups:
        return
    for child, entry in groups.items():
        if not entry.hidden:
            yield from _commands(entry, f"{name} {child}")


def _is_lab(command: Any) -> bool:
    return command.callback.__module__.partition(".")[0] != "sooner"


def _section(name: str, command: Any) -> list[str]:
    """The Markdown lines of one command."""
    context = typer.Context(command, info_name=name)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    lines = [f"### {name}", "", _prose(command.help), "", "```", usage, "```", ""]
    rows = [row for parameter in command.params if (row := _row(parameter, context)) is not None]
    if rows:
        lines += ["| option | meaning | default |", "|---|---|---|", *rows]
    return lines


def _row(parameter: Any, context: Any) -> str | None:
    """A table row of an option or argument; `None` for hidden ones and `--help`."""
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return None
    if parameter.param_type_name == "argument":
        label = f"`{parameter.make_metavar(context)}`"
    else:
        label = ", ".join(f"`{flag}`" for flag in parameter.opts)
        if parameter.secondary_opts:
            label += " / " + ", ".join(f"`{flag}`" for flag in parameter.secondary_opts)
        elif not parameter.is_flag:
            label += f" `{parameter.make_metavar(context)}`"
    variables = parameter.envvar or ()
    variables = (variables,) if isinstance(variables, str) else variables
    meaning = _prose(getattr(parameter, "help", None))
    meaning += "".join(f" Environment: `{variable}`." for variable in variables)
    return f"| {_cell(label)} | {_cell(meaning)} | {_cell(_default(parameter))} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if parameter.param_type_name == "option" and parameter.secondary_opts:
        return f"`{(parameter.opts if value else parameter.secondary_opts)[0]}`"
    if (
        value is None
        or value is False
        or value == ""
        or value == ()
        or value == []
        or callable(value)
    ):
        return ""
    return f"`{value}`"


def _prose(text: str | None) -> str:
    """The help as Markdown paragraphs; angle brackets are no HTML."""
    paragraphs = (text or "").replace("\b", "").split("\n\n")
    joined = "\n\n".join(" ".join(part.split()) for part in paragraphs if part.strip())
    return joined.replace("<", "&lt;").replace(">", "&gt;")


def _cell(text: str) -> str:
    """A table's cell. GitHub and the site escape pipes in code differently, so HTML writes them."""
    text = re.sub(r"`([^`]*\|[^`]*)`", lambda span: f"<code>{html.escape(span[1])}</code>", text)
    return text.replace("\n\n", " ").replace("|", "&#124;")


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with `--check`; returns the exit code."""
    text = page()
    if "--check" in arguments:
        return 0 if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
