/*
about: Payments as they stand. Money that goes back is negative.
keys: [id]
sequence_by: [_sequence, kafka_offset]
apply_as_deletes: _op = 'd'
apply_as_truncates: _op = 't' OR _snapshot IN ('last', 'last_in_data_collection')
unchanged: _unchanged
except_column_list: [_op, _snapshot, _unchanged, _tx_id, _tx_order, kafka_partition, event_date, event_date_source]
expect:
  only what goes back is negative: amount >= 0 OR status = 'refunded'
*/
SELECT * FROM stage.storefront.payments
