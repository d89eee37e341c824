-- Lets a fencing token in unless a greater one was seen: the row has the greater of both.
-- resource, resource, token, token
--
-- One statement, which locks the row, and keeps it locked until the caller's transaction ends, whether it changes it or
-- not. An update of a missing row, and then an insert, would be a deadlock of two first comers under REPEATABLE READ; a
-- plain select before would fix the transaction's snapshot before the wait. The row count is not looked at: it depends on
-- a flag of the connection. There are two rows to insert: where the table has no key that makes
-- one of them, two will be found.
INSERT INTO {table} (resource, fence)
VALUES (?, 0), (?, ?)
ON DUPLICATE KEY UPDATE fence = GREATEST(fence, ?)
