-- A grant that is rehearsed: one row where the table keeps what a grant writes. Nothing is left of it.
-- {insert} and {acquire}: a first grant and another; name, token
START TRANSACTION;
{insert};
{acquire};
SELECT TRUE FROM {table}
WHERE name = ? AND token = ? AND fence = LAST_INSERT_ID() AND resting = 0 AND lock_until > UTC_TIMESTAMP(6);
ROLLBACK
