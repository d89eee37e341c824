-- Frees a lock that is held or resting under this fencing token: one row is found where it was.
-- name, fence
UPDATE {table}
SET lock_until = UTC_TIMESTAMP(6), resting = 0
WHERE name = ? AND fence = ? AND lock_until > UTC_TIMESTAMP(6)
