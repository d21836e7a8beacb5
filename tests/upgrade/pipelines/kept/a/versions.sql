/*
keys: [k]
sequence_by: n
stored_as_scd_type: 2
apply_as_deletes: op = 'd'
except_column_list: [op]
*/
SELECT k, n, g, amount, op FROM kept.events
