"""Raw tables to marts: tables in SQL and Python that are rebuilt only where their inputs changed."""
