-- Appends one turn to each of some sessions. Each stands for itself: what one of them is refused leaves the others be.
--
-- KEYS  four of each session
-- ARGV  turns_kept, ttl_ms or '', refresh; for each session how many arguments follow, and those: what append.lua
--       takes after these three, or just known and one record
-- Gives append.lua's answer; where there are several sessions, a list of their answers, errors among them.
local call, find, format = redis.call, string.find, string.format

local function append(KEYS, ARGV)
--[[append.lua]]
end

local now

-- What append.lua does with one record, without a turn id, an expected position or a time to live, in a session that is
-- as the last append has left it: nearly always. Otherwise nil, and nothing is written.
local function plain(messages, counter, known, record)
  local found = call('HMGET', counter, 'last', 'expires')
  local last = found[1]
  if not last or found[2] or #last > 9 or not find(last, '^[1-9]%d*$') or known - last > 0 then return nil end
  if not now then
    local time = call('TIME')
    now = format('%s%03d', time[1], time[2] / 1000)
  end
  last = last + 1
  local written = format('%d', last) -- a number would be printed as a fraction might be, which takes longer
  local length = call('RPUSH', messages, written .. ' ' .. record)
  call('HSET', counter, 'last', written, 'updated', now)
  if length == 1 then call('HDEL', counter, 'gone') end
  return last
end

local function turn(session, from, count)
  local key = 4 * session - 3
  local known, record = ARGV[from], ARGV[from + 1]
  if count == 2 and ARGV[2] == '' then
    local last = plain(KEYS[key], KEYS[key + 1], known, record)
    if last then return last end
  end
  local keys = {KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3]}
  if count == 2 then return append(keys, {ARGV[1], ARGV[2], ARGV[3], '', '', known, 'ask', '', record}) end
  local arguments = {ARGV[1], ARGV[2], ARGV[3]}
  for index = 0, count - 1 do arguments[4 + index] = ARGV[from + index] end
  return append(keys, arguments)
end

if #KEYS == 4 then return turn(1, 5, #ARGV - 4) end

local answers, position = {}, 4
for session = 1, #KEYS / 4 do
  local count = tonumber(ARGV[position])
  local ok, answer = pcall(turn, session, position + 1, count)
  if not ok then answer = {err = type(answer) == 'table' and answer.err or answer} end
  answers[session] = answer
  position = position + count + 1
end
return answers
