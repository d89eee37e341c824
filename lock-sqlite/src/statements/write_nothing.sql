-- A write by all appearances: SQLite refuses it where the file cannot be written. (It does not refuse BEGIN IMMEDIATE.)
DELETE FROM {table} WHERE false
