/*
kind: full
*/
SELECT count(*) AS keys, sum(amount) AS amount FROM kept.present
