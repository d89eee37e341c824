-- One page of the keys under a prefix.
--
-- ARGV[1]  the cursor, 0 at first
-- ARGV[2]  the pattern
--
-- {the next cursor, 0 at the end; the keys}
local reply = redis.pcall('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', '500')
if reply.err then
  -- Redis 7.0 does not say which right is missing, and no check looks for this one.
  return redis.error_reply(reply.err .. ' (scan)')
end
return reply
