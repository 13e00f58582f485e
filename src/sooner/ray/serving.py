"""`sooner serve --ray`: replicas in a cluster as an application of Ray Serve, the front here."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import SoonerError
from ..interrupts import ended_as_interrupted
from ..serve.settings import ChatSettings, ReplicaSettings
from .cluster import LOCAL, MISSING, connected, hushed
from .exchange import Ack, Head, PassedRequest
from .replica import ChatReplica, ReplicaReport
from .shares import ReplicaShare, check_free, replica_share

if TYPE_CHECKING:
    from .front import Front

logger = logging.getLogger("sooner.serve")

BODIES = 128
"""Pages of the object store for bodies of requests, see `cluster.local_options`."""
REPORT_SECONDS = 10.0
"""What replicas may take to say how they are."""
HEALTH_SECONDS = 2.0
"""Between two looks at a replica by Ray's controller."""
ROOM_SECONDS = 5.0
"""For a cluster to learn that somebody has ended."""
DRAIN_SECONDS = 5.0
"""What a replica may take to end beyond the grace of requests."""
DEPLOYMENT = "replica"


@dataclass(frozen=True)
class RayServer:
    """OpenAI's API over replicas of one model.

    Attributes:
        load: loads the models in a replica; sent there, so it holds no model.
        model: as it was named; clients may use the name.
        settings: of the front and of each replica.
        replicas: how many.
        address: of the cluster, see `connected`.
        model_files: folder or hub id of it that each machine has to have; by default none.
        paths: other folders that each machine has to see.
        needs_gpu: a replica takes a whole GPU, where the cluster has any.
        on_stage: told what is being done before requests are taken.
        on_ready: told the address once requests are taken.
        on_stop: told how many requests are under way when the server is told to stop.
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
    on_stop: Callable[[int], None] = lambda count: None
    debug: bool = False

    @property
    def name(self) -> str:
        """Returns the name of the application in the cluster."""
        name = self.settings.served_model_name or self.model
        return f"sooner-{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('-')}"

    def run(self) -> None:
        """Serve until the process is told to stop (SIGINT, SIGTERM); then answer what is under way,
        and take the application away.

        Raises:
            SoonerError: no cluster, no room in it, a machine that differs, a model that can't be
                loaded; or the address is taken.
        """
        from ..serve.run import bind, url

        # When it ends before it serves, what was deployed is taken away.
        with bind(self.settings) as listening, ended_as_interrupted():
            self.on_stage("ray")
            with connected(self.address, BODIES, debug=self.debug) as cluster:
                share = replica_share(cluster.nodes, self.replicas.maximum, self.needs_gpu)
                if not cluster.is_managed:
                    from .nodes import check_model_nodes

                    check_model_nodes(self.paths, self.model_files or "")
                self.on_stage("load")
                with self._deployed(share, cluster.is_managed) as handle:
                    self._front(handle, [listening], partial(self.on_ready, url(listening)))

    @contextmanager
    def _deployed(self, share: ReplicaShare, is_managed: bool) -> Iterator[Any]:
        """The application's handle, while all replicas that there are always are ready."""
        serve = import_serve(self.debug)
        was_there = not is_managed and _is_running()
        if was_there and self.name in serve.status().applications:
            raise SoonerError(
                f"the cluster has an application '{self.name}' already; give another "
                "--served-model-name, or take that one away with serve.delete"
            )
        if not is_managed:
            _wait_for_room(share, self.replicas.replicas)
        serve.start(proxy_location="Disabled")
        _quiet(self.debug)  # `start` has set it anew
        try:
            yield self._run(serve, share)
        finally:
            # Ray complains of calls that its own end cuts off, and of a cluster that is no more.
            with hushed(self.debug), suppress(Exception):
                serve.delete(self.name)
                if not (is_managed or was_there or serve.status().applications):
                    serve.shutdown()

    def _run(self, serve: Any, share: ReplicaShare) -> Any:
        try:
            return serve.run(self._application(serve, share), name=self.name, route_prefix=None)
        except RuntimeError as error:
            raise SoonerError(self._failure(serve, error)) from None

    def _application(self, serve: Any, share: ReplicaShare) -> Any:
        from ray.serve.config import AutoscalingConfig, RequestRouterConfig

        settings, replicas = self.settings, self.replicas
        grace = settings.grace_seconds + DRAIN_SECONDS
        if replicas.maximum == replicas.replicas:
            count: dict[str, Any] = {"num_replicas": replicas.replicas}
        else:
            count = {
                "autoscaling_config": AutoscalingConfig(
                    min_replicas=replicas.replicas,
                    initial_replicas=replicas.replicas,
                    max_replicas=replicas.maximum,
                    target_ongoing_requests=settings.max_rows,
                    upscale_delay_s=replicas.upscale_seconds,
                    downscale_delay_s=replicas.downscale_seconds,
                )
            }
        deployment = serve.deployment(
            ChatReplica,
            name=DEPLOYMENT,
            max_ongoing_requests=settings.max_rows + settings.max_queue,
            ray_actor_options={"num_cpus": share.cpus, "num_gpus": share.gpus},
            # Of the first ones: what a model lacks, it lacks each time.
            max_constructor_retry_count=1,
            health_check_period_s=HEALTH_SECONDS,
            graceful_shutdown_timeout_s=grace,
            graceful_shutdown_wait_loop_s=0.2,
            request_router_config=RequestRouterConfig(
                request_router_class="sooner.ray.router:AffinityRouter",  # type: ignore[arg-type]
                request_router_kwargs={"imbalanced_threshold": replicas.imbalanced_threshold},
            ),
            **count,
        )
        # Who may ask, and where, is the front's; a secret stays in its process.
        inner = replace(settings, host="127.0.0.1", port=0, token=None)
        return deployment.bind(self.load, self.model, inner)

    def _failure(self, serve: Any, error: Exception) -> str:
        """Returns why replicas could not be started, in a line."""
        text = str(error)
        with suppress(Exception):
            application = serve.status().applications[self.name]
            text = (
                "\n".join(deployment.message for deployment in application.deployments.values())
                or text
            )
        errors = re.findall(r"SoonerError: (.+)", text)
        if errors:
            return str(errors[-1]).strip()
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if re.match(r"[\w.]+Error: ", line)), text)
        return f"no replica could be started: {' '.join(reason.split())[:300]}; --debug shows more"

    def _front(self, handle: Any, sockets: list[Any], on_ready: Callable[[], None]) -> None:
        from ..serve.openai.errors import refused
        from ..serve.server import DrainingServer, stopping_is_no_failure
        from .front import Front

        front: Front = Front(
            RayReplicas(handle), self.settings, self.replicas.maximum, self.on_stop
        )
        level = "info" if self.debug else "warning"
        server = DrainingServer(
            front.app, self.settings, level, front.close, refuse=refused, hurry=front.hurry
        )
        on_ready()
        with stopping_is_no_failure():
            server.run(sockets=sockets)


