"""Test the tables of a pipeline without a broker, on rows that the test writes down."""

from headrace.testing.table_test import TableTest

__all__ = ["TableTest"]
