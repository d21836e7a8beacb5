"""The lake's tables held against the Postgres that they come from, row by row and column by column."""
