-- The table: one row, or none where we may not see it. Schema or null, name
SELECT
    CAST(table_type AS CHAR) AS kind,
    CAST(COALESCE(engine, '') AS CHAR) AS engine,
    (
        SELECT COUNT(*)
        FROM information_schema.triggers AS spy
        WHERE spy.event_object_schema = tables.table_schema AND spy.event_object_table = tables.table_name
    ) AS triggers
FROM information_schema.tables AS tables
WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?
