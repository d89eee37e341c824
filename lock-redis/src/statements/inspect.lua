-- All that is known of one lock, at one moment.
--
-- KEYS[1]  the lock
--
-- {value, PTTL, its end in ms if the server can tell it, fencing counter, last tick, the server's seconds, and µs}
local lock = KEYS[1]
local time = redis.call('TIME')
local ends = redis.pcall('PEXPIRETIME', lock)
return {
  redis.call('GET', lock),
  redis.call('PTTL', lock),
  type(ends) == 'number' and ends,
  redis.call('GET', lock .. ':f'),
  redis.call('GET', lock .. ':t'),
  time[1],
  time[2],
}
