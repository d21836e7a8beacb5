"""Headrace's side: the Lander, in one Spark application."""

from __future__ import annotations

import os
import select
import sys
import time

from benchmarks.side import Order
from benchmarks.streams import pipeline_of
from headrace.iceberg.catalog.properties import secret_names
from headrace.iceberg.catalog.tables import open_catalog
from headrace.kafka.client import KafkaServers
from headrace.kafka.topics import admin_client
from headrace.landing.lander import Lander
from headrace.servers.java import find_java_home
from headrace.settings import Settings
from headrace.spark.session import spark_jars, start_spark

_IDLE_SECONDS = 0.005
_EXECUTOR_SECONDS = 60.0


class HeadraceSide:
    def __init__(self, settings: Settings) -> None:
        settings.home.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._spark = start_spark(
            settings,
            java_home=find_java_home(os.environ, cache=settings.home),
            jars=spark_jars(settings, report=lambda line: print(line, file=sys.stderr)),
            conf=secret_names(settings),
        )
        self._catalog = open_catalog(settings)

    def land(self, order: Order) -> None:
        if order.executors:
            self._wait_for_executors(order.executors)
        lander = self._lander(order)
        while lander.land_batch(self._spark.sparkContext):
            pass

    def follow(self, order: Order) -> None:
        lander = self._lander(order)
        while not select.select([sys.stdin], [], [], 0)[0]:
            if lander.land_batch(self._spark.sparkContext) is None:
                time.sleep(_IDLE_SECONDS)
        sys.stdin.readline()

    def _wait_for_executors(self, count: int) -> None:
        deadline = time.monotonic() + _EXECUTOR_SECONDS
        context = self._spark.sparkContext._jsc.sc()
        while context.getExecutorIds().size() != count:  # the scheduler's: lists of memory can keep one that is gone
            if time.monotonic() > deadline:
                raise RuntimeError(f"the application did not come to {count} executors within {_EXECUTOR_SECONDS:.0f} s")
            time.sleep(0.1)

    def _lander(self, order: Order) -> Lander:
        servers = self._settings.kafka_bootstrap_servers or ""
        return Lander(
            self._settings,
            pipeline_of(order.kind, order.topics, partitions=order.partitions),
            catalog=self._catalog,
            admin=admin_client(KafkaServers(servers)),
            consumer={"bootstrap.servers": servers},
        )
