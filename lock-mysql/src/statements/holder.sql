-- Who has a lock or had it last: one row, or none where the name is unknown.
-- name
SELECT
    token,
    locked_by,
    TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lock_until) AS remaining,
    resting,
    last_tick,
    fence
FROM {table}
WHERE name = ?
