-- Frees a lock whoever holds it: one row, or none where nobody has it.
-- $1 name, $2 the fencing token it must have, or null
WITH freed AS (
    UPDATE {table}
    SET lock_until = clock_timestamp(), resting = false
    WHERE name = $1 AND lock_until > clock_timestamp() AND ($2::bigint IS NULL OR fence = $2)
    RETURNING locked_by, fence
)
SELECT true AS freed, locked_by, fence FROM freed
UNION ALL
SELECT false, locked_by, fence
FROM {table}
WHERE name = $1 AND lock_until > clock_timestamp() AND NOT EXISTS (SELECT FROM freed)
