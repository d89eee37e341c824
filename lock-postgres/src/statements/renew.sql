-- Moves the ends of leases, never back: one row for each lease asked for.
-- $1 names in ascending order, $2 tokens, $3 times to live in microseconds
--
-- A row that another session keeps locked is left out instead of waited for: the other leases would run out meanwhile, with
-- their rows locked by the one who waits. So no two of these wait for each other either.
-- The rows are read as of the statement's beginning. A lease that was in force then and was not renewed is locked, or was
-- changed in this moment; one that is lost is not reported as its own successor.
WITH asked AS (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS asked (name, token, ttl)
), ours AS (
    SELECT lock.name, lock.token, asked.ttl
    FROM asked
    JOIN {table} AS lock ON lock.name = asked.name AND lock.token = asked.token
    WHERE NOT lock.resting AND lock.lock_until > clock_timestamp()
    FOR UPDATE OF lock SKIP LOCKED
), renewed AS (
    UPDATE {table} AS lock
    SET lock_until = GREATEST(lock_until, clock_timestamp() + ours.ttl * interval '1 microsecond')
    FROM ours
    WHERE lock.name = ours.name
      AND lock.token = ours.token
      AND NOT lock.resting
      AND lock.lock_until > clock_timestamp()
    RETURNING lock.name, lock.token
)
SELECT
    asked.name,
    asked.token,
    renewed.name IS NOT NULL AS renewed,
    renewed.name IS NULL
        AND COALESCE(lock.token = asked.token AND NOT lock.resting AND lock.lock_until > clock_timestamp(), false) AS locked,
    CASE
        WHEN lock.lock_until > clock_timestamp() AND (lock.token <> asked.token OR lock.resting)
        THEN lock.locked_by
    END AS locked_by
FROM asked
LEFT JOIN renewed USING (name, token)
LEFT JOIN {table} AS lock ON lock.name = asked.name
