"""Read and look up rows of data files without Spark."""
