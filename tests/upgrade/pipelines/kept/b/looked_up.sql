/*
keys: [k]
rebuild_on: {kept.groups: [g]}
*/
SELECT p.k, p.g, p.n, s.keys AS keys_in_group, s.amount AS amount_of_group
FROM kept.present p LEFT JOIN kept.groups s ON s.g = p.g
