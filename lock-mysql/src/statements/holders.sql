-- Who has the locks with these names.
-- {names}: name of each
SELECT name, token, locked_by, resting
FROM {table}
WHERE name IN ({names}) AND lock_until > UTC_TIMESTAMP(6)
