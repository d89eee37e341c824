SELECT name, token, boot_id, boot_until, resting, fence, last_tick, locked_by, locked_at, lock_until
FROM {table}
WHERE name = ?1
