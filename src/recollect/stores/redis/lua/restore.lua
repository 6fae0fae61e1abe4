-- Writes a piece of a session that comes from another store, with its sequences (`recollect.moving`).
--
-- KEYS  messages, counter, turns, fingerprints
-- ARGV  base, last, floor, marked, created or '', updated or '', expires or '', metadata or '', elements, turns,
--       element…, then for each turn: its id, its place, its fingerprint or ''
-- Gives {'done', last}, or {'conflict', last} if the session is not at its base.
local messages, counter, turns, fingerprints = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local base, last, floor, marked = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local created, updated, expires, metadata = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local elements, remembered = tonumber(ARGV[9]), tonumber(ARGV[10])

local found = redis.call('HMGET', counter, 'last', 'floor', 'runs')
local length = redis.call('LLEN', messages)
redis.call('ZCARD', turns) -- a key of another type is an error now, not after the messages are written
redis.call('HLEN', fingerprints)
if tonumber(found[1] or '0') ~= base or (base == 0 and (found[1] or length > 0)) then
  return {'conflict', tonumber(found[1] or '0')}
end
if base > 0 then floor = tonumber(found[2] or '0') end

for start = 1, elements, 1000 do -- Lua's stack holds a few thousand arguments
  local chunk = {}
  for index = start, math.min(start + 999, elements) do chunk[#chunk + 1] = ARGV[10 + index] end
  length = redis.call('RPUSH', messages, unpack(chunk))
end
redis.call('HSET', counter, 'last', ARGV[2], 'floor', string.format('%.0f', floor),
  'hidden', string.format('%.0f', last - floor - length), 'runs', string.format('%.0f', (tonumber(found[3]) or 0) + marked))
if created ~= '' then redis.call('HSET', counter, 'created', created) end
if updated ~= '' then redis.call('HSET', counter, 'updated', updated) end
if metadata ~= '' then
  redis.call('HSET', counter, 'metadata', metadata)
  redis.call('HSET', counter, 'annotated', ARGV[2])
end
for index = 0, remembered - 1 do
  local at = 10 + elements + index * 3
  redis.call('ZADD', turns, ARGV[at + 2], ARGV[at + 1])
  if ARGV[at + 3] ~= '' then redis.call('HSET', fingerprints, ARGV[at + 2], ARGV[at + 3]) end
end
if expires ~= '' then
  redis.call('HSET', counter, 'expires', expires)
  redis.call('PEXPIREAT', messages, expires)
  redis.call('PEXPIREAT', turns, expires + 86400000)
  redis.call('PEXPIREAT', fingerprints, expires + 86400000)
end
return {'done', last}
