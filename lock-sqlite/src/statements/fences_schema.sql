CREATE TABLE IF NOT EXISTS {table} (
    resource TEXT    NOT NULL PRIMARY KEY, -- what is protected, compared byte for byte
    fence    INTEGER NOT NULL              -- the greatest fencing token that was let in
) WITHOUT ROWID;
