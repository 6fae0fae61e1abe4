-- Removes a session's messages; its sequences and turn ids go on. An unknown session leaves nothing behind.
--
-- KEYS  messages, counter
-- ARGV  known, expect or ''
-- Gives 0 or 1, or {'conflict', last}.
local messages, counter = KEYS[1], KEYS[2]
-- What the counter holds, where it is a number of ours: 'nan' and '1e400' are numbers to Lua.
local function whole(text) return text and #text < 16 and tonumber(string.match(text, '^%d+$')) or nil end

local last = whole(redis.call('HGET', counter, 'last'))
if not last then
  local newest = redis.call('LINDEX', messages, -1)
  if not newest then
    if ARGV[2] ~= '' and ARGV[2] ~= '0' then return {'conflict', 0} end
    return 0
  end
  last = tonumber(string.match(newest, '^(%d+) ')) or redis.call('LLEN', messages)
end
if ARGV[2] ~= '' and tonumber(ARGV[1]) > last then -- see append.lua
  redis.call('HSET', counter, 'last', ARGV[1])
  return {'conflict', tonumber(ARGV[1])}
end
last = math.max(last, tonumber(ARGV[1]))
if ARGV[2] ~= '' and tonumber(ARGV[2]) ~= last then return {'conflict', last} end
local time = redis.call('TIME')
redis.call('UNLINK', messages)
redis.call('HSET', counter, 'last', last, 'floor', last, 'gone', 'forgotten',
  'updated', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HDEL', counter, 'expires', 'hidden', 'runs', 'metadata')
return 1
