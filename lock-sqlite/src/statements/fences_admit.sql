-- A row comes back only if the token was let in. The write lock is taken either way.
INSERT INTO {table} (resource, fence)
VALUES (?1, ?2)
ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence
WHERE fence <= excluded.fence
RETURNING fence
