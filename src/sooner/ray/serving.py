"""`sooner serve --ray`: replicas of the server as an application of Ray Serve.

Each replica is the ASGI application of `sooner serve`. Ray Serve's proxy on the head passes
requests on, with `routing.SessionMiddleware` around it and `routing.AffinityRouter` behind it.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ..errors import SoonerError
from ..interrupts import ended_as_interrupted
from ..serve.settings import ChatSettings, ReplicaSettings
from .cluster import LOCAL, connected, silenced
from .nodes import CPUS, check_nodes, connected_nodes, gpus_of_actors

logger = logging.getLogger("sooner.serve")

DEPLOYMENT = "replica"
HEADER = "x-sooner-replica"
"""Header of an answer: who answered."""
BODIES = 128
"""Pages of the object store for bodies of requests, see `cluster.connected`."""
PROXY = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "sooner.ray.routing.middlewares",
    # Where all cores are busy, a proxy takes longer to start than the 5 s that Ray gives it.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
}
"""What Ray Serve's processes find in their environment."""
PROBES = 16
"""Requests of a replica besides those that it decodes or queues: for health and metrics."""
HEALTH_SECONDS = 2.0
"""Between two looks at a replica by Ray's controller."""
DRAIN_SECONDS = 5.0
"""What a replica may take to end beyond the grace of requests."""


