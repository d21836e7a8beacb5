/*
about: Who has which email address or phone, to look records up by it; what too many share is there, but not used.
keys: [block_type, source, source_id]
*/
SELECT
    'email' AS block_type,
    source,
    source_id,
    email_normalized AS block_value,
    entity_id,
    NOT array_contains(unused_matches, 'email_normalized') AS is_used
FROM semantic.entity_index
WHERE email_normalized IS NOT NULL
UNION ALL
SELECT
    'phone' AS block_type,
    source,
    source_id,
    phone_normalized AS block_value,
    entity_id,
    NOT array_contains(unused_matches, 'phone_normalized') AS is_used
FROM semantic.entity_index
WHERE phone_normalized IS NOT NULL
