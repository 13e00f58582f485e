"""Ray Serve's request router with affinity: `affinity` says where to."""

from __future__ import annotations

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from .affinity import rank


class AffinityRouter(RequestRouter):
    """Offers a request to the replica of its session, unless that one is too busy.

    Ray's own mixins hand replicas to requests in the order in which those came, whoever asked for
    which; without them a request gets the replica that was chosen for it.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Take `imbalanced_threshold`, see `rank`."""
        self._threshold = int(kwargs.get("imbalanced_threshold", 4))

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Returns replicas one by one, best first."""
        names = {item.replica_id.unique_id: item for item in candidate_replicas}
        lengths = self.replica_queue_len_cache
        loads = {name: lengths.get(item.replica_id) or 0 for name, item in names.items()}
        if pending_request is None:
            return [[names[name]] for name in rank("", loads, self._threshold)]
        pending_request.routing_context.should_backoff = True  # Ray tries in a busy loop otherwise
        session = pending_request.metadata.session_id
        return [[names[name]] for name in rank(session, loads, self._threshold)]
