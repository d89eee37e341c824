-- Ends a lease or lets it rest: one row is found where it was ours.
-- linger in microseconds, whether there is one, name, token
UPDATE {table}
SET lock_until = TIMESTAMPADD(MICROSECOND, ?, UTC_TIMESTAMP(6)), resting = ?
WHERE name = ? AND token = ? AND resting = 0 AND lock_until > UTC_TIMESTAMP(6)
