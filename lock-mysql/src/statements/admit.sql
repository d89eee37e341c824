-- Lets a fencing token in unless a greater one was seen: the greater of both comes back as the last insert id.
-- resource, token, token
--
-- One statement, which locks the row, and keeps it locked until the caller's transaction ends, whether it changes it or
-- not. An update of a missing row, and then an insert, would be a deadlock of two first comers under REPEATABLE READ; a
-- plain select before would fix the transaction's snapshot before the wait. The row count is not looked at: it depends on
-- a flag of the connection.
INSERT INTO {table} (resource, fence)
VALUES (?, LAST_INSERT_ID(?))
ON DUPLICATE KEY UPDATE fence = LAST_INSERT_ID(GREATEST(fence, ?))
