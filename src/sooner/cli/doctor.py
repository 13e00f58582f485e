"""`sooner doctor`: versions, devices, what is installed and what each extra would add."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Callable
from typing import Any

import typer

from .. import __version__
from ..plugins import LAB


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="doctor")(doctor)


def doctor() -> None:
    """Print versions, devices, what is installed and what each extra would add."""
    for title, rows in (
        ("versions", versions()),
        ("devices", _safely(devices)),
        ("miniatures", _safely(installed_miniatures)),
        ("video", _safely(codecs)),
        ("extras", extras()),
    ):
        typer.echo(title)
        width = max((len(name) for name, _ in rows), default=0)
        for name, told in rows:
            typer.echo(f"  {name:<{width}}  {told}")


Rows = list[tuple[str, str]]


def versions() -> Rows:
    """This package and its lab, Python, and what the package needs."""
    needed = [name for name, extra in requirements("sooner") if extra is None]
    lab = installed(LAB) or f"missing: pip install {LAB} (miniatures, benchmarks, data sets)"
    rows = [("sooner", __version__), (LAB, lab), ("python", platform.python_version())]
    return rows + [(name, installed(name) or "missing: pip install " + name) for name in needed]


def devices() -> Rows:
    """Processors, threads and accelerators, as torch sees them."""
    import torch

    rows = [
        ("cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"),
        ("torch build", str(torch.__version__)),
        ("default", "cuda" if torch.cuda.is_available() else "cpu"),
    ]
    for index in range(torch.cuda.device_count()):
        one: Any = torch.cuda.get_device_properties(index)
        rows.append((f"cuda:{index}", f"{one.name}, {one.total_memory / 2**30:.0f} GiB"))
    if torch.cuda.device_count() == 0:
        rows.append(("cuda", "no device; everything runs on the CPU"))
    return rows


def installed_miniatures() -> Rows:
    """The miniatures, and whether their weights are here."""
    from .. import miniatures

    rows = []
    for name in miniatures.names():
        small = miniatures.find(name)
        missing = [part for part, path in small.parts.items() if not path.is_file()]
        rows.append((name, f"without {', '.join(missing)}" if missing else "complete"))
    return rows


def codecs() -> Rows:
    """Which of the usual video codecs this PyAV decodes."""
    import av

    rows = []
    for name in ("h264", "hevc", "vp9", "av1", "mpeg4", "mjpeg"):
        try:
            av.Codec(name, "r")
            rows.append((name, "decodes"))
        except ValueError:
            rows.append((name, "missing from this PyAV"))
    return rows


def extras() -> Rows:
    """What each extra of the package and its lab holds, and what of it is here."""
    rows: dict[str, list[str]] = {}
    for whole in ("sooner", LAB):
        for name, extra in requirements(whole):
            if extra is not None:
                told = f"{name} {installed(name) or '(missing)'}"
                rows.setdefault(f"{whole}[{extra}]", []).append(told)
    return [(extra, ", ".join(names) + _hint(extra, names)) for extra, names in rows.items()]


def _hint(extra: str, names: list[str]) -> str:
    is_whole = not any(name.endswith("(missing)") for name in names)
    return "" if is_whole else f"; pip install '{extra}' adds what is missing"


def requirements(whole: str) -> list[tuple[str, str | None]]:
    """`(package, extra or None)` of everything that a distribution's installed metadata names."""
    try:
        lines = importlib.metadata.requires(whole) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"""extra\s*==\s*['"]([\w-]+)""", line)
        if name:
            found.append((name.group(), extra.group(1) if extra else None))
    return found


def installed(name: str) -> str | None:
    """The version of a package, or `None`."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _safely(look: Callable[[], Rows]) -> Rows:
    """What `look` returns, or its error as a text: one failed check must not end the report."""
    try:
        return look()
    except Exception as error:
        return [("unknown", f"{type(error).__name__}: {' '.join(str(error).split())}")]
