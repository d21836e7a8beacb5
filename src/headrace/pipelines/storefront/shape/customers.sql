/*
about: Customers as they stand in the shop's database.
keys: [id]
sequence_by: [_sequence, kafka_offset]
apply_as_deletes: _op = 'd'
apply_as_truncates: _op = 't' OR _snapshot IN ('last', 'last_in_data_collection')
unchanged: _unchanged
except_column_list: [_op, _snapshot, _unchanged, _tx_id, _tx_order, kafka_partition, event_date, event_date_source]
expect:
  an email address has an at sign: email LIKE '%@%'
*/
SELECT * FROM stage.storefront.customers
