-- A write by all appearances, whatever is in the file: SQLite refuses it where the file cannot be written. (It does not
-- refuse BEGIN IMMEDIATE.) To be undone.
PRAGMA user_version = 0
