-- give_back.lua: undo allocations that were made ahead of need and not used.
-- KEYS[1] zset  eligible members, score = allocations so far
-- ARGV[1..]     members, once per allocation
-- Returns how many were undone, as a string
-- Writes  -1 per allocation of a member that is still there.  Cost  O(k log m), k given, m in the set

local undone = 0
for i = 1, #ARGV do
  -- A member that has left takes its count along; ZINCRBY would bring it back.
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    redis.call('ZINCRBY', KEYS[1], -1, ARGV[i])
    undone = undone + 1
  end
end
return tostring(undone)
