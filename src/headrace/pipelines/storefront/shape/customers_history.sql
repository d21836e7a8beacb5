/*
about: "Customers as they were at any time: a version for each change that was committed."
keys: [id]
sequence_by: [_sequence, kafka_offset]
stored_as_scd_type: 2
valid_from: _committed_at
apply_as_deletes: _op = 'd'
apply_as_truncates: _op = 't' OR _snapshot IN ('last', 'last_in_data_collection')
unchanged: _unchanged
except_column_list: [_op, _snapshot, _unchanged, _tx_id, _tx_order, kafka_partition, event_date, event_date_source]
*/
SELECT * FROM stage.storefront.customers
