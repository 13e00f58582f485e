"""`/metrics` of a front: those of each replica under a label of its own, and the front's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from .replica import ReplicaReport

PREFIX = "sooner:"
LABEL = "replica"


class FrontMetrics:
    """What the front has done.

    Args:
        under_way: read when the metrics are.
    """

    def __init__(self, under_way: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        gauge = Gauge(PREFIX + "front_requests", "Requests under way.", registry=self.registry)
        gauge.set_function(under_way)
        self.replicas = Gauge(
            PREFIX + "replicas", "Replicas by how they are.", ["status"], registry=self.registry
        )
        self.lost = self._counter("replicas_lost", "Replicas lost with an unstarted request.")
        self.retried = self._counter("requests_retried", "Requests that another replica was asked.")
        self.cut = self._counter("streams_cut", "Streams that lost their replica.")

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(PREFIX + name, text, registry=self.registry)

    def text(self, reports: Sequence[ReplicaReport]) -> bytes:
        """Returns Prometheus' text format.

        Args:
            reports: of the replicas, with their metrics.
        """
        self.replicas.clear()
        for report in reports:
            self.replicas.labels(report.status).inc()
        joined = CollectorRegistry()
        joined.register(_Joined(reports))
        return bytes(generate_latest(self.registry) + generate_latest(joined))


class _Joined:
    """Families of metrics of several replicas, each once, with samples of all."""

    def __init__(self, reports: Sequence[ReplicaReport]) -> None:
        self.reports = reports

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for report in self.reports:
            for parsed in text_string_to_metric_families(report.metrics.decode()):
                family = families.setdefault(
                    parsed.name, Metric(parsed.name, parsed.documentation, parsed.type)
                )
                family.samples.extend(_labelled(sample, report.name) for sample in parsed.samples)
        yield from families.values()


def _labelled(sample: Sample, replica: str) -> Sample:
    return sample._replace(labels={**sample.labels, LABEL: replica})
