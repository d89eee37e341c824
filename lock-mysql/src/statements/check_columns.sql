-- The columns of the table. Schema or null, name
SELECT
    CAST(column_name AS CHAR) AS name,
    CAST(column_type AS CHAR) AS type,
    CAST(COALESCE(collation_name, '') AS CHAR) AS collation,
    is_nullable = 'YES' AS nullable,
    column_default IS NOT NULL AS has_default,
    extra LIKE '%auto_increment%' AS is_numbered,
    COALESCE(generation_expression, '') <> '' AS is_generated
FROM information_schema.columns
WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?
ORDER BY ordinal_position
