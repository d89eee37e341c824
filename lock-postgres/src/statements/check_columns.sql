-- The columns of the table. $1 the quoted name of the table
SELECT
    attribute.attname::text AS name,
    format_type(attribute.atttypid, attribute.atttypmod) AS type,
    attribute.attnotnull AS not_null,
    attribute.atthasdef OR attribute.attidentity <> '' AS has_default,
    attribute.attgenerated <> '' AS is_generated,
    COALESCE(pg_collation.collisdeterministic, true) AS deterministic,
    EXISTS (
        SELECT
        FROM pg_catalog.pg_index AS index
        WHERE index.indrelid = attribute.attrelid
          AND index.indkey[0] = attribute.attnum
          AND index.indnkeyatts = 1
          AND index.indisunique
          AND index.indisvalid
          AND index.indimmediate
          AND index.indpred IS NULL
    ) AS is_key
FROM pg_catalog.pg_attribute AS attribute
LEFT JOIN pg_catalog.pg_collation ON pg_collation.oid = attribute.attcollation
WHERE attribute.attrelid = to_regclass($1) AND attribute.attnum > 0 AND NOT attribute.attisdropped
ORDER BY attribute.attnum
