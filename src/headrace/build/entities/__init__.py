"""Entity resolution: records that share a value belong to one entity. Three steps: edges, clusters and stable ids."""
