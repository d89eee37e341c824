-- The unique keys of the table, a row for each of their columns. Schema or null, name
SELECT
    CAST(index_name AS CHAR) AS name,
    COALESCE(column_name = 'name' AND sub_part IS NULL, FALSE) AS is_name
FROM information_schema.statistics
WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? AND non_unique = 0
ORDER BY index_name, seq_in_index
