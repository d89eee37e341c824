-- Runs a body for a holder whose fencing token is not stale.
--
-- KEYS[1]  the fence: the greatest token that was let in
-- ARGV[1]  the token
--
-- The body sees what follows these as its KEYS and ARGV. Let in: {1, what the body returns}. Stale: {0, the fence}.
local fence, token = table.remove(KEYS, 1), table.remove(ARGV, 1)

local function body()
{body}
end

-- The greatest token: 2^64 - 1.
local MAX = '18446744073709551615'

-- Numbers are compared as text, the shorter one first: a number of Lua is exact to 2^53 only.
local seen = redis.call('GET', fence)
if seen then
  local is_whole = seen == '0' or string.find(seen, '^[1-9]%d*$')
  if not is_whole or #seen > #MAX or (#seen == #MAX and seen > MAX) then
    return redis.error_reply('FENCE the key ' .. fence .. ' holds no fencing token')
  end
  if #token < #seen or (#token == #seen and token < seen) then
    return { 0, seen }
  end
end
if seen ~= token then
  redis.call('SET', fence, token)
end
return { 1, (body()) }
