"""What a server measures about itself, for Prometheus.

Several workers share files in the folder that PROMETHEUS_MULTIPROC_DIR names, and any of them
answers for all.
"""

from __future__ import annotations

import os
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector

T = TypeVar("T", bound=MetricWrapperBase)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)


class ServerMetrics:
    """One process's counters."""

    def __init__(self) -> None:
        disable_created_metrics()
        self.shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self.registry = CollectorRegistry()

        def made(kind: type[T], name: str, text: str, *labels: str, **options: Any) -> T:
            return kind(f"vitreous_{name}", text, labels, registry=self.registry, **options)

        answered = "Requests that were answered; 499: the client left."
        self.requests = made(Counter, "requests", answered, "route", "model", "status")
        self.images = made(Counter, "images", "Images that were computed.", "model", "lane")
        self.seconds = made(
            *(Histogram, "stage_seconds"),
            "Where time goes: body, queue, decode, batch (waiting for others), compute, encode, "
            "and request, which is all of it.",
            *("model", "stage"),
            buckets=SECONDS,
        )
        together = "Images that a model computed at once."
        self.batch = made(Histogram, "batch_images", together, "model", "lane", buckets=SIZES)
        waiting = "Images that wait for a model."
        self.depth = made(
            Gauge, "queue_images", waiting, "model", "lane", multiprocess_mode="livesum"
        )
        refused = "Requests that were refused, by problem."
        self.rejections = made(Counter, "rejections", refused, "problem")
        given_up = "Images that nobody waited for any more, and that were not computed."
        self.dropped = made(Counter, "dropped_images", given_up, "model", "lane")
        ready = "Workers whose models are ready."
        self.ready = made(Gauge, "ready_workers", ready, multiprocess_mode="livesum")
        if not self.shared:
            ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        if not self.shared:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return generate_latest(registry)
