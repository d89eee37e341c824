-- Grants the lock where it is free: one row is found, and its fencing token comes back as the last insert id.
-- lease in microseconds, owner, token, tick or null, name, token, token, tick or null
--
-- The condition is part of the update: a refusal changes no row and writes no redo. The row count tells found rows, and
-- the id is 0 where nothing was found: neither can be mistaken for the other.
-- UTC_TIMESTAMP stands still at the statement's beginning, however long the row is waited for. Such a clock is late and
-- never early: a lock that seems free is free, one that was freed meanwhile seems held and is asked for again at once,
-- and a lease that ends too early by the wait still ends after what its holder counts from before the sending.
-- A token whose lease is over is not granted again: its request may have been under way for so long that nobody waits
-- for the answer.
UPDATE {table} SET
    lock_until = GREATEST(lock_until, TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6))),
    locked_at = UTC_TIMESTAMP(6),
    locked_by = ?,
    token = ?,
    fence = LAST_INSERT_ID(GREATEST(fence + 1, CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS UNSIGNED))),
    last_tick = COALESCE(?, last_tick),
    resting = 0
WHERE name = ?
  AND CASE
      WHEN lock_until > UTC_TIMESTAMP(6) THEN token = ? AND resting = 0
      ELSE token <> ? AND COALESCE(last_tick < ?, TRUE)
  END