@dataclass(frozen=True)
class RayServer:
    """Holds OpenAI's API over replicas of one model.

    Attributes:
        load: loads the models in a replica; sent there, so it holds no model.
        model: as it was named; clients may use the name.
        settings: of each replica; host and port are those of Ray Serve's proxy.
        replicas: how many.
        address: of the cluster, see `connected`.
        model_files: folder or hub id of it that each machine has to have; by default none.
        paths: other folders that each machine has to see.
        needs_gpu: a replica takes a whole GPU, where the cluster has any.
        on_stage: told what is being done before requests are taken.
        on_ready: told the address once requests are taken.
        debug: let Ray and replicas print.
    """

    load: Callable[[], Any]
    model: str
    settings: ChatSettings
    replicas: ReplicaSettings = field(default_factory=ReplicaSettings)
    address: str = LOCAL
    model_files: str | None = None
    paths: Sequence[str] = ()
    needs_gpu: bool = True
    on_stage: Callable[[str], None] = lambda stage: None
    on_ready: Callable[[str], None] = lambda url: None
    debug: bool = False

    @property
    def name(self) -> str:
        """Returns the name of the application in the cluster."""
        name = self.settings.served_model_name or self.model
        return f"sooner-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-')}"

    def run(self) -> None:
        """Serve until the process is told to stop (SIGINT, SIGTERM); then take the application
        away, which answers what is under way.

        Raises:
            SoonerError: no cluster, no room in it, a machine that differs, a model that can't be
                loaded; or the address is taken.
        """
        from ..serve.run import bind

        with bind(self.settings) as listening:
            port = listening.getsockname()[1]  # 0 takes a free one
        # When it ends before it serves, what was deployed is taken away.
        with ended_as_interrupted():
            self.on_stage("ray")
            with connected(self.address, BODIES, debug=self.debug, environment=PROXY) as is_managed:
                options = "--replicas and --max-replicas"
                count, needs_gpu = self.replicas.maximum, self.needs_gpu
                gpus = gpus_of_actors(connected_nodes(), count, options, needs_gpu)
                if not is_managed:
                    check_nodes(self.paths, self.model_files)
                self.on_stage("load")
                with self._deployed(gpus, is_managed, port) as url:
                    self.on_ready(url)
                    _wait_for_term()

    @contextmanager
    def _deployed(self, gpus: float, is_managed: bool, port: int) -> Iterator[str]:
        """The application's address, while all replicas that there are always are ready."""
        from ray import serve

        _quiet(self.debug)
        client = serve.context._get_global_client(raise_if_no_controller_running=False)
        if not is_managed and client is not None:
            raise SoonerError(
                "the cluster runs Ray Serve already, whose proxy listens elsewhere; end it with "
                "`serve shutdown`, or leave --ray-address out"
            )
        http = {"host": self.settings.host, "port": port}
        serve.start(proxy_location="HeadOnly", http_options=http)
        _quiet(self.debug)  # `start` has set it anew
        try:
            try:
                serve.run(self._application(serve, gpus), name=self.name, route_prefix="/")
            except RuntimeError as error:
                raise SoonerError(self._failure(serve, error)) from None
            host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
            yield f"http://{host}:{port}"
        finally:
            # Ray complains of calls that its own end cuts off, and of a cluster that is no more.
            with silenced(self.debug), suppress(Exception):
                self._delete(serve)
                if not is_managed:
                    serve.shutdown()

    def _delete(self, serve: Any) -> None:
        """Take the application away; its replicas answer what they have, for the grace."""
        serve.delete(self.name, _blocking=False)
        end = time.monotonic() + self.settings.grace_seconds + DRAIN_SECONDS
        while self.name in serve.status().applications and time.monotonic() < end:
            time.sleep(0.1)

    def _application(self, serve: Any, gpus: float) -> Any:
        from ray.serve.config import AutoscalingConfig, RequestRouterConfig

        settings, replicas = self.settings, self.replicas
        grace = settings.grace_seconds + DRAIN_SECONDS
        if replicas.maximum == replicas.replicas:
            count: dict[str, Any] = {"num_replicas": replicas.replicas}
        else:
            scaling = AutoscalingConfig(
                min_replicas=replicas.replicas, initial_replicas=replicas.replicas,
                max_replicas=replicas.maximum, target_ongoing_requests=settings.max_rows,
                upscale_delay_s=replicas.upscale_seconds,
                downscale_delay_s=replicas.downscale_seconds,
            )  # fmt: skip
            count = {"autoscaling_config": scaling}
        deployment = serve.deployment(
            serve.ingress()(ChatReplica),
            name=DEPLOYMENT,
            max_ongoing_requests=settings.max_rows + settings.max_queue + PROBES,
            ray_actor_options={"num_cpus": CPUS, "num_gpus": gpus},
            # Of the first ones: what a model lacks, it lacks each time.
            max_constructor_retry_count=1,
            health_check_period_s=HEALTH_SECONDS,
            graceful_shutdown_timeout_s=grace,
            graceful_shutdown_wait_loop_s=0.2,
            request_router_config=RequestRouterConfig(
                request_router_class="sooner.ray.routing:AffinityRouter",  # type: ignore[arg-type]
                request_router_kwargs={"imbalanced_threshold": replicas.imbalanced_threshold},
            ),
            **count,
        )
        return deployment.bind(self.load, self.model, settings)

    def _failure(self, serve: Any, error: Exception) -> str:
        """Returns why replicas could not be started, in a line."""
        text = str(error)
        with suppress(Exception):
            deployments = serve.status().applications[self.name].deployments.values()
            text = "\n".join(deployment.message for deployment in deployments) or text
        if errors := re.findall(r"SoonerError: (.+)", text):
            return str(errors[-1]).strip()
        reason = (re.findall(r"^\s*([\w.]+Error: .+)", text, re.MULTILINE) or [text])[-1]
        return f"no replica could be started: {' '.join(reason.split())[:300]}; --debug shows more"


def _wait_for_term() -> None:
    """Wait for SIGTERM, by which servers are told to stop; Ctrl-C is `KeyboardInterrupt`."""
    signals: list[int] = []
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    while not signals:
        time.sleep(0.1)


def _quiet(debug: bool) -> None:
    if not debug:
        logging.getLogger("ray.serve").setLevel(logging.CRITICAL)


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

        from ..serve.model import ChatServer

        self.name = str(serve.get_replica_context().replica_id.unique_id)
        self._chat = ChatServer(load(), model_name, settings)
        self._chat.handler.start()
        while self._chat.thread.state == "warming":
            time.sleep(0.01)
        if self._chat.thread.fault is not None:
            raise SoonerError(f"the engine could not be warmed up ({self._chat.thread.fault})")

    def __serve_build_asgi_app__(self) -> Any:
        """Returns the application; its answers name the replica."""
        from starlette.datastructures import MutableHeaders

        chat = self._chat.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            async def named(message: Any) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message)[HEADER] = self.name
                await send(message)

            await chat(scope, receive, named)

        return app

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
