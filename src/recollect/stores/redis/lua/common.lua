-- What the changes that are no appends have in common; each of their files follows on this one.
--
-- KEYS  messages, counter, turns, fingerprints
-- ARGV  turns_kept, ttl_ms or '', refresh, expect or '', turn or '', known, 'ask' or 'go on', fingerprint or '', …
-- Gives {'done', first, last}, or what append.lua gives when nothing is written.
--
-- An element "<last> \0<first>" is a tombstone: sequences first to last have no message. Tombstones that touch are
-- joined. The counter has `runs`, how many there are, and `hidden`, how many sequences have no element of their own; and
-- `annotated`, a sequence above the floor if there is metadata: metadata that is missing is then missed.
local messages, counter, turns, fingerprints = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local turns_kept, ttl_ms, refresh = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local expect, turn, known, fingerprint = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[8]

local function field(place) return string.format('%.0f', place) end
local function whole(text) return text and #text < 16 and tonumber(string.match(text, '^%d+$')) or nil end
local function milliseconds()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The sequence of an element, and where its run begins if it is a tombstone.
local function parsed(element)
  local sequence, run = string.match(element or '', '^(%d+) %z(%d+)$')
  if run then return tonumber(sequence), tonumber(run) end
  return tonumber(string.match(element or '', '^(%d+) ')), nil
end

local function tombstone(first, last) return string.format('%.0f', last) .. ' \0' .. string.format('%.0f', first) end

-- The turn, if it is known.
local function earlier()
  if turn == '' then return nil end
  local place = redis.call('ZSCORE', turns, turn)
  redis.call('HLEN', fingerprints)
  if not place then return nil end
  local known_as = redis.call('HGET', fingerprints, field(place))
  if known_as and known_as ~= fingerprint then return {'reused'} end
  local marked = redis.pcall('HINCRBY', counter, 'retries', 1)
  return {'retry', place, type(marked) == 'number' and 1 or 0}
end

-- What is there: last, floor, hidden, runs, expires, length, now, live; or the answer that ends the change.
local function begin()
  local found = redis.call('HMGET', counter, 'last', 'floor', 'hidden', 'runs', 'expires', 'created', 'annotated')
  local was = {
    last = whole(found[1]), floor = whole(found[2]) or 0, hidden = whole(found[3]) or 0, runs = whole(found[4]) or 0,
    expires = whole(found[5]), created = found[6], length = redis.call('LLEN', messages), now = milliseconds(),
  }
  if not was.last then -- see append.lua
    was.last = parsed(redis.call('LINDEX', messages, -1)) or 0
    local oldest, run = parsed(redis.call('LINDEX', messages, 0))
    was.floor = (run or oldest or 1) - 1
  end
  if known > was.last then
    if ARGV[7] == 'ask' then return nil, {'behind', was.last} end
    if expect ~= '' then -- see append.lua
      redis.call('HSET', counter, 'last', known, 'floor', was.floor)
      return nil, {'conflict', known}
    end
    was.last = known
  end
  if expect ~= '' and tonumber(expect) ~= was.last then return nil, {'conflict', was.last} end
  if was.last + 10001 >= 549755813888 then return nil, {'full', was.last} end
  was.live = was.length > 0
  if not was.live and was.expires and was.now >= was.expires then
    was.floor, was.hidden, was.runs, was.ended = was.last, 0, 0, true
  end
  was.annotated = (whole(found[7]) or 0) > was.floor
  return was, nil
end

-- The end of every change: counters, times, and the turn.
local function finish(was, first, last)
  redis.call('HSET', counter, 'last', last, 'floor', was.floor, 'hidden', was.hidden, 'runs', was.runs,
    'updated', was.now)
  if was.annotated then redis.call('HSET', counter, 'annotated', last) end
  if not was.created and was.last == 0 then redis.call('HSET', counter, 'created', was.now) end
  redis.call('HDEL', counter, 'gone')
  if turn ~= '' then
    local place = first * 16384 + (last - first) % 16384
    redis.call('ZADD', turns, place, turn)
    redis.call('HSET', fingerprints, field(place), fingerprint)
    local beyond = redis.call('ZCARD', turns) - turns_kept
    if beyond > 0 then
      local pruned = redis.call('ZRANGE', turns, 0, beyond - 1, 'WITHSCORES')
      redis.call('ZREMRANGEBYRANK', turns, 0, beyond - 1)
      for index = 2, #pruned, 2 do redis.call('HDEL', fingerprints, field(pruned[index])) end
    end
  end
  return {'done', first, last}
end

-- When the session expires, where the change renews that or makes the session.
local function renew(expires)
  if expires then
    redis.call('HSET', counter, 'expires', expires)
    redis.call('PEXPIREAT', messages, expires)
    redis.call('PEXPIREAT', turns, expires + 86400000)
    redis.call('PEXPIREAT', fingerprints, expires + 86400000)
  else
    redis.call('HDEL', counter, 'expires')
    redis.call('PERSIST', messages)
    redis.call('PERSIST', turns)
    redis.call('PERSIST', fingerprints)
  end
end

-- A tombstone for the sequence that the change itself takes, at the end of the list.
local function mark(was)
  local sequence, run = parsed(redis.call('LINDEX', messages, -1))
  local taken = was.last + 1
  if run and sequence == was.last then
    redis.call('LSET', messages, -1, tombstone(run, taken))
    was.hidden = was.hidden + 1
  else
    redis.call('RPUSH', messages, tombstone(taken, taken))
    was.runs = was.runs + 1
  end
  return taken
end
