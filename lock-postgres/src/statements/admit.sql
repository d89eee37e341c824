-- Lets a fencing token in: one row, or none where it is stale or no transaction is open.
-- $1 resource, $2 fencing token
--
-- The row is locked until the transaction ends, be it changed or not. A statement that is a transaction of its own would
-- unlock it at once; it is one whose transaction began with it.
INSERT INTO {table} AS seen (resource, fence)
SELECT $1, $2
WHERE transaction_timestamp() <> statement_timestamp()
ON CONFLICT (resource) DO UPDATE SET fence = EXCLUDED.fence WHERE seen.fence <= EXCLUDED.fence
RETURNING fence
