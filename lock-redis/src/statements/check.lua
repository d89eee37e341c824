-- Runs each command that the other scripts need, on a key that is no lock's.
--
-- KEYS[1]  the key
--
-- 1, or the error with the command that failed
local key = KEYS[1]

-- A replica that was made writable would take the locks and forget them.
local info = redis.pcall('INFO', 'replication')
if type(info) == 'string' and string.find(info, 'role:slave', 1, true) then
  return redis.error_reply('READONLY the server is a replica')
end

local commands = {
  { 'SET', key, '0', 'NX', 'PX', '1000' },
  { 'INCR', key },
  { 'INCRBY', key, '1' },
  { 'GET', key },
  { 'PTTL', key },
  { 'PEXPIRE', key, '1000' },
  { 'PEXPIREAT', key, '1' },
  { 'TIME' },
  { 'DEL', key },
}
for _, command in ipairs(commands) do
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then
    redis.pcall('DEL', key)
    return redis.error_reply(reply.err .. ' (' .. command[1] .. ')')
  end
end
return 1
