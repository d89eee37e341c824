CREATE TABLE IF NOT EXISTS {table} (
    -- Compared byte for byte, to the last blank: MySQL and MariaDB each have a collation of their own for that, and each
    -- reads the other's as a comment.
    name varchar(255) CHARACTER SET utf8mb4 COLLATE /*!80017 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */ NOT NULL PRIMARY KEY,
    -- The lease's end, by the server's clock, in UTC whatever the session's time zone. Past: the lock is free.
    lock_until datetime(6) NOT NULL COMMENT 'UTC',
    locked_at datetime(6) NOT NULL COMMENT 'UTC',
    -- For people; what counts is the token, which is new for each acquisition.
    locked_by varchar(255) CHARACTER SET utf8mb4 NOT NULL,
    token binary(16) NOT NULL,
    -- The fencing token: greater with every grant.
    fence bigint unsigned NOT NULL,
    -- The greatest tick granted so far.
    last_tick bigint,
    -- Released, but kept from others until lock_until.
    resting boolean NOT NULL DEFAULT false
)
ENGINE = InnoDB COMMENT = 'Locks of distlock; times are UTC';
