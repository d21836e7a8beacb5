"""Entity resolution on Spark for tables that are too large for one process: records, edges, components and ids."""
