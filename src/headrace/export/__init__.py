"""Export a pipeline to other tools: dbt, Airflow and Dagster."""
