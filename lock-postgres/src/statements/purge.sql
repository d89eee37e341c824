-- Deletes records of locks that have been free for long, some at a time, and says how many.
-- $1 how long, in microseconds; $2 how many at most
--
-- A record whose counter is ahead of the clock stays: without it the next fencing token would be smaller.
-- The conditions stand outside, too, because they are looked at again where a row changes in this moment.
WITH purged AS (
    DELETE FROM {table}
    WHERE name IN (
        SELECT name
        FROM {table}
        WHERE lock_until <= clock_timestamp() - $1::bigint * interval '1 microsecond'
          AND fence < (date_part('epoch', clock_timestamp()) * 1000000)::bigint
        LIMIT $2
    )
      AND lock_until <= clock_timestamp() - $1 * interval '1 microsecond'
      AND fence < (date_part('epoch', clock_timestamp()) * 1000000)::bigint
    RETURNING 1
)
SELECT count(*) FROM purged
