-- The unique keys that can refuse a lock: those without the whole name in them.
SELECT i.name, i.origin = 'u' AS is_of_table,
       (SELECT group_concat(k.name, ', ') FROM pragma_index_xinfo(i.name) AS k WHERE k.key = 1) AS columns
FROM pragma_index_list(?1) AS i
WHERE i."unique" = 1
  AND i.origin <> 'pk'
  AND NOT EXISTS (SELECT 1
                  FROM pragma_index_xinfo(i.name) AS k
                  WHERE k.key = 1 AND k.name = 'name' AND k.coll = 'BINARY')
ORDER BY i.seq
