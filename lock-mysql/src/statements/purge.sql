-- Deletes records of locks that have been free for long, some at a time.
-- minus how long, in microseconds; how many at most
--
-- A record whose counter is ahead of the clock stays: without it the next fencing token would be smaller.
DELETE FROM {table}
WHERE lock_until <= TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6))
  AND fence < CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS UNSIGNED)
ORDER BY name
LIMIT ?
