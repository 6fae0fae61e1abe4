-- Appends to several sessions, to all or to none.
--
-- KEYS  four of each session
-- ARGV  for each session: how many arguments, and the arguments of append.lua
-- Gives the answers of append.lua for each; or {'refused', which, answer} with nothing written.
local function append(KEYS, ARGV, checking)
--[[append.lua]]
end

local function stands_in_the_way(answer)
  return type(answer) == 'table' and answer[1] ~= 'retry'
end

local function each(checking)
  local answers, position = {}, 1
  for session = 1, #KEYS / 4 do
    local keys, arguments = {}, {}
    for index = 1, 4 do keys[index] = KEYS[4 * (session - 1) + index] end
    for index = 1, tonumber(ARGV[position]) do arguments[index] = ARGV[position + index] end
    position = position + #arguments + 1
    answers[session] = append(keys, arguments, checking)
    if stands_in_the_way(answers[session]) then return {'refused', session, answers[session]} end
  end
  return answers
end

local checked = each(true)
if checked[1] == 'refused' then return checked end
return each(false)
