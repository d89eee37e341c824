-- Takes a lock.
--
-- KEYS[1]  the lock
-- ARGV[1]  the value to store: token, 'h', owner
-- ARGV[2]  the lease in ms
-- ARGV[3]  the tick as 20 digits, if the lock is taken for one
--
-- Granted: the fencing token, an integer. Held: {the holder's value, its PTTL}. The tick was granted before: the last
-- one, a string. Large numbers never pass through tostring, which would round them; integers are exact to 2^53, that
-- is µs until the year 2255.
--
-- The keys beside the lock are made from its name instead of being passed: the hash tag keeps them in its slot, and
-- the command stays under 200 bytes.
local lock, value, lease, tick = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local counter, ticks = lock .. ':f', tick and lock .. ':t'
local HOUR, DAY = 3600000, 86400000

-- The fence: max(stored + 1, the server's time in µs). A new lock's end gives the time for less than TIME does, but in
-- whole ms: good enough to count on from, while a counter that was lost within the same ms needs the µs to grow. With a
-- new lock the tick is stored, too.
local function next_fence(new)
  local stored = redis.call('INCR', counter)
  local ends = new and stored > 1 and redis.pcall('PEXPIRETIME', lock)
  local now
  if type(ends) == 'number' then
    now = (ends - lease) * 1000
  else
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  local fence = stored
  if now > stored then
    fence = redis.call('INCRBY', counter, now - stored)
  end
  -- The counter outlives the lease by two days at least, counted from its own value: by then the server's time is past
  -- it, so that nothing is lost with it. Once an hour is often enough.
  if lease > HOUR or fence % (1000 * HOUR) < fence - stored then
    redis.call('PEXPIREAT', counter, math.floor(fence / 1000) + lease + 2 * DAY)
  end
  if new and tick then
    redis.call('SET', ticks, tick, 'PX', lease + 31 * DAY)
  end
  return fence
end

-- Ticks are compared as text: a number of Lua is exact to 2^53 only.
local last = tick and redis.call('GET', ticks)
local done = last and tick <= last

if not done and redis.call('SET', lock, value, 'NX', 'PX', ARGV[2]) then
  local ok, fence = pcall(next_fence, true)
  if ok then
    return fence
  end
  -- No grant without its fence.
  redis.call('DEL', lock)
  return type(fence) == 'table' and fence or redis.error_reply(fence)
end

local holder = redis.call('GET', lock)
if holder and string.sub(holder, 1, 33) == string.sub(value, 1, 33) then
  if redis.call('PTTL', lock) < lease then
    redis.call('PEXPIRE', lock, ARGV[2])
  end
  return tonumber(redis.call('GET', counter) or next_fence(false))
end
if done then
  return last
end
return { holder, redis.call('PTTL', lock) }
