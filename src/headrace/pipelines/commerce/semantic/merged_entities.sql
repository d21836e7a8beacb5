/*
about: The entities into which others were merged. An entity that was split afterwards can have gone into several.
keys: [entity_id, merged_into]
*/
SELECT previous_id AS entity_id, merged_into, count(*) AS records
FROM (
    SELECT explode(previous_entity_ids) AS previous_id, entity_id AS merged_into
    FROM semantic.entity_index
)
GROUP BY previous_id, merged_into
