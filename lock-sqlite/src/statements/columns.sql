-- The table's columns, by which collation the primary key compares, and whether it is a view.
SELECT c.name, upper(c.type) AS type, c."notnull" AS required, c.dflt_value IS NOT NULL AS has_default, c.pk,
       (SELECT k.coll
        FROM pragma_index_list(?1) AS i, pragma_index_xinfo(i.name) AS k
        WHERE i.origin = 'pk' AND k.key = 1 AND k.name = c.name) AS collation,
       EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type = 'view') AS is_of_view
FROM pragma_table_info(?1) AS c
ORDER BY c.cid
