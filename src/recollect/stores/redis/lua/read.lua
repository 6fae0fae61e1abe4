-- One snapshot of a window of a session.
--
-- KEYS  messages, counter, turns, fingerprints
-- ARGV  last or '', after or '', ttl_ms when reading restarts it or '', known, 'ask' or 'go on'
-- Gives {last, first of the window, elements, tombstones}, or {'behind', last}. The number of tombstones is what the
-- counter says if it says none or these are all elements, else -1.
local messages, counter, turns, fingerprints = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit, after, ttl_ms, known = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- What the counter holds, where it is a number of ours: 'nan' and '1e400' are numbers to Lua.
local function whole(text) return text and #text < 16 and tonumber(string.match(text, '^%d+$')) or nil end

local found = redis.call('HMGET', counter, 'last', 'floor', 'expires', 'hidden', 'runs')
local last, floor, expires = whole(found[1]), whole(found[2]) or 0, whole(found[3])
local hidden, runs = whole(found[4]) or 0, whole(found[5]) or 0
local length = redis.call('LLEN', messages)
if not last then -- see append.lua
  last = 0
  if length > 0 then
    last = tonumber(string.match(redis.call('LINDEX', messages, -1), '^(%d+) ')) or length
    floor = (tonumber(string.match(redis.call('LINDEX', messages, 0), '^(%d+) ')) or 1) - 1
  end
end
if known > last then
  if ARGV[5] == 'ask' then return {'behind', last} end
  last = known
end
if expires and (length == 0 or ttl_ms) then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if length == 0 then
    if now >= expires then floor, hidden, runs = last, 0, 0 end
  else
    -- An engine that takes no writes just now must still be readable.
    if type(redis.pcall('HSET', counter, 'expires', now + ttl_ms)) == 'number' then
      redis.call('PEXPIREAT', messages, now + ttl_ms)
      redis.call('PEXPIREAT', turns, now + ttl_ms + 86400000)
      redis.call('PEXPIREAT', fingerprints, now + ttl_ms + 86400000)
    end
  end
end

-- Whatever ends messages removes the list. One that begins before the floor shows that the floor has changed on the disk.
if length > 0 and length > last - floor - hidden then
  local oldest = redis.call('LINDEX', messages, 0)
  local begin = whole(string.match(oldest, '^%d+ %z(%d+)$') or string.match(oldest, '^(%d+) '))
  if begin and begin <= floor then floor = begin - 1 end
end
local from = floor + 1
if after and after >= from then from = after + 1 end
-- A list that is not as long as it must be is given whole: the caller finds the holes by the sequences in it, and the
-- newest that are there among them.
local complete = length == last - floor - hidden
if limit and (limit == 0 or (complete and runs == 0)) and last - limit >= from then from = last - limit + 1 end
local window = last - from + 1
if window <= 0 then return {last, from, {}, -1} end
if not complete then return {last, from, redis.call('LRANGE', messages, 0, -1), -1} end
-- Between two tombstones there is a message, so as many elements as this hold the last ones.
if limit and runs > 0 then window = math.min(window, limit + math.min(runs, limit + 1)) end
local elements = redis.call('LRANGE', messages, -window, -1)
if limit and runs > 0 and #elements < length then
  local begin = string.match(elements[1], '^%d+ %z(%d+)$') or string.match(elements[1], '^(%d+) ')
  from = math.max(from, tonumber(begin) or from)
end
return {last, from, elements, found[1] and (runs == 0 or #elements == length) and runs or -1}
