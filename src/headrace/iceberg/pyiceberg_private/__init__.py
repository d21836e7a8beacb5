"""The adapter for PyIceberg's private API.

Modules outside this package use only what PyIceberg documents. tests/iceberg/test_pyiceberg_boundary.py enforces that, and
tests/iceberg/test_pyiceberg_contract.py pins every private name and behaviour that the modules here depend on.
"""
