-- What can refuse a row besides keys: checks and foreign keys. Schema or null, name
--
-- MySQL can have checks that it does not enforce. MariaDB has some that are part of a column and bear its name, and shows
-- the difference to those only who may do more than we.
SELECT
    CAST(constraint_name AS CHAR) AS name,
    constraint_type = 'FOREIGN KEY' AS is_foreign_key,
    FALSE /*M! OR constraint_type = 'CHECK' */ AS may_be_of_column
FROM information_schema.table_constraints
WHERE table_schema = COALESCE(?, DATABASE())
  AND table_name = ?
  AND constraint_type IN ('CHECK', 'FOREIGN KEY')
  /*!80016 AND enforced = 'YES' */
ORDER BY constraint_name
