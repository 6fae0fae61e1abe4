-- Takes messages back: a tombstone in the place of each. ARGV from 9 on: their sequences, ascending.
-- Gives {'absent', sequence} if one of them has no message.
local answer = earlier()
if answer then return answer end
local was
was, answer = begin()
if answer then return answer end

-- Where the element of a sequence is, if it is a message's.
local function located(sequence)
  local low, high = 0, was.length - 1
  while low <= high do
    local middle = math.floor((low + high) / 2)
    local there, run = parsed(redis.call('LINDEX', messages, middle))
    if not there then return nil end
    if there == sequence then return not run and middle or nil end
    if there < sequence then low = middle + 1 else high = middle - 1 end
  end
  return nil
end

local function remove(index)
  redis.call('LSET', messages, index, '\1')
  redis.call('LREM', messages, index > was.length / 2 and -1 or 1, '\1')
  was.length = was.length - 1
  was.hidden = was.hidden + 1
end

for argument = 9, #ARGV do
  local sequence = tonumber(ARGV[argument])
  if sequence <= was.floor or not located(sequence) then return {'absent', sequence} end
end
for argument = 9, #ARGV do
  local sequence = tonumber(ARGV[argument])
  local index, first = located(sequence), sequence
  was.runs = was.runs + 1
  local before, run = nil, nil
  if index > 0 then before, run = parsed(redis.call('LINDEX', messages, index - 1)) end
  if run and before == sequence - 1 then
    first = run
    remove(index - 1)
    index = index - 1
    was.runs = was.runs - 1
  end
  local after, next_run = parsed(redis.call('LINDEX', messages, index + 1))
  if next_run == sequence + 1 then
    redis.call('LSET', messages, index + 1, tombstone(first, after))
    remove(index)
    was.runs = was.runs - 1
  else
    redis.call('LSET', messages, index, tombstone(first, sequence))
  end
end
local taken = mark(was)
return finish(was, taken, taken)
