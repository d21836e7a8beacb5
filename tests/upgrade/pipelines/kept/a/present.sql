/*
about: The newest event of each key that was not deleted.
keys: [k]
sequence_by: n
apply_as_deletes: op = 'd'
except_column_list: [op]
*/
SELECT k, n, g, amount, at, op FROM kept.events
