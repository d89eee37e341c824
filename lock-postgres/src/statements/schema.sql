CREATE TABLE IF NOT EXISTS {table} (
    -- Compared byte for byte, whatever the database's collation.
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    -- The lease's end, by the server's clock. Past: the lock is free.
    lock_until timestamptz NOT NULL,
    locked_at timestamptz NOT NULL,
    -- For people; what counts is the token, which is new for each acquisition.
    locked_by text NOT NULL,
    token bytea NOT NULL,
    -- The fencing token: greater with every grant.
    fence bigint NOT NULL,
    -- The greatest tick granted so far.
    last_tick bigint,
    -- Released, but kept from others until lock_until.
    resting boolean NOT NULL DEFAULT false
)
-- Room in every page, so that a row can be updated where it is.
WITH (fillfactor = 70);
