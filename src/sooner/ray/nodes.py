"""Looks at every machine of a cluster before a model is loaded: versions, and what it can see."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class NodeQuestion:
    """What the machines are asked.

    Attributes:
        paths: inputs, and the model's folder.
        probe: a file of the output folder that was written just now, and its content; empty for a
            folder behind a URL.
        model: folder or hub id; empty for none.
    """

    paths: Sequence[str] = ()
    probe: tuple[str, str] = ("", "")
    model: str = ""
    packages: Sequence[str] = field(default=PACKAGES)


def asker() -> Callable[[dict[str, Any]], Facts]:
    """Returns the function that each machine runs.

    It stands in no module, so Ray sends its code along: where `sooner` is missing or older, that is
    an answer and not an error.
    """

    def answer(question: dict[str, Any]) -> Mapping[str, str]:
        import hashlib
        import os
        import platform
        from importlib import metadata

        def version(package: str) -> str:
            try:
                return metadata.version(package)
            except metadata.PackageNotFoundError:
                return "not installed"

        def path(name: str) -> str:
            if os.path.isdir(name):
                return "a folder"
            return f"a file of {os.path.getsize(name)} bytes" if os.path.isfile(name) else gone

        def model(name: str) -> str:
            """Returns the files of a model: names and sizes, and what is in the small ones."""
            folder = name if os.path.isdir(name) else hub_folder(name)
            if not folder:
                return gone
            digest = hashlib.sha256()
            for entry in sorted(os.listdir(folder)):
                file = os.path.join(folder, entry)
                if os.path.isfile(file):
                    size = os.path.getsize(file)
                    digest.update(f"{entry} {size}\n".encode())
                    with open(file, "rb") as data:
                        digest.update(data.read(1 << 20))
            return digest.hexdigest()[:16]

        def hub_folder(name: str) -> str:
            try:
                from huggingface_hub import try_to_load_from_cache

                path = try_to_load_from_cache(name, "config.json")
            except Exception:
                return ""
            return os.path.dirname(path) if isinstance(path, str) else ""

        facts = {"Python": platform.python_version()}
        facts.update((package, version(package)) for package in question["packages"])
        facts.update((f"'{name}'", path(name)) for name in question["paths"])
        place, content = question["probe"]
        if place:
            try:
                with open(place, encoding="utf-8") as file:
                    seen = file.read()
            except OSError:
                seen = ""
            facts["output"] = "there" if seen == content else gone
        if question["model"]:
            facts[f"model '{question['model']}'"] = model(question["model"])
        return facts

    gone = GONE
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
                    f"node '{node}' can't see {_named(about)}; put it where every node sees it "
                    "under the same path, as on a shared file system or behind s3://"
                )
            raise SoonerError(
                f"node '{node}' has {about} {value}, and this one has {known}; make them the "
                "same, or results would depend on which machine did what"
            )


def _named(about: str) -> str:
    return "the output folder" if about == "output" else about


def check_nodes(store: Store, inputs: Sequence[str], model: str | None) -> None:
    """Ask all machines of the connected cluster, and refuse what differs.

    Args:
        store: of the results.
        inputs: files and folders that are to be read.
        model: as it was asked for; `None` for none.

    Raises:
        SoonerError: a machine that differs, or does not answer.
    """
    folder = store.local_path()
    token = uuid.uuid4().hex
    name = f".sooner/probe/{token}"
    paths = [path for path in inputs if "://" not in path]
    place = str(Path(folder).resolve() / name) if folder is not None else ""
    if model == DEMO:  # it comes with a package, wherever that is
        model = None
    question = NodeQuestion(paths, (place, token), model or "")
    store.write(name, token.encode())
    try:
        here = asker()(vars(question))
        compare(here, _ask_nodes(question))
    finally:
        store.remove(name)


def check_model_nodes(paths: Sequence[str], model: str) -> None:
    """As `check_nodes`, where nothing is written.

    Args:
        paths: folders that each machine has to see.
        model: folder or hub id; empty for one that comes with a package.

    Raises:
        SoonerError: a machine that differs, or does not answer.
    """
    question = NodeQuestion(paths, model=model)
    compare(asker()(vars(question)), _ask_nodes(question))


def _ask_nodes(question: NodeQuestion) -> dict[str, Facts]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    answer = ray.remote(num_cpus=0, max_retries=1)(asker())
    coming = {}
    for node in ray.nodes():
        if node["Alive"]:
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            coming[node_name(node)] = answer.options(scheduling_strategy=pinned).remote(
                dict(vars(question))
            )
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
