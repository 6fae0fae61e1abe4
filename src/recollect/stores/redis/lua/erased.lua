-- Sessions that were erased lately: a digest of each id, and when.
--
-- KEYS  traces (sorted set); to erase a session, also its keys
-- ARGV  digest; to erase, also how many traces are kept, for how many microseconds, and the expected position or ''
-- Gives how many microseconds ago the session was erased, or nothing if there is no trace of it. A session that was not
-- there leaves none. One that is not where it is expected is not erased: -1.
local traces, digest, most, life = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if not most then
  local at = redis.call('ZSCORE', traces, digest)
  return at and now - at
end
local last = ARGV[4] ~= '' and redis.call('HGET', KEYS[3], 'last')
if last and last ~= ARGV[4] then return -1 end
local there = 0
for index = 2, #KEYS do there = there + redis.call('UNLINK', KEYS[index]) end
if there == 0 then return nil end
redis.call('ZADD', traces, now, digest)
local dated = redis.call('ZRANGE', traces, 0, -1, 'WITHSCORES')
local over = math.max(0, #dated / 2 - most)
while now - dated[2 * over + 2] > life do over = over + 1 end -- never the new one
if over > 0 then redis.call('ZREMRANGEBYRANK', traces, 0, over - 1) end
redis.call('PEXPIREAT', traces, math.ceil((now + life) / 1000))
return 0
