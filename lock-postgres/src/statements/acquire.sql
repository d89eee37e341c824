-- Grants the lock, or says why not: one row, or none where the name is unknown.
-- $1 name, $2 token, $3 owner, $4 lease in microseconds, $5 tick or null
--
-- The update comes first and is conditional: a refusal changes no row, locks none and writes no WAL.
-- The clock is clock_timestamp(), which goes on while the statement waits for a row that is being changed; the
-- condition is then looked at again. The second part reads the row as it was when the statement began, so that after
-- such a wait it may be out of date: remaining is null where it contradicts the refusal.
-- A token whose lease is over is not granted again: its request may have been under way for so long that nobody waits
-- for the answer.
WITH granted AS (
    UPDATE {table} SET
        lock_until = GREATEST(lock_until, clock_timestamp() + $4::bigint * interval '1 microsecond'),
        locked_at = clock_timestamp(),
        locked_by = $3,
        token = $2,
        fence = GREATEST(fence + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint),
        last_tick = COALESCE($5::bigint, last_tick),
        resting = false
    WHERE name = $1
      AND CASE
          WHEN lock_until > clock_timestamp() THEN token = $2 AND NOT resting
          ELSE token <> $2 AND ($5 IS NULL OR last_tick IS NULL OR last_tick < $5)
      END
    RETURNING fence
)
SELECT fence AS granted, NULL::text AS locked_by, NULL::bigint AS remaining, false AS resting, NULL::bigint AS last_tick
FROM granted
UNION ALL
SELECT NULL,
    locked_by,
    CASE
        WHEN lock_until > clock_timestamp() AND (token <> $2 OR resting)
        -- Infinity cannot be subtracted from.
        THEN (date_part('epoch', LEAST(lock_until, clock_timestamp() + interval '100 years') - clock_timestamp()) * 1000000)::bigint
    END,
    resting,
    last_tick
FROM {table}
WHERE name = $1 AND NOT EXISTS (SELECT FROM granted)
