/*
about: Each event once, however often it came.
keys: [id]
sequence_by: n
constant: [at]
partition_by: [days(at)]
expect:
  the amount is positive: {that: amount > 0, otherwise: quarantine}
  the group is known: g IS NOT NULL
*/
SELECT id, k, g, n, amount, at FROM kept.events
