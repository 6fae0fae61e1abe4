-- Whether a session is 'live', 'expired', 'forgotten' or 'absent'. With ARGV 'sweep', one that expired is marked as such
-- and the answer is 'swept': the engine itself frees the messages at once, and the turn ids a day later. With
-- 'describe', the answer is {state, last, created, updated, metadata, annotated, floor}.
--
-- KEYS  messages, counter
local messages, counter = KEYS[1], KEYS[2]

local function state()
  if redis.call('EXISTS', messages) == 1 then return 'live' end
  local found = redis.call('HMGET', counter, 'last', 'expires', 'gone')
  local last, expires = found[1], tonumber(found[2])
  if found[3] then return found[3] end
  if not last then return 'absent' end
  if not expires then return 'live' end -- its messages are gone, and nothing explains it: reading says so
  local time = redis.call('TIME')
  if time[1] * 1000 + math.floor(time[2] / 1000) < expires then return 'live' end
  if ARGV[1] ~= 'sweep' then return 'expired' end
  redis.call('HSET', counter, 'floor', last, 'gone', 'expired')
  redis.call('HDEL', counter, 'expires', 'hidden', 'runs', 'metadata')
  return 'swept'
end

if ARGV[1] ~= 'describe' then return state() end
return {state(), unpack(redis.call('HMGET', counter, 'last', 'created', 'updated', 'metadata', 'annotated', 'floor'))}
