-- Appends one turn. Every check comes before the first write, so an error leaves nothing half done.
--
-- KEYS  messages (list), counter (hash), turns (sorted set), fingerprints (hash), all in one cluster slot
-- ARGV  turns_kept, ttl_ms or '', refresh, expect or '', turn or '', known, 'ask' or 'go on', fingerprint or '', record…
-- Gives the turn's last sequence, or {'retry', place, marked} | {'reused'} | {'conflict', last} | {'behind', last} |
-- {'full', last}.
--
-- An element of the list is "<sequence> <record>": a message that is gone leaves a hole that can be seen.
-- A fingerprint's field is its turn's place, which no other turn ever has: one that a release without fingerprints left
-- behind is never taken for another turn's.
--
-- The counter has also `floor` (what is up to it is gone on purpose), `hidden` and `runs` (see common.lua), `created` and
-- `updated` (milliseconds), `metadata`, `annotated`, `gone` and `expires`.
--
-- `appends.lua` and `many.lua` have this whole file as a function. The second calls it twice for each session: up to the
-- line that says so, and whole.
local messages, counter, turns, fingerprints = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local turns_kept, ttl_ms, refresh = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local expect, turn, known = ARGV[4], ARGV[5], tonumber(ARGV[6])
local fingerprint, count = ARGV[8], #ARGV - 8

local function field(place) return string.format('%.0f', place) end

-- Turns beyond those that are kept, and their fingerprints.
local function prune(beyond)
  local pruned = redis.call('ZRANGE', turns, 0, beyond - 1, 'WITHSCORES')
  redis.call('ZREMRANGEBYRANK', turns, 0, beyond - 1)
  for index = 2, #pruned, 2 do redis.call('HDEL', fingerprints, field(pruned[index])) end
  if redis.call('HLEN', fingerprints) <= turns_kept then return end
  local oldest = tonumber(redis.call('ZRANGE', turns, 0, 0, 'WITHSCORES')[2]) -- a release without them pruned turns
  for _, place in ipairs(redis.call('HKEYS', fingerprints)) do
    if tonumber(place) < oldest then redis.call('HDEL', fingerprints, place) end
  end
end

if turn ~= '' then
  local place = redis.call('ZSCORE', turns, turn)
  redis.call('HLEN', fingerprints) -- a key of another type is an error now, not after the messages are written
  if place then
    local known_as = redis.call('HGET', fingerprints, field(place)) -- none where an earlier release wrote the turn
    if known_as and known_as ~= fingerprint then return {'reused'} end
    -- A write, so that WAIT and WAITAOF, which look at this connection's last write, cover the first one too.
    local marked = redis.pcall('HINCRBY', counter, 'retries', 1)
    return {'retry', place, type(marked) == 'number' and 1 or 0}
  end
end

-- What the counter holds, where it is a number of ours: 'nan' and '1e400' are numbers to Lua.
local function whole(text) return text and #text < 16 and tonumber(string.match(text, '^%d+$')) or nil end

local found = redis.call('HMGET', counter, 'last', 'expires', 'created')
local last, expires, floor = whole(found[1]), whole(found[2]), nil
if not last then -- a new session, or one whose counter was evicted or deleted: the list still knows
  local newest, oldest = redis.call('LINDEX', messages, -1), redis.call('LINDEX', messages, 0)
  last = newest and tonumber(string.match(newest, '^(%d+) ')) or 0
  floor = (oldest and tonumber(string.match(oldest, '^(%d+) ')) or 1) - 1
end

if known > last then -- the caller was given more than the engine still knows
  if ARGV[7] == 'ask' then return {'behind', last} end
  if expect ~= '' then -- others may have written since, below what is known here: the caller has to read again
    redis.call('HSET', counter, 'last', known)
    if floor then redis.call('HSET', counter, 'floor', floor) end
    return {'conflict', known}
  end
  last = known
end
if expect ~= '' and tonumber(expect) ~= last then return {'conflict', last} end
-- Numbers are doubles here: above this a turn's place, which is sequence * 16384 + count, would be rounded.
if last + count >= 549755813888 then return {'full', last} end

-- up to here nothing is written
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local first, length = last + 1, 0
if count == 1 then
  length = redis.call('RPUSH', messages, first .. ' ' .. ARGV[9])
else
  for start = 1, count, 1000 do -- Lua's stack holds a few thousand arguments
    local chunk = {}
    for index = start, math.min(start + 999, count) do
      chunk[#chunk + 1] = (last + index) .. ' ' .. ARGV[8 + index]
    end
    length = redis.call('RPUSH', messages, unpack(chunk))
  end
end
last = last + count
redis.call('HSET', counter, 'last', last, 'updated', now)

local new = length == count
if new then
  if expires and now >= expires then
    floor = first - 1
    redis.call('HDEL', counter, 'hidden', 'runs', 'metadata')
  end
  redis.call('HDEL', counter, 'gone')
  if not found[3] and first == 1 then redis.call('HSET', counter, 'created', now) end
end
if floor then redis.call('HSET', counter, 'floor', floor) end
if turn ~= '' then
  local place = first * 16384 + count - 1
  redis.call('ZADD', turns, place, turn)
  redis.call('HSET', fingerprints, field(place), fingerprint)
  local beyond = redis.call('ZCARD', turns) - turns_kept
  if beyond > 0 then prune(beyond) end
end
if ttl_ms then
  if new or not expires or refresh ~= 'never' then
    expires = now + ttl_ms
    redis.call('PEXPIREAT', messages, expires)
    redis.call('HSET', counter, 'expires', expires)
  end
  redis.call('PEXPIREAT', turns, expires + 86400000) -- a retry may come after the expiry: a day is kept for it
  redis.call('PEXPIREAT', fingerprints, expires + 86400000)
elseif expires then
  redis.call('PERSIST', messages)
  redis.call('PERSIST', turns)
  redis.call('PERSIST', fingerprints)
  redis.call('HDEL', counter, 'expires')
end
return last
