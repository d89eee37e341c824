-- Moves the ends of leases, never back: as many rows are found as leases were renewed. What comes back as the last insert
-- id is the statement's time in microseconds, by which the renewed ones are told from the others; the last condition, which
-- is always true, sees to that.
-- {leases}: name, token and time to live in microseconds of each, or three nulls, {most}: how many
--
-- Each row is looked up by its key, whatever the number of leases: what is asked comes first, as a table, with names that are
-- compared as the key is. In MySQL that table cannot be one of JSON: an update with JSON_TABLE wants a database to be chosen.
--
-- A row that another session keeps locked is left out instead of waited for: the other leases would run out meanwhile, with
-- their rows locked by the one who waits. So no two of these wait for each other either. An update cannot leave rows out, and
-- so takes those that a select has locked. The limit, which is never reached, keeps MySQL from making one of the two, which
-- would wait; the index and the order of the join keep MariaDB from looking at, and locking, the rows of others.
UPDATE
    (
        SELECT held.name, asked.ttl
        FROM
            ({leases}) AS asked
            STRAIGHT_JOIN {table} AS held FORCE INDEX (PRIMARY)
            ON held.name = asked.name COLLATE /*!80017 utf8mb4_0900_bin */ /*M! utf8mb4_nopad_bin */
        WHERE held.token = asked.token
          AND held.resting = 0
          AND held.lock_until > UTC_TIMESTAMP(6)
          AND LAST_INSERT_ID(CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS UNSIGNED))
        LIMIT {most}
        FOR UPDATE /*!80000 OF held */ SKIP LOCKED
    ) AS ours
    STRAIGHT_JOIN {table} AS lease FORCE INDEX (PRIMARY) ON lease.name = ours.name
SET lease.lock_until = GREATEST(lease.lock_until, TIMESTAMPADD(MICROSECOND, ours.ttl, UTC_TIMESTAMP(6)))
