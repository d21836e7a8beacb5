"""Entity resolution: records that share a value are of one entity. Edges, clusters and stable ids are three steps."""
