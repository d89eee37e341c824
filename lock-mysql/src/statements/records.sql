-- What is known of one lock, or of all, in the order of the names' bytes. Instants and times in microseconds; an instant
-- that is none, such as 0000-00-00, is null.
SELECT
    name,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lock_until) AS lock_until,
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', locked_at) AS locked_at,
    TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until) AS remaining,
    locked_by,
    fence,
    last_tick,
    resting
FROM {table}
{where}
ORDER BY name
