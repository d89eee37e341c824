-- One page of the keys under a prefix.
--
-- ARGV[1]  the cursor, 0 at first
-- ARGV[2]  the pattern
--
-- {the next cursor, 0 at the end; the keys}
return redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', '500')
