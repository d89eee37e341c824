-- Moves the ends of leases, never back: one row for each lease asked for.
-- $1 names in ascending order, $2 tokens, $3 times to live in microseconds
--
-- Where the plan takes the names one by one, as it does for a few, the order keeps two of these for the same leases
-- from waiting for each other; another plan may lock rows in another order, and a deadlock is sent again.
-- The holder is read as of the statement's beginning; a lease that is lost all the same is not reported as its own
-- successor.
WITH asked AS (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS asked (name, token, ttl)
), renewed AS (
    UPDATE {table} AS lock
    SET lock_until = GREATEST(lock_until, clock_timestamp() + asked.ttl * interval '1 microsecond')
    FROM asked
    WHERE lock.name = asked.name
      AND lock.token = asked.token
      AND NOT lock.resting
      AND lock.lock_until > clock_timestamp()
    RETURNING lock.name, lock.token
)
SELECT
    asked.name,
    asked.token,
    renewed.name IS NOT NULL AS renewed,
    CASE
        WHEN lock.lock_until > clock_timestamp() AND (lock.token <> asked.token OR lock.resting)
        THEN lock.locked_by
    END AS locked_by
FROM asked
LEFT JOIN renewed USING (name, token)
LEFT JOIN {table} AS lock ON lock.name = asked.name
