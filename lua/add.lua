-- add.lua: put members into the set that are not there yet; who is there keeps its count.
-- KEYS[1] zset  eligible members, score = allocations so far
-- ARGV[1] start "min" (the lowest score before this call, 0 when there is none) or the score itself
-- ARGV[2..]     members
-- Returns {how many were new, the start they were given}, both strings; the start serves the next call for the same list
-- Writes  one ZADD NX per member.  Cost  O(k log m), k members given, m in the set

local key, start = KEYS[1], ARGV[1]
if start == 'min' then
  start = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] or '0'
end
local number = tonumber(start)
if not number or number ~= number then
  return redis.error_reply('ERR add: the start must be "min" or a number')
end

local added = 0
for i = 2, #ARGV do
  added = added + redis.call('ZADD', key, 'NX', start, ARGV[i])
end
return {tostring(added), start}
