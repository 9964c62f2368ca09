"""What a server measures about itself, for Prometheus.

Several workers share files in the folder that PROMETHEUS_MULTIPROC_DIR names, and any of them
answers for all.
"""

from __future__ import annotations

import os

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector

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
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "vitreous_requests",
            "Requests that were answered; 499: the client left.",
            ("route", "model", "status"),
            registry=registry,
        )
        self.images = Counter(
            "vitreous_images", "Images that were computed.", ("model", "lane"), registry=registry
        )
        self.seconds = Histogram(
            "vitreous_stage_seconds",
            "Where time goes: body, queue, decode, batch (waiting for others), compute, encode, "
            "and request, which is all of it.",
            ("model", "stage"),
            buckets=SECONDS,
            registry=registry,
        )
        self.batch = Histogram(
            "vitreous_batch_images",
            "Images that a model computed at once.",
            ("model", "lane"),
            buckets=SIZES,
            registry=registry,
        )
        self.depth = Gauge(
            "vitreous_queue_images",
            "Images that wait for a model.",
            ("model", "lane"),
            multiprocess_mode="livesum",
            registry=registry,
        )
        self.rejections = Counter(
            "vitreous_rejections",
            "Requests that were refused, by problem.",
            ("problem",),
            registry=registry,
        )
        self.dropped = Counter(
            "vitreous_dropped_images",
            "Images that nobody waited for any more, and that were not computed.",
            ("model", "lane"),
            registry=registry,
        )
        self.ready = Gauge(
            "vitreous_ready_workers",
            "Workers whose models are ready.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        if not self.shared:
            ProcessCollector(registry=registry)

    def text(self) -> bytes:
        if not self.shared:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return generate_latest(registry)
