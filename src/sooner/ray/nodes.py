"""Looks at every machine of a cluster before a model is loaded: versions, and what it can see."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import SoonerError
from ..storage import Store
from ..tasks.parse.identity import DEMO

Facts = Mapping[str, str]
"""What a machine says of itself, by what it is about."""

PACKAGES = ("sooner", "sooner-miniatures", "sooner-lab", "ray", "torch", "transformers")

WAIT = 120.0
"""Seconds that a machine has to answer."""

GONE = "can't be seen"


def asker() -> Callable[[Sequence[str]], Facts]:
    """Returns the function that each machine runs, given paths.

    It stands in no module, so Ray sends its code along: where `sooner` is missing or older, that is
    an answer and not an error.
    """

    def answer(paths: Sequence[str]) -> Mapping[str, str]:
        import os
        import platform
        from importlib import metadata

        facts = {"Python": platform.python_version()}
        for package in packages:
            try:
                facts[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                facts[package] = "not installed"
        for path in paths:
            size = f"a file of {os.path.getsize(path)} bytes" if os.path.isfile(path) else gone
            facts[f"'{path}'"] = "a folder" if os.path.isdir(path) else size
        return facts

    packages, gone = PACKAGES, GONE
    return answer


def compare(here: Facts, there: Mapping[str, Facts]) -> None:
    """Refuse machines that differ from this one.

    Args:
        here: facts of the driver's machine.
        there: of the others, by name.

    Raises:
        SoonerError: the first difference, with the machine and both values.
    """
    for node, facts in there.items():
        for about, value in facts.items():
            known = here.get(about, "unknown")
            if value == known:
                continue
            if value == GONE:
                raise SoonerError(
                    f"node '{node}' can't see {about}; put it where every node sees it under the "
                    "same path, as on a shared file system or behind s3://"
                )
            raise SoonerError(
                f"node '{node}' has {about} {value}, and this one has {known}; make them the "
                "same, or results would depend on which machine did what"
            )


def check_nodes(store: Store, inputs: Sequence[str], model: str | None) -> None:
    """Ask all machines of the connected cluster, and refuse what differs.

    Args:
        store: of the results, where each machine has to see a file that was written just now.
        inputs: files and folders that are to be read.
        model: as it was asked for; `None` for none.

    Raises:
        SoonerError: a machine that differs, or does not answer.
    """
    folder, name = store.local_path(), f".sooner/probe/{uuid.uuid4().hex}"
    paths = [path for path in inputs if "://" not in path]
    if folder is not None:
        paths.append(str(Path(folder).resolve() / name))
    store.write(name, b"probe")
    try:
        # The demo comes with a package, wherever that is.
        check_model_nodes(paths, "" if model in (None, DEMO) else str(model))
    finally:
        store.remove(name)


def check_model_nodes(paths: Sequence[str], model: str) -> None:
    """As `check_nodes`, where nothing is written.

    Args:
        paths: files and folders that each machine has to see.
        model: folder or hub id; empty for one that comes with a package.

    Raises:
        SoonerError: a machine that differs, or does not answer.
    """
    all_paths = [*paths, *([model] if os.path.isdir(model) else [])]
    compare(asker()(all_paths), _ask_nodes(all_paths))


def _ask_nodes(paths: Sequence[str]) -> dict[str, Facts]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    answer = ray.remote(num_cpus=0, max_retries=1)(asker())
    coming = {}
    for node in ray.nodes():
        if node["Alive"]:
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            coming[node_name(node)] = answer.options(scheduling_strategy=pinned).remote(paths)
    facts: dict[str, Facts] = {}
    for name, future in coming.items():
        try:
            facts[name] = ray.get(future, timeout=WAIT)
        except ray.exceptions.GetTimeoutError:
            raise SoonerError(
                f"node '{name}' did not answer within {WAIT:g} s; look at it with `ray status`"
            ) from None
        except ray.exceptions.RayError as error:
            reason = " ".join(str(error).split())[-200:]
            raise SoonerError(f"node '{name}' could not be asked: {reason}") from error
    return facts


def node_name(node: Mapping[str, Any]) -> str:
    """Returns how a machine is told: its name and port, since several may be on one host."""
    return f"{node['NodeManagerHostname']}:{node['NodeManagerPort']}"
