/*
kind: entities
keys: [k]
sequence_by: n
oldest_by: at
match:
  email_normalized: {from: email, as: email}
*/
SELECT k, n, email, at FROM kept.events
