-- Grants a lock whose name is unknown. Error 1062: somebody else inserted it in this moment.
-- name, lease in microseconds, owner, token, tick or null
INSERT INTO {table} (name, lock_until, locked_at, locked_by, token, fence, last_tick, resting)
VALUES (
    ?,
    TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)),
    UTC_TIMESTAMP(6),
    ?,
    ?,
    LAST_INSERT_ID(CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS UNSIGNED)),
    ?,
    0
)
