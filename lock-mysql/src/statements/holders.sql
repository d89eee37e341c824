-- Who has the locks with these names, and until when in microseconds.
-- {names}: name of each
SELECT name, token, locked_by, resting, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until) AS lock_until
FROM {table}
WHERE name IN ({names}) AND lock_until > UTC_TIMESTAMP(6)
