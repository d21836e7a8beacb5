/*
about: Every event as it arrived, and whether its id was sent before.
target_lag: 30 seconds
keys: [stream, kafka_partition, kafka_offset]
partition_by: [days(created_at)]
constant: [created_at]
window: {partition_by: [stream, event_id], order_by: turn, range: 1 day}
*/
-- An event is repeated if its id was sent before within a day of turns: the last 864 messages of each partition. It is a table of
-- its own so that a build looks up the events of the same id alone, and not all that were sent within that day.
SELECT
    stream,
    kafka_partition,
    kafka_offset,
    turn,
    event_id,
    created_at,
    event_id IS NOT NULL AND count(*) OVER same_event > 1 AS is_repeated,
    problems
FROM payments_db.payment_events
WINDOW same_event AS (PARTITION BY stream, event_id ORDER BY turn RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND CURRENT ROW)
