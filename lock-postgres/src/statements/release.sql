-- Ends a lease or lets it rest: one row, or none where the name is unknown.
-- $1 name, $2 token, $3 linger in microseconds
--
-- A release need not wait until it is on disk: were it lost in a crash of the server, the lease would run out, and a
-- later grant is flushed after it. The setting holds for this transaction, that is for this statement.
WITH released AS (
    UPDATE {table}
    SET lock_until = clock_timestamp() + $3::bigint * interval '1 microsecond', resting = $3 > 0
    WHERE name = $1 AND token = $2 AND NOT resting AND lock_until > clock_timestamp()
    RETURNING set_config('synchronous_commit', 'off', true)
)
SELECT true AS released, NULL::text AS locked_by, false AS outdated
FROM released
UNION ALL
-- As of the statement's beginning: a lease that could be released then, and was not, was changed meanwhile.
SELECT
    token = $2 AND resting AND lock_until > clock_timestamp(),
    CASE WHEN token <> $2 AND lock_until > clock_timestamp() THEN locked_by END,
    token = $2 AND NOT resting AND lock_until > clock_timestamp()
FROM {table}
WHERE name = $1 AND NOT EXISTS (SELECT FROM released)
