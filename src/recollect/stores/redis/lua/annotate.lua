-- Sets the session's metadata. ARGV 9: JSON.
local answer = earlier()
if answer then return answer end
local was
was, answer = begin()
if answer then return answer end

local taken = mark(was)
redis.call('HSET', counter, 'metadata', ARGV[9])
was.annotated = true
answer = finish(was, taken, taken)
if not was.live then renew(ttl_ms and was.now + ttl_ms) end
return answer
