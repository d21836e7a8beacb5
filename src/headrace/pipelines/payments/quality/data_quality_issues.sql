/*
about: One row for each problem of each event that arrived, duplicates and late events among them.
target_lag: 30 seconds
keys: [stream, kafka_partition, kafka_offset, problem]
partition_by: [days(created_at)]
constant: [created_at]
*/
SELECT
    stream,
    event_id,
    explode(problems) AS problem,
    created_at,
    kafka_partition,
    kafka_offset
FROM payments_db.event_arrivals
