"""How far a table has been read or built, as the table itself records it."""
