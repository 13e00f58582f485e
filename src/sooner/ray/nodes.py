"""Machines of a cluster: what an actor may take of them, and whether all of them are the same."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from ..errors import SoonerError
from ..storage import Store
from ..tasks.parse.settings import DEMO

LIGHT = 0.01
"""CPUs of what mostly waits for files: planning and writing. Ray Data starts nothing where all CPUs
are taken, and waits for ever without a word."""

CPUS = 0.2
"""What Ray counts for an actor: little enough that one whose machine is lost finds room elsewhere;
with less a model would only wait for others."""

SPARE = 0.1
"""CPUs of a machine that are left for what is light."""

PACKAGES = ("sooner", "sooner-miniatures", "sooner-lab", "ray", "torch", "transformers")

WAIT = 120.0
"""Seconds that a machine has to answer."""

Facts = Mapping[str, str]
"""What a machine says of itself, by what it is about."""

Resources = Mapping[str, float]
"""`CPU` and `GPU` of a machine, as Ray counts them."""


def gpus_of_actors(
    nodes: Sequence[Resources], actors: int, options: str, needs_gpu: bool = True
) -> float:
    """Returns the GPUs of each actor, one where there are any; of the CPUs it takes `CPUS`.

    Args:
        nodes: machines of the cluster.
        actors: with a model each.
        options: of the command line that say how many.
        needs_gpu: models go onto GPUs.

    Raises:
        SoonerError: there is no room, and Ray would wait for it for ever.
    """
    gpus = sum(node.get("GPU", 0.0) for node in nodes) if needs_gpu else 0.0
    if gpus and actors > gpus:
        raise SoonerError(
            f"{actors} models need a GPU each, and the cluster has {gpus:g}; ask for at most "
            f"{int(gpus)} with {options}, or give --device cpu"
        )
    cpus = [node.get("CPU", 0.0) for node in nodes]
    limit = sum(int(max(count - SPARE, 0.0) / CPUS + 1e-9) for count in cpus)
    if actors > limit:
        raise SoonerError(
            f"{actors} actors need {CPUS * actors:g} CPUs or more, and the cluster has "
            f"{sum(cpus):g}; ask for at most {max(limit, 1)} with {options}"
        )
    return 1.0 if gpus else 0.0


def check_nodes(paths: Sequence[str], model: str | None, store: Store | None = None) -> None:
    """Ask all machines of the connected cluster before a model is loaded, and refuse what differs.

    Args:
        paths: files and folders that each machine has to see; URLs are left out.
        model: folder or hub id; `None` for none.
        store: of the results, where each machine has to see a file that was written just now.

    Raises:
        SoonerError: a machine that differs, or does not answer.
    """
    paths = [path for path in paths if "://" not in path]
    if model not in (None, DEMO) and os.path.isdir(str(model)):  # the demo comes with a package
        paths.append(str(model))
    with ExitStack() as left:
        if store is not None:
            name = f".sooner/probe/{uuid.uuid4().hex}"
            if (folder := store.local_path()) is not None:
                paths.append(str(Path(folder).resolve() / name))
            store.write(name, b"probe")
            left.callback(store.remove, name)
        compare(make_probe()(paths), _probe_nodes(paths))


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
            if value != (known := here.get(about, "unknown")):
                raise SoonerError(
                    f"node '{node}' has {about} {value}, and this one has {known}; make them the "
                    "same, files under the same path, as on a shared file system or behind s3://"
                )


def make_probe() -> Callable[[Sequence[str]], Facts]:
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
            size = f"a file of {os.path.getsize(path)} bytes" if os.path.isfile(path) else "missing"
            facts[f"'{path}'"] = "a folder" if os.path.isdir(path) else size
        return facts

    packages = PACKAGES
    return answer


def _probe_nodes(paths: Sequence[str]) -> dict[str, Facts]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    answer = ray.remote(num_cpus=0, max_retries=1)(make_probe())
    coming = {}
    for node in ray.nodes():
        if node["Alive"]:
            pinned = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            name = f"{node['NodeManagerHostname']}:{node['NodeManagerPort']}"  # several on one host
            coming[name] = answer.options(scheduling_strategy=pinned).remote(paths)
    facts: dict[str, Facts] = {}
    for name, future in coming.items():
        try:
            facts[name] = ray.get(future, timeout=WAIT)
        except ray.exceptions.RayError as error:  # a timeout, too
            reason = " ".join(str(error).split())[-200:]
            raise SoonerError(
                f"node '{name}' did not answer ({reason}); look at it with `ray status`"
            ) from error
    return facts


def connected_nodes() -> list[Resources]:
    """Returns the machines of the connected cluster that are alive."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]
