-- Ends a lease, or lets it rest.
--
-- KEYS[1]  the lock
-- ARGV[1]  the token
-- ARGV[2]  for how many ms the lock rests, 0 to free it
--
-- Released, or resting already: 1. Not held: the present holder's value, or nil.
local lock, token, linger = KEYS[1], ARGV[1], ARGV[2]

local holder = redis.call('GET', lock)
if not holder or string.sub(holder, 1, 32) ~= token then
  return holder
end
if string.sub(holder, 33, 33) == 'h' then
  if linger == '0' then
    redis.call('DEL', lock)
  else
    redis.call('SET', lock, token .. 'r' .. string.sub(holder, 34), 'PX', linger)
  end
end
return 1
