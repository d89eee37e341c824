-- Frees a lock whoever holds it.
--
-- KEYS[1]  the lock
-- ARGV[1]  only if this is its fencing token, where given
--
-- Freed: the former holder's value. Nobody had it: nil. Other fencing token: {the present one, or nil}.
local lock, only_if = KEYS[1], ARGV[1]

local holder = redis.call('GET', lock)
if not holder then
  return holder
end
if only_if then
  -- The counter is of the last grant, and says nothing of a value that was not granted here.
  local ours = string.find(string.sub(holder, 1, 33), '^' .. string.rep('%x', 32) .. '[hr]$')
  local fence = ours and redis.call('GET', lock .. ':f')
  if fence ~= only_if then
    return { fence or false }
  end
end
redis.call('DEL', lock)
return holder
