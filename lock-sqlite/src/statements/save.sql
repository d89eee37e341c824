INSERT INTO {table}
    (name, token, boot_id, boot_until, resting, fence, last_tick, locked_by, locked_at, lock_until)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (name) DO UPDATE SET
    token = excluded.token,
    boot_id = excluded.boot_id,
    boot_until = excluded.boot_until,
    resting = excluded.resting,
    fence = excluded.fence,
    last_tick = excluded.last_tick,
    locked_by = excluded.locked_by,
    locked_at = excluded.locked_at,
    lock_until = excluded.lock_until
