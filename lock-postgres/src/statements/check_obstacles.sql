-- What can refuse a row besides its columns: constraints, unique indexes with their schema, and rules, with which the server
-- takes no ON CONFLICT. $1 the quoted name of the table, $2 the columns that are ours
--
-- An index is harmless where the name, which is unique anyway, is part of its key, or a further column that makes its own
-- values. A collation that folds names is told of the column, unless the index alone has it. Since PostgreSQL 18 there are
-- constraints that are not enforced.
WITH obstacle AS (
    SELECT index.indexrelid
    FROM pg_catalog.pg_index AS index
    WHERE index.indrelid = to_regclass($1)
      AND index.indisunique
      AND NOT EXISTS (
          SELECT
          FROM generate_series(0, index.indnkeyatts - 1) AS place
          JOIN pg_catalog.pg_attribute AS attribute
              ON attribute.attrelid = index.indrelid AND attribute.attnum = index.indkey[place]
          LEFT JOIN pg_catalog.pg_collation ON pg_collation.oid = index.indcollation[place]
          WHERE attribute.attname = 'name'
                AND (pg_collation.collisdeterministic OR index.indcollation[place] = attribute.attcollation)
             OR attribute.attname <> ALL ($2::text[])
                AND (attribute.atthasdef OR attribute.attidentity <> '')
      )
)
SELECT constraints.conname::text AS name, 'constraint' AS kind, NULL::text AS schema
FROM pg_catalog.pg_constraint AS constraints
WHERE constraints.conrelid = to_regclass($1)
  AND (
      constraints.contype IN ('c', 'f', 'x')
      OR constraints.contype IN ('p', 'u') AND constraints.conindid IN (SELECT indexrelid FROM obstacle)
  )
  AND to_jsonb(constraints) ->> 'conenforced' IS DISTINCT FROM 'false'
UNION ALL
SELECT class.relname::text, 'unique index', namespace.nspname::text
FROM obstacle
JOIN pg_catalog.pg_class AS class ON class.oid = obstacle.indexrelid
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_constraint WHERE conindid = obstacle.indexrelid AND contype IN ('p', 'u', 'x'))
UNION ALL
SELECT rulename::text, 'rule', NULL
FROM pg_catalog.pg_rewrite
WHERE ev_class = to_regclass($1) AND ev_enabled <> 'D' AND ev_type IN ('2', '3')
ORDER BY 1
