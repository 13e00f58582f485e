"""Ray Serve's request router with affinity: `affinity` says where, this keeps count."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from .affinity import ranked
from .exchange import PassedRequest


class AffinityRouter(RequestRouter):
    """Offers a request to the replica that has its key, unless that one is too busy.

    Ray's own mixins hand replicas to requests in the order in which those came, whoever asked for
    which; without them a request gets the replica that was chosen for it.

    Requests are counted here from the moment a replica is chosen, since Ray's counts lag behind a
    burst; where other routers send requests, too, Ray's are larger and count.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Take `imbalanced_threshold`, see `ranked`."""
        self._threshold = int(kwargs.get("imbalanced_threshold", 4))
        self._turn = 0
        self._chosen: dict[str, tuple[PendingRequest, ReplicaID]] = {}

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Returns replicas one by one, best first."""
        request = _request_of(pending_request)
        by_name = {item.replica_id.unique_id: item for item in candidate_replicas}
        # With nobody else, one that failed is asked again: it may have come back.
        names = [item for item in by_name if item not in request.avoid] or list(by_name)
        counts = self._counts()
        loads = {name: self._load(by_name[name], counts) for name in names}
        self._turn += 1
        order = ranked(request.key, loads, self._threshold, self._turn)
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True
            if order:
                first = by_name[order[0]].replica_id
                identity = pending_request.metadata.internal_request_id
                self._chosen[identity] = pending_request, first
        return [[by_name[name]] for name in order]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        self._chosen[pending_request.metadata.internal_request_id] = pending_request, replica_id

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        self._chosen.pop(internal_request_id, None)

    def _counts(self) -> dict[ReplicaID, int]:
        """Returns requests of each replica; those that were given up while they waited are
        forgotten.
        """
        cancelled = [
            name for name, (pending, _) in self._chosen.items() if pending.future.cancelled()
        ]
        for name in cancelled:
            del self._chosen[name]
        counts: dict[ReplicaID, int] = {}
        for _, replica in self._chosen.values():
            counts[replica] = counts.get(replica, 0) + 1
        return counts

    def _load(self, replica: RunningReplica, counts: dict[ReplicaID, int]) -> int:
        length = self.replica_queue_len_cache.get(replica.replica_id) or 0
        return max(length, counts.get(replica.replica_id, 0))


def _request_of(pending: PendingRequest | None) -> PassedRequest:
    first = pending.args[0] if pending is not None and pending.args else None
    return first if isinstance(first, PassedRequest) else PassedRequest("", "")
