-- Moves the ends of leases, never back: as many rows are found as leases are still in force.
-- {times}: name, token and time to live in microseconds of each; {leases}: name and token of each
--
-- Ranges of the primary key are taken in its order, so that two of these cannot wait for each other. A list of pairs
-- instead of the alternatives would be a look at every row on MariaDB where there is one pair only.
UPDATE {table}
SET lock_until = GREATEST(lock_until, TIMESTAMPADD(MICROSECOND, CASE {times} END, UTC_TIMESTAMP(6)))
WHERE ({leases}) AND resting = 0 AND lock_until > UTC_TIMESTAMP(6)
