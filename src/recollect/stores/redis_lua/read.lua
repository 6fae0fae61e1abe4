-- One snapshot of a window of a session.
--
-- KEYS  messages, counter, turns
-- ARGV  last or '', after or '', ttl_ms when reading restarts it or '', known, 'ask' or 'go on', 'joined' or 'apart'
-- Gives {last, first of the window, number of elements, elements}, or {'behind', last}.
--
-- The elements come joined by line ends, because one long string is parsed many times faster than many short ones;
-- records hold no line end, and if a foreign element does, the number tells and the caller asks for them apart.
local messages, counter, turns = KEYS[1], KEYS[2], KEYS[3]
local limit, after, ttl_ms, known = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local found = redis.call('HMGET', counter, 'last', 'floor', 'expires')
local last, floor, expires = tonumber(found[1]), tonumber(found[2]) or 0, tonumber(found[3])
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
    if now >= expires then floor = last end
  else
    redis.call('PEXPIREAT', messages, now + ttl_ms)
    redis.call('PEXPIREAT', turns, now + ttl_ms + 86400000)
    redis.call('HSET', counter, 'expires', now + ttl_ms)
  end
end

local from = floor + 1
if after and after >= from then from = after + 1 end
if limit and last - limit >= from then from = last - limit + 1 end
local window = last - from + 1
if window <= 0 then return {last, from, 0, {}} end
-- A list that is shorter than it must be is given whole: the caller finds the holes by the sequences in it.
local start = length == last - floor and -window or 0
local elements = redis.call('LRANGE', messages, start, -1)
if ARGV[6] == 'apart' then return {last, from, #elements, elements} end
local joined = {}
for index = 1, #elements, 5000 do
  joined[#joined + 1] = table.concat(elements, '\n', index, math.min(index + 4999, #elements))
end
return {last, from, #elements, joined}
