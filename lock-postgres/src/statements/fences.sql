CREATE TABLE IF NOT EXISTS {table} (
    -- Compared byte for byte, whatever the database's collation.
    resource text COLLATE "C" NOT NULL PRIMARY KEY,
    -- The greatest fencing token that was let in.
    fence bigint NOT NULL
)
-- Room in every page, so that a row can be updated where it is.
WITH (fillfactor = 70);
