"""What each stage may take of a cluster's CPUs, so that none of them starves another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import SoonerError

LIGHT = 0.01
"""CPUs of what mostly waits for files: reading, planning, writing. Ray Data starts no reading where
all CPUs are taken, and waits for ever without a word."""

MIN_SHARE = 0.2
"""Share of a CPU below which a parser or drafter would only wait for others."""

SPARE = 0.1
"""CPUs of a machine that are left for what is light."""


@dataclass(frozen=True)
class RayNode:
    """Holds a machine of the cluster, as Ray counts it."""

    name: str
    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True)
class Shares:
    """Holds actors of each kind, and CPUs and GPUs of one.

    Attributes:
        parsers, drafters: how many.
        heavy: CPUs of a parser, and of a drafter.
        gpus: GPUs of a parser.
        light: CPUs of everything else.
    """

    parsers: int
    drafters: int
    heavy: float
    gpus: float = 0.0
    light: float = LIGHT

    @classmethod
    def plan(
        cls, nodes: Sequence[RayNode], parsers: int | None = None, has_drafter: bool = True
    ) -> Shares:
        """Returns shares that the machines have room for, also when one of several is lost.

        Args:
            nodes: of the cluster.
            parsers: by default one for each GPU, or for each machine where there is none.
            has_drafter: there is a drafter for each parser.

        Raises:
            SoonerError: there is no room, and Ray would wait for it for ever.
        """
        cpus, gpus = sum(item.cpus for item in nodes), sum(item.gpus for item in nodes)
        count = parsers or int(gpus) or max(len(nodes), 1)
        draft_count = count if has_drafter else 0
        share = 1.0 if gpus else 0.0
        if share and count > gpus:
            raise SoonerError(
                f"{count} parsers need a GPU each, and the cluster has {gpus:g}; ask for at most "
                f"{int(gpus)} with --actors"
            )
        heavy = _largest(nodes, count + draft_count)
        if heavy is None:
            limit = sum(int(item / MIN_SHARE) for item in _room_left(nodes))
            raise SoonerError(
                f"{count} parsers and {draft_count} drafters need "
                f"{MIN_SHARE * (count + draft_count):g} CPUs or more, and the cluster has "
                f"{cpus:g}, of which reading needs some; ask for at most {max(limit // 2, 1)} with "
                "--actors"
            )
        return cls(count, draft_count, heavy, share)


@dataclass(frozen=True)
class ReplicaShare:
    """Holds cPUs and GPUs of one replica."""

    cpus: float
    gpus: float = 0.0


def replica_share(nodes: Sequence[RayNode], replicas: int, needs_gpu: bool = True) -> ReplicaShare:
    """Returns what each of so many replicas may take, so that all of them find room, also when one
    of several machines is lost.

    Args:
        nodes: of the cluster.
        needs_gpu: each takes a GPU, where the cluster has any.

    Raises:
        SoonerError: there is no room, and Ray would wait for it for ever.
    """
    gpus = sum(item.gpus for item in nodes) if needs_gpu else 0.0
    if gpus and replicas > gpus:
        raise SoonerError(
            f"{replicas} replicas need a GPU each, and the cluster has {gpus:g}; ask for at most "
            f"{int(gpus)} with --replicas and --max-replicas, or give --device cpu"
        )
    if (share := _largest(nodes, replicas)) is not None:
        return ReplicaShare(share, 1.0 if gpus else 0.0)
    limit = max(sum(int(item / MIN_SHARE + 1e-9) for item in _room_left(nodes)), 1)
    raise SoonerError(
        f"{replicas} replicas need {MIN_SHARE * replicas:g} CPUs or more, and the cluster has "
        f"{sum(item.cpus for item in nodes):g}; ask for at most {limit} with --replicas and "
        "--max-replicas"
    )


def check_free(share: ReplicaShare, replicas: int, cpus: float, gpus: float) -> None:
    """Refuse what others leave no room for.

    Args:
        replicas: that there always are.
        cpus, gpus: of the cluster that nobody has taken.

    Raises:
        SoonerError: there is too little, and Ray would wait until others end.
    """
    for kind, each, free in (("CPUs", share.cpus, cpus), ("GPUs", share.gpus, gpus)):
        if each * replicas > free + 1e-9:
            raise SoonerError(
                f"--replicas {replicas} takes {each * replicas:g} {kind} of the cluster, and "
                f"others leave {free:g}; end what runs there (`ray status` tells), or ask for fewer"
            )


def _room_left(nodes: Sequence[RayNode]) -> list[float]:
    """Returns CPUs of each machine without what is light, and without the largest one of several:
    an actor whose machine is lost is started on another, and what it was doing waits for that.
    """
    room = sorted((max(node.cpus - SPARE, 0.0) for node in nodes), reverse=True)
    return room[1:] if len(room) > 1 else room


def _largest(nodes: Sequence[RayNode], actors: int) -> float | None:
    """Returns the largest equal share of CPUs, 1 at most, with which all actors find room; `None`
    if they have none even with the smallest.
    """
    room = _room_left(nodes)
    for percent in range(100, round(100 * MIN_SHARE) - 1, -5):
        if sum(int(free / (percent / 100) + 1e-9) for free in room) >= actors:
            return percent / 100
    return None
