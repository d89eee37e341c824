-- Fails in a transaction, however that began, and does nothing outside of one: the database of temporary tables has no
-- safety level. SQLite looks when it compiles the statement, so that it must not be kept prepared.
PRAGMA temp.synchronous = FULL
