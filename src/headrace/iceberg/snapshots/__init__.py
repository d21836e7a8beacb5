"""The history of a table: its snapshots, and the table as of one of them."""
