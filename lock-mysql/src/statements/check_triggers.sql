-- The triggers that we may see. Schema or null, name
SELECT CAST(trigger_name AS CHAR) AS name
FROM information_schema.triggers
WHERE event_object_schema = COALESCE(?, DATABASE()) AND event_object_table = ?
ORDER BY trigger_name
