-- The end of a lease moves forward only, and only while it is held by this token.
UPDATE {table}
SET boot_until = max(boot_until, ?5), lock_until = max(lock_until, ?6)
WHERE name = ?1 AND token = ?2 AND boot_id = ?3 AND boot_until > ?4 AND resting = 0
