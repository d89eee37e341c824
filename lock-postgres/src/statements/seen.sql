-- Why a fencing token was not let in: one row.
-- $1 resource
SELECT
    transaction_timestamp() <> statement_timestamp() AS in_transaction,
    (SELECT fence FROM {table} WHERE resource = $1) AS fence
