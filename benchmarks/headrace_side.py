"""Headrace's side: the Lander, in one Spark application."""

from __future__ import annotations

import os
import select
import sys
import time

from benchmarks.side import Order
from benchmarks.streams import pipeline_of
from headrace.landing.lander import Lander
from headrace.services.jars import resolve_jars
from headrace.services.java import find_java_home
from headrace.services.kafka_client import KafkaServers
from headrace.services.spark import start_spark
from headrace.services.topics import admin_client
from headrace.settings import Settings
from headrace.tables.catalog import open_catalog

_IDLE_SECONDS = 0.005


class HeadraceSide:
    def __init__(self, settings: Settings) -> None:
        settings.home.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._spark = start_spark(
            settings,
            java_home=find_java_home(os.environ, cache=settings.home),
            jars=resolve_jars("spark", report=lambda line: print(line, file=sys.stderr)),
        )
        self._catalog = open_catalog(settings)

    def land(self, order: Order) -> None:
        lander = self._lander(order)
        while lander.land_batch(self._spark.sparkContext):
            pass

    def follow(self, order: Order) -> None:
        lander = self._lander(order)
        while not select.select([sys.stdin], [], [], 0)[0]:
            if lander.land_batch(self._spark.sparkContext) is None:
                time.sleep(_IDLE_SECONDS)
        sys.stdin.readline()

    def _lander(self, order: Order) -> Lander:
        servers = self._settings.kafka_bootstrap_servers or ""
        return Lander(
            self._settings,
            pipeline_of(order.kind, order.topics, partitions=order.partitions),
            catalog=self._catalog,
            admin=admin_client(KafkaServers(servers)),
            consumer={"bootstrap.servers": servers},
        )
