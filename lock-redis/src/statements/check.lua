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
  local failed = type(reply) == 'table' and reply.err
  if failed then
    failures[#failures + 1] = { string.lower((...)), failed }
  end
  return not failed
end

-- SET comes first: a script that has written is not refused any more for want of memory.
--
-- INCR makes a key without an end. So it is tried on one that has an end, or that is ended afterwards by a command
-- that was seen to work, or where keys are denied; else other rights have to be granted first.
local function try_all()
  local is_set = try('SET', key, '0', 'PX', '1000')
  local ended_by
  for _, command in ipairs({ { 'PEXPIREAT', key, '1' }, { 'PEXPIRE', key, '1000' }, { 'DEL', key } }) do
    ended_by = try(unpack(command)) and command or ended_by
  end
  if is_set or ended_by or not KEYS[1] then
    try('INCR', key)
    try('INCRBY', key, '1')
  end
  try('GET', key)
  try('PTTL', key)
  try('PEXPIRETIME', key)
  try('TIME')
  if ended_by then
    redis.call(unpack(ended_by))
  end
end

local info = redis.pcall('INFO')
local shown = type(info) == 'string'

-- A replica that was made writable would take the key, as it would take locks and forget them.
if not (shown and string.find(info, 'role:slave', 1, true)) then
  try_all()
end
return { shown and info, not shown and info.err, failures }
