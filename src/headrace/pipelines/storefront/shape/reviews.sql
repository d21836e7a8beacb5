/*
about: Reviews as they stand. A body that a change left alone is kept from the version before.
keys: [id]
sequence_by: [_sequence, kafka_offset]
apply_as_deletes: _op = 'd'
apply_as_truncates: _op = 't' OR _snapshot IN ('last', 'last_in_data_collection')
unchanged: _unchanged
except_column_list: [_op, _snapshot, _unchanged, _tx_id, _tx_order, kafka_partition, event_date, event_date_source]
expect:
  a rating is from 1 to 5: rating BETWEEN 1 AND 5
*/
SELECT * FROM stage.storefront.reviews
