-- Copies a session. KEYS 5 to 8 are those of the source. ARGV from 9 on: upto, expect of the source or '', what is known
-- of the source, 'ask' or 'go on'. Gives {'nothing', last} if there is nothing to copy, {'taken', last} if the new session
-- was there, {'source', last} if the source is not where it is expected, {'source behind', last} if more is known of it.
local answer = earlier()
if answer then return answer end
local was
was, answer = begin()
if answer then return answer end

local upto, expected = tonumber(ARGV[9]), ARGV[10]
local found = redis.call('HMGET', KEYS[6], 'last', 'floor', 'metadata')
local newest, newest_run = parsed(redis.call('LINDEX', KEYS[5], -1))
local last = whole(found[1]) or newest or 0
local length = redis.call('LLEN', KEYS[5])
local oldest, oldest_run = parsed(redis.call('LINDEX', KEYS[5], 0))
local floor = whole(found[1]) and (whole(found[2]) or 0) or ((oldest_run or oldest or 1) - 1)
local known_of_source = tonumber(ARGV[11])
if known_of_source > last then -- see append.lua
  if ARGV[12] == 'ask' then return {'source behind', last} end
  if expected ~= '' then
    redis.call('HSET', KEYS[6], 'last', known_of_source, 'floor', floor)
    return {'source', known_of_source}
  end
  last = known_of_source
end
if expected ~= '' and tonumber(expected) ~= last then return {'source', last} end
if length == 0 then return {'nothing', last} end
if was.last > 0 then return {'taken', was.last} end

local ending = math.max(1, math.min(last, upto))
was.floor = math.min(floor, ending - 1)
local copied, elements, cut = was.floor, 0, false
for start = 0, length - 1, 1000 do
  local chunk = {}
  for _, element in ipairs(redis.call('LRANGE', KEYS[5], start, start + 999)) do
    local sequence, run = parsed(element)
    if sequence and sequence > math.min(ending, upto) then
      cut = run and run <= ending
      break
    end
    chunk[#chunk + 1] = element
    if run then was.runs = was.runs + 1 end
    copied = sequence or copied + 1
  end
  if #chunk == 0 then break end
  elements = redis.call('RPUSH', messages, unpack(chunk))
  if #chunk < 1000 then break end
end
if copied < ending and (cut or ending <= floor or upto < 1) then -- it ends within a run, or before the first message
  elements = redis.call('RPUSH', messages, tombstone(copied + 1, ending))
  was.runs = was.runs + 1
end
was.hidden = math.max(0, ending - was.floor - elements)
if found[3] then
  redis.call('HSET', counter, 'metadata', found[3])
  was.annotated = true
end
answer = finish(was, ending, ending)
renew(ttl_ms and was.now + ttl_ms)
return answer
