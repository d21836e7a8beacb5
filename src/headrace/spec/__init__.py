"""Pipeline specs: read, check and copy a pipeline's folder. Importing this loads no Spark, Arrow or SQL parser."""

from headrace.spec.loading.check import Check, check_pipeline, check_pipelines
from headrace.spec.loading.folders import PipelineFolder, find_pipeline, list_pipelines
from headrace.spec.loading.loader import load_pipeline
from headrace.spec.loading.scaffold import copy_pipeline
from headrace.spec.model.columns import COORDINATES, EXTRA
from headrace.spec.model.layers import BUILD_ID, Expectation, Function, LayerTable, Query, Window
from headrace.spec.model.pipeline import EpochUnit, EventTime, Pipeline, Stream, TableName, Transform
from headrace.spec.model.types import Array, Column, ColumnType, Decimal, Map, Primitive, Struct

__all__ = [
    "BUILD_ID",
    "COORDINATES",
    "EXTRA",
    "Array",
    "Check",
    "Column",
    "ColumnType",
    "Decimal",
    "EpochUnit",
    "EventTime",
    "Expectation",
    "Function",
    "LayerTable",
    "Map",
    "Pipeline",
    "PipelineFolder",
    "Primitive",
    "Query",
    "Stream",
    "Struct",
    "TableName",
    "Transform",
    "Window",
    "check_pipeline",
    "check_pipelines",
    "copy_pipeline",
    "find_pipeline",
    "list_pipelines",
    "load_pipeline",
]
