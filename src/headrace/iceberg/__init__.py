"""The only code that touches Iceberg: catalog, schema, files, rows, deletes, commits, ledgers and maintenance."""
