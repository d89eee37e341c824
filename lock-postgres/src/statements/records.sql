-- What is known of one lock, or of all. Instants and times in microseconds.
-- $1 name, or null for all
--
-- An instant that microseconds cannot tell, such as infinity, is null; nor can infinity be subtracted from.
SELECT
    name,
    CASE
        WHEN abs(date_part('epoch', lock_until)) < 9e12 THEN (date_part('epoch', lock_until) * 1000000)::bigint
    END AS lock_until,
    CASE
        WHEN abs(date_part('epoch', locked_at)) < 9e12 THEN (date_part('epoch', locked_at) * 1000000)::bigint
    END AS locked_at,
    CASE
        WHEN lock_until > clock_timestamp()
        THEN (date_part('epoch', LEAST(lock_until, clock_timestamp() + interval '100 years') - clock_timestamp()) * 1000000)::bigint
        ELSE 0
    END AS remaining,
    locked_by,
    fence,
    last_tick,
    resting
FROM {table}
WHERE $1::text IS NULL OR name = $1
ORDER BY name COLLATE "C"
