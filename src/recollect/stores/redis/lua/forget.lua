-- Removes a session's messages; its sequences and turn ids go on. An unknown session leaves nothing behind.
--
-- KEYS  messages, counter
-- ARGV  known, expect or '', 'ask' or 'go on'
-- Gives 0 or 1, or {'conflict', last} | {'behind', last}.
local messages, counter = KEYS[1], KEYS[2]
-- What the counter holds, where it is a number of ours: 'nan' and '1e400' are numbers to Lua.
local function whole(text) return text and #text < 16 and tonumber(string.match(text, '^%d+$')) or nil end

local known, expect = tonumber(ARGV[1]), ARGV[2]
local last = whole(redis.call('HGET', counter, 'last'))
if not last then
  local newest = redis.call('LINDEX', messages, -1)
  if not newest and known == 0 then
    if expect ~= '' and expect ~= '0' then return {'conflict', 0} end
    return 0
  end
  last = newest and (tonumber(string.match(newest, '^(%d+) ')) or redis.call('LLEN', messages)) or 0
end
if known > last then -- see append.lua
  if ARGV[3] == 'ask' then return {'behind', last} end
  if expect ~= '' then
    redis.call('HSET', counter, 'last', known)
    return {'conflict', known}
  end
  last = known
end
if expect ~= '' and tonumber(expect) ~= last then return {'conflict', last} end
local time = redis.call('TIME')
redis.call('UNLINK', messages)
redis.call('HSET', counter, 'last', last, 'floor', last, 'gone', 'forgotten',
  'updated', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HDEL', counter, 'expires', 'hidden', 'runs', 'metadata')
return 1
