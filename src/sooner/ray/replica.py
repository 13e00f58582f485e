"""A replica: one process of the cluster with one model, its engine and OpenAI's API over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import SoonerError

if TYPE_CHECKING:
    from ..serve.settings import ChatSettings

DEPLOYMENT = "replica"
HEADER = b"x-sooner-replica"
"""Header of an answer: who answered."""
METRICS_SECONDS = 10.0
"""What replicas may take to tell their metrics."""


class ChatReplica:
    """What `sooner serve` runs, as the ASGI application of a deployment.

    Args:
        load: loads the models, in the replica.
        model_name: the model as it was named.
        settings: of the server.

    Raises:
        SoonerError: as `load`; or the engine could not be warmed up.
    """

    def __init__(self, load: Callable[[], Any], model_name: str, settings: ChatSettings) -> None:
        from ray import serve

        from ..serve.chat_run import ChatServer

        self.name = str(serve.get_replica_context().replica_id.unique_id)
        self._chat = ChatServer(load(), model_name, settings)
        self._chat.start()
        while self._chat.thread.state == "warming":
            time.sleep(0.01)
        if self._chat.thread.fault is not None:
            raise SoonerError(f"the engine could not be warmed up ({self._chat.thread.fault})")

    def __serve_build_asgi_app__(self) -> Any:
        """Returns the application; its answers name the replica, its metrics are of all."""
        from fastapi.routing import APIRoute

        chat = self._chat.app
        chat.router.routes.insert(0, APIRoute("/metrics", self._all_metrics))

        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def named(message: Any) -> None:
                if message["type"] == "http.response.start":
                    headers = [*message.get("headers", ()), (HEADER, self.name.encode())]
                    message = {**message, "headers": headers}
                await send(message)

            await chat(scope, receive, named)

        return app

    async def metrics(self) -> tuple[str, str]:
        """Returns the replica's name and its own metrics."""
        return self.name, self._chat.metrics.text().decode()

    async def _all_metrics(self) -> Any:
        """Returns counters, gauges and histograms of all replicas, under a label of each."""
        from fastapi.responses import Response
        from ray import serve

        context = serve.get_replica_context()
        handle = serve.get_deployment_handle(DEPLOYMENT, context.app_name)
        coming = handle.broadcast("metrics")
        texts = await coming.results_async(timeout_s=METRICS_SECONDS, return_exceptions=True)
        known = dict(item for item in texts if isinstance(item, tuple)) or dict(
            [await self.metrics()]
        )
        return Response(merge_metrics(known), media_type="text/plain; version=0.0.4")

    async def check_health(self) -> None:
        """Ray replaces a replica for which this raises.

        Raises:
            RuntimeError: its engine has failed, or goes round no more.
        """
        if (status := self._chat.handler.status()) in ("failed", "stalled"):
            raise RuntimeError(f"the engine of replica '{self.name}' has {status}")

    def __del__(self) -> None:
        """Ray calls it once a replica that is taken away has answered what it had."""
        if (chat := getattr(self, "_chat", None)) is not None:
            chat.thread.close(0)
            chat.close()


def merge_metrics(texts: dict[str, str]) -> bytes:
    """Returns Prometheus' text format of several replicas as one, each family once.

    Args:
        texts: of each replica by its name, which becomes the label `replica`.
    """
    from prometheus_client import CollectorRegistry, Metric, generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    class Merged:
        def describe(self) -> list[Metric]:
            return []

        def collect(self) -> Iterator[Metric]:
            families: dict[str, Metric] = {}
            for name, text in sorted(texts.items()):
                for item in text_string_to_metric_families(text):
                    new = Metric(item.name, item.documentation, item.type)
                    family = families.setdefault(item.name, new)
                    for sample in item.samples:
                        labels = {**sample.labels, "replica": name}
                        family.samples.append(sample._replace(labels=labels))
            yield from families.values()

    registry = CollectorRegistry()
    registry.register(Merged())
    return bytes(generate_latest(registry))
