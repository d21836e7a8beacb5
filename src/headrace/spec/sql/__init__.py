"""What the SQL of a pipeline says, without an engine."""
