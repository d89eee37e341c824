-- What is known of one lock, or of all. Instants and times in microseconds.
-- $1 name, or null for all
SELECT
    name,
    (date_part('epoch', lock_until) * 1000000)::bigint AS lock_until,
    (date_part('epoch', locked_at) * 1000000)::bigint AS locked_at,
    (date_part('epoch', lock_until - clock_timestamp()) * 1000000)::bigint AS remaining,
    locked_by,
    fence,
    last_tick,
    resting
FROM {table}
WHERE $1::text IS NULL OR name = $1
ORDER BY name COLLATE "C"
