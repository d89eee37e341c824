-- Runs each command that the other scripts need, on a key that is no lock's, and reads the server's settings.
--
-- KEYS[1]  the key; ARGV[1] instead where its use is denied, so that the commands can be tried all the same
--
-- {INFO or nil, why there is none or nil, {{a command, why it failed}, …}}. A command that failed does not keep the
-- next from being tried.
local key = KEYS[1] or ARGV[1]
local failures = {}

local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    failures[#failures + 1] = { string.lower((...)), reply.err }
  end
end

local info = redis.pcall('INFO')
local shown = type(info) == 'string'

-- A replica that was made writable would take the key, as it would take locks and forget them.
if not (shown and string.find(info, 'role:slave', 1, true)) then
  try('SET', key, '0', 'PX', '1000')
  try('INCR', key)
  try('INCRBY', key, '1')
  try('GET', key)
  try('PTTL', key)
  try('PEXPIRE', key, '1000')
  try('PEXPIREAT', key, '1')
  try('PEXPIRETIME', key)
  try('TIME')
  try('DEL', key)
end
return { shown and info, not shown and info.err, failures }
