"""Read and check a pipeline's folder."""
