"""Runs tests on another version of transformers, which is put before the environment's.

Only transformers is downloaded, and what it needs in another version than the environment has;
torch is not. Without a registry the check is skipped, and says so.

usage:
    python tools/transformers_version.py lowest newest [--lane light|core]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distributions, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-transformers"
"""Versions, a folder each."""

LIGHT = (
    "qwen2_5_vl", "qwen3_vl", "llava_onevision", "gemma3", "internvl", "idefics3", "smolvlm",
    "mistral3", "paligemma", "paddleocr_vl", "glm_ocr", "janus", "lfm2_vl",
)  # fmt: skip
"""Types whose trees, or chains, are held against their own `generate` in the light lane."""

LANES = {
    "light": [
        "tests/models/test_zoo.py",
        "-k",
        f"counts or equals_generate and ({' or '.join(f'{name}]' for name in LIGHT)})",
    ],
    "core": ["-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "--slowest-files", "20"],
}
"""Arguments of pytest beside the marker of the core lane."""


def allowed() -> SpecifierSet:
    """Returns the versions that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    parsed = map(Requirement, project["dependencies"])
    return next(entry.specifier for entry in parsed if entry.name == "transformers")


def released() -> list[Version]:
    """Returns the registry's releases in ascending order; none if it can't be reached."""
    command = [sys.executable, "-m", "pip", "index", "versions", "transformers", "--retries", "1"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    line = re.search(r"^Available versions: (.+)$", result.stdout, re.M)
    return sorted(map(Version, line[1].split(", "))) if line else []


def resolve(name: str, releases: list[Version]) -> str:
    """Returns the version that `lowest` (that is allowed), `newest` (of all) or a number means."""
    if name == "newest":
        return str(releases[-1])
    return str(min(allowed().filter(releases))) if name == "lowest" else str(Version(name))


def needs(folder: Path) -> Iterator[str]:
    """Yields requirements of what is in a folder which neither it nor the environment meets."""
    here: dict[str, Distribution] = {
        canonicalize_name(entry.name): entry for entry in distributions(path=[str(folder)])
    }
    for text in here["transformers"].requires or ():
        need = Requirement(text)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(need.name)
        try:
            present = here[name].version if name in here else version(name)
        except PackageNotFoundError:
            present = "0"
        if not need.specifier.contains(present, prereleases=True):
            yield f"{need.name}{need.specifier}"


def install(number: str) -> Path | None:
    """Returns the folder that holds a version; `None` if it can't be downloaded."""
    folder = FOLDER / number
    stamp = folder / ".complete"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    pip += ["--target", str(folder)]
    if not stamp.exists():
        if subprocess.run([*pip, f"transformers=={number}"], check=False).returncode:
            return None
        missing = list(needs(folder))
        if missing and subprocess.run([*pip, *missing], check=False).returncode:
            return None
        stamp.touch()
    return folder


def check(number: str, lane: str) -> int:
    """Returns the exit status of a lane's tests on a version."""
    if number == version("transformers"):
        print(f"transformers {number}: skipped, `make test` runs on it")
        return 0
    folder = install(number)
    if folder is None:
        print(f"transformers {number}: skipped, it can't be downloaded")
        return 0
    print(f"transformers {number}: the {lane} lane", flush=True)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    tests = [sys.executable, "-m", "pytest", "-m", "not slow and not soak", *LANES[lane]]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    status = subprocess.run(tests, env=environment, cwd=ROOT, check=False).returncode
    if status and not allowed().contains(number):
        print(f"transformers {number}: failed, but pyproject.toml allows {allowed()} only")
        return 0
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", help="lowest, newest, or a number")
    parser.add_argument("--lane", choices=LANES, default="light")
    args = parser.parse_args()
    releases = released()
    if not releases:
        print(f"transformers {', '.join(args.versions)}: skipped, the registry can't be reached")
        return 0
    numbers = dict.fromkeys(resolve(name, releases) for name in args.versions)
    return max(check(number, args.lane) for number in numbers)


if __name__ == "__main__":
    sys.exit(main())
