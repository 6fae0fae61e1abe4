-- Other messages in the place of all. ARGV from 9 on: their records; none is fine.
local answer = earlier()
if answer then return answer end
local was
was, answer = begin()
if answer then return answer end

local count, first = #ARGV - 8, was.last + 1
redis.call('UNLINK', messages)
was.floor, was.hidden, was.runs = was.last, 0, 0
for start = 1, count, 1000 do -- Lua's stack holds a few thousand arguments
  local chunk = {}
  for index = start, math.min(start + 999, count) do
    chunk[#chunk + 1] = string.format('%.0f', was.last + index) .. ' ' .. ARGV[8 + index]
  end
  redis.call('RPUSH', messages, unpack(chunk))
end
if count == 0 then mark(was) end
if was.ended then redis.call('HDEL', counter, 'metadata') end
answer = finish(was, first, was.last + math.max(count, 1))
if not ttl_ms then
  renew(nil)
elseif was.live and was.expires and refresh == 'never' then
  renew(was.expires)
else
  renew(was.now + ttl_ms)
end
return answer
