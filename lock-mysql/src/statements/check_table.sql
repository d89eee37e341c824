-- The table: one row, or none where we may not see it. Schema or null, name
SELECT
    CAST(table_type AS CHAR) AS kind,
    CAST(COALESCE(engine, '') AS CHAR) AS engine,
    (
        SELECT COALESCE(
            MAX(part.partition_method LIKE 'RANGE%' OR part.partition_method LIKE 'LIST%')
                AND NOT MAX(part.partition_description IN ('MAXVALUE', 'DEFAULT')),
            FALSE
        )
        FROM information_schema.partitions AS part
        WHERE part.table_schema = tables.table_schema AND part.table_name = tables.table_name
    ) AS may_lack_a_partition
FROM information_schema.tables AS tables
WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?