class RayReplicas:
    """Replicas behind a handle of Ray Serve; `front.Replicas`.

    Args:
        handle: of the deployment.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._answers = handle.options(method_name="answer", stream=True)

    async def ask(self, request: PassedRequest) -> AsyncGenerator[Ack | Head | bytes, None]:
        from ray.exceptions import RayActorError, RaySystemError
        from ray.serve.exceptions import DeploymentUnavailableError

        from .front import ReplicaLostError

        pieces = self._answers.remote(request)
        try:
            async for piece in pieces:
                yield piece
        except (RayActorError, RaySystemError, DeploymentUnavailableError) as error:
            raise ReplicaLostError(type(error).__name__) from None
        finally:
            pieces.cancel()

    async def reports(self, metrics: bool = False) -> list[ReplicaReport]:
        coming = self._handle.broadcast("report", metrics)
        try:
            answers = await coming.results_async(timeout_s=REPORT_SECONDS, return_exceptions=True)
        except Exception as error:  # of Ray, whichever: then nobody is known to be well
            logger.warning("replicas don't say how they are: %s", type(error).__name__)
            return []
        return [report for report in answers if isinstance(report, ReplicaReport)]


def import_serve(debug: bool = False) -> Any:
    """The module `ray.serve`, told to print nothing unless `debug`.

    Raises:
        SoonerError: it is not installed.
    """
    try:
        from ray import serve
    except ImportError as error:
        raise SoonerError(MISSING) from error
    _quiet(debug)
    return serve


def _quiet(debug: bool) -> None:
    if not debug:
        logging.getLogger("ray.serve").setLevel(logging.CRITICAL)


def _wait_for_room(share: ReplicaShare, replicas: int) -> None:
    """Wait for a moment until the cluster has room: it learns late of what ended just now.

    Raises:
        SoonerError: others leave none.
    """
    import ray

    end = time.monotonic() + ROOM_SECONDS
    while True:
        free = ray.available_resources()
        try:
            check_free(share, replicas, free.get("CPU", 0.0), free.get("GPU", 0.0))
            return
        except SoonerError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


def _is_running() -> bool:
    """Returns whether somebody has started Ray Serve on the cluster."""
    import ray
    from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

    try:
        ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    except ValueError:
        return False
    return True
