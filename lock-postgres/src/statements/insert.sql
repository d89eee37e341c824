-- Grants a lock whose name is unknown. No row: somebody else inserted it in this moment.
-- $1 name, $2 token, $3 owner, $4 lease in microseconds, $5 tick or null
INSERT INTO {table} (name, lock_until, locked_at, locked_by, token, fence, last_tick, resting)
VALUES (
    $1,
    clock_timestamp() + $4::bigint * interval '1 microsecond',
    clock_timestamp(),
    $3,
    $2,
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
    $5,
    false
)
ON CONFLICT (name) DO NOTHING
RETURNING fence
