"""Write, list and measure the data files of Iceberg tables."""
