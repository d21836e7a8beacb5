/*
about: The lines of orders as they stand.
keys: [order_id, line]
sequence_by: [_sequence, kafka_offset]
apply_as_deletes: _op = 'd'
apply_as_truncates: _op = 't' OR _snapshot IN ('last', 'last_in_data_collection')
unchanged: _unchanged
except_column_list: [_op, _snapshot, _unchanged, _tx_id, _tx_order, kafka_partition, event_date, event_date_source]
expect:
  something was bought: quantity > 0
*/
SELECT * FROM stage.storefront.order_items
