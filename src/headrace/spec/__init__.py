"""What a pipeline is, and how its folder is read, checked and copied. Light to import: no Spark, Arrow or SQL parser."""

from headrace.spec.check import Check, check_pipeline, check_pipelines
from headrace.spec.columns import COORDINATES, EXTRA
from headrace.spec.folders import PipelineFolder, find_pipeline, list_pipelines
from headrace.spec.layers import BUILD_ID, Expectation, Function, LayerTable, Query, Window
from headrace.spec.loader import load_pipeline
from headrace.spec.pipeline import EpochUnit, EventTime, Pipeline, Stream, TableName, Transform
from headrace.spec.scaffold import copy_pipeline
from headrace.spec.types import Array, Column, ColumnType, Decimal, Map, Primitive, Struct

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
