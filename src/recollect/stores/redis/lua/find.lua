-- Elements that hold some bytes, the newest first, among at most 10,000 of them.
--
-- KEYS  messages, counter
-- ARGV  the bytes, or '' for all; the index to begin with, or ''
-- Gives {the index to go on with, or -1, elements, the session's floor or ''}.
local messages, counter, needle = KEYS[1], KEYS[2], ARGV[1]
local high = tonumber(ARGV[2]) or redis.call('LLEN', messages) - 1
local found, low = {}, math.max(0, high - 9999)
local elements = high >= 0 and redis.call('LRANGE', messages, low, high) or {}
for index = #elements, 1, -1 do
  if string.find(elements[index], needle, 1, true) then
    found[#found + 1] = elements[index]
    if #found == 100 then
      low = low + index - 1
      break
    end
  end
end
return {low - 1, found, redis.call('HGET', counter, 'floor') or ''}
