-- Fails in a transaction, however that began, and does nothing outside of one: the database of temporary tables has no
-- safety level.
PRAGMA temp.synchronous = FULL
