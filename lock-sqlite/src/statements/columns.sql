-- The table's columns, and by which collation the primary key compares.
SELECT c.name, upper(c.type) AS type, c."notnull" AS required, c.dflt_value IS NOT NULL AS has_default, c.pk,
       (SELECT k.coll
        FROM pragma_index_list(?1) AS i, pragma_index_xinfo(i.name) AS k
        WHERE i.origin = 'pk' AND k.key = 1 AND k.name = c.name) AS collation
FROM pragma_table_info(?1) AS c
ORDER BY c.cid
