"""Records that look alike: a build of `fuzzy` beside Splink on DuckDB alone, with the same weights, and how right it is.

The sides take turns in one process. Splink reads the compared values from Parquet, weighs and clusters them, and writes
Parquet; Headrace refreshes an Iceberg table from a raw one. Then entities are compared with the truth, at several thresholds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import polars as pl

from benchmarks.bench import Bench
from benchmarks.entities import row_of, timed
from benchmarks.fuzzy_lake import FuzzyLake
from benchmarks.labelled_rows import labelled_records
from benchmarks.meter import Reading
from benchmarks.results import Bar, at_most
from headrace.build.entities import scoring
from headrace.build.entities.alike import LEFT, RIGHT, WEIGHT, comparable
from headrace.build.entities.clusters import connected_components
from headrace.build.entities.names import NODE
from headrace.build.entities.scoring import number_records, weigh
from headrace.build.entities.splink_duckdb import compare_on_duckdb
from headrace.build.entities.splink_model import ID, splink_settings
from headrace.build.entities.training import train_weights
from headrace.build.entities.weights import Weights, fixed_weights
from headrace.sessions.shared_spark import spark_session
from headrace.settings import load_settings
from headrace.spec.model.fuzzy import Fuzzy

RECORDS = 50_000
RUNS = 3
_THREADS = 2
_MOST_TIMES = 5.0
_THRESHOLDS = (2, 4, 6, 8, 10, 12, 14)


def compare_fuzzy(bench: Bench) -> tuple[list[dict[str, object]], tuple[Bar, ...]]:
    """Return what a full build costs on both sides, and precision, recall and F1 of the entities by threshold."""
    records = labelled_records(bench.scaled(RECORDS)).sort("record")
    folder = (bench.folder / "fuzzy").resolve()
    settings = load_settings(flags={"home": str(folder / "spark")}, environ={}, folder=folder)
    readings: dict[str, list[Reading]] = {}
    with spark_session(settings, report=bench.say) as spark:
        lake = FuzzyLake(folder / "lake", spark)
        lake.land(records)
        lake.refresh()  # warms up
        fuzzy = lake.fuzzy
        values = comparable(records, fuzzy).with_row_index(NODE)
        number_records(values).write_parquet(folder / "values.parquet")
        for turn in range(RUNS):
            clusters = timed(bench, readings, "Splink on DuckDB", lambda: cluster_with_splink(folder, fuzzy))
            timed(bench, readings, "Headrace", lake.refresh)
            if turn == 0:
                in_process = lake.entities()
                _say_differences(bench, records, in_process, clusters)
        limit = scoring.MOST_PAIRS_IN_PROCESS
        try:
            scoring.MOST_PAIRS_IN_PROCESS = 0
            timed(bench, readings, "Headrace, compared on Spark", lake.refresh)
        finally:
            scoring.MOST_PAIRS_IN_PROCESS = limit
        on_spark = lake.entities()
        if not in_process.sort("record").equals(on_spark.sort("record")):
            raise RuntimeError("compared in this process and on Spark, records are in different entities")
    trained = timed(bench, readings, "Training", lambda: train_weights(number_records(values), fuzzy)[0])
    rows = [row_of(what, reading) for what, reading in readings.items()]
    for name, weights in (("fixed", fixed_weights(fuzzy)), ("trained", trained)):
        rows += judge(records, values, fuzzy, weights, name=name)
    times = median(reading.seconds for reading in readings["Headrace"]) / median(
        reading.seconds for reading in readings["Splink on DuckDB"]
    )
    return rows, (at_most(_MOST_TIMES, times, name="fuzzy: times the seconds of Splink on DuckDB"),)


def cluster_with_splink(folder: Path, fuzzy: Fuzzy) -> pl.DataFrame:
    """Return the cluster of each record, as Splink alone finds them with the same weights and threshold."""
    import duckdb
    from splink import DuckDBAPI, Linker

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {_THREADS}")
        connection.execute(f"CREATE TABLE people AS SELECT * FROM read_parquet('{folder / 'values.parquet'}')")
        settings = splink_settings(fuzzy, fixed_weights(fuzzy))
        linker = Linker(DuckDBAPI(connection=connection).register("people"), settings, log_level=logging.ERROR)
        pairs = linker.inference.predict(threshold_match_weight=fuzzy.at_least, warning_mode="never")
        clusters = linker.clustering.cluster_pairwise_predictions_at_threshold(pairs)
        result = folder / "clusters.parquet"
        connection.execute(f"COPY (SELECT * FROM {clusters.physical_name}) TO '{result}' (FORMAT parquet)")
    return pl.read_parquet(result, columns=["cluster_id", ID]).sort(ID)


def judge(
    records: pl.DataFrame, values: pl.DataFrame, fuzzy: Fuzzy, weights: Weights, *, name: str
) -> Sequence[dict[str, object]]:
    """Return how right the entities are at each threshold: of all pairs of records that are together, or ought to be."""
    low = replace(fuzzy, at_least=float(min(_THRESHOLDS)))
    pairs = weigh(values[NODE], compare_on_duckdb(number_records(values), low, weights), low, weights)
    rows: list[dict[str, object]] = []
    for threshold in _THRESHOLDS:
        edges = pairs.filter(pl.col(WEIGHT) >= threshold)
        entity = connected_components(edges[LEFT], edges[RIGHT], nodes=records.height)
        both, wanted, linked = (_pairs_in(columns) for columns in ([records["person"], entity], [records["person"]], [entity]))
        precision, recall = both / max(linked, 1), both / wanted
        rows.append(
            {
                "what": f"{name} weights, at_least {threshold}",
                "precision": round(precision, 3),
                "recall": round(recall, 3),
                "f1": round(2 * both / (linked + wanted), 3),
                "largest_entity": entity.value_counts()["count"].max(),
            }
        )
    return rows


def _pairs_in(columns: list[pl.Series]) -> int:
    sizes = pl.DataFrame([column.alias(str(number)) for number, column in enumerate(columns)]).group_by(pl.all()).len()["len"]
    return int((sizes.cast(pl.Int64) * (sizes.cast(pl.Int64) - 1)).sum()) // 2


def _say_differences(bench: Bench, records: pl.DataFrame, entities: pl.DataFrame, clusters: pl.DataFrame) -> None:
    """Say how many records are in another entity than with Splink alone, whose similarity on DuckDB is not Spark's."""
    ours = records.select("record").join(entities, on="record", maintain_order="left")["entity_id"]
    both = pl.DataFrame({"ours": ours, "theirs": clusters["cluster_id"]})
    same = both.filter(
        pl.len().over("ours") == pl.len().over("ours", "theirs"), pl.len().over("theirs") == pl.len().over("ours", "theirs")
    )
    bench.say(
        f"Fuzzy: {records.height - same.height:,} of {records.height:,} records are in another entity than with Splink alone"
    )
