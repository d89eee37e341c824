-- Moves the end of a lease to now + the given time, never back.
--
-- KEYS[1]  the lock
-- ARGV[1]  token, 'h'
-- ARGV[2]  the time in ms
--
-- Renewed: 1. Lost: the present holder's value, or nil.
local lock, lease = KEYS[1], tonumber(ARGV[2])
local counter = lock .. ':f'
local DAY = 86400000

local holder = redis.call('GET', lock)
if not holder or string.sub(holder, 1, 33) ~= ARGV[1] then
  return holder
end
if redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, ARGV[2])
end
-- A lease that is renewed for days keeps its fencing counter.
if redis.call('PTTL', counter) < lease + DAY then
  redis.call('PEXPIRE', counter, lease + 2 * DAY)
end
return 1
