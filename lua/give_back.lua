-- give_back.lua: undo allocations that were made ahead of need and not used.
-- KEYS[1] zset  eligible members, score = allocations so far; of a member with ?weight=w, allocations / w
-- ARGV[1..]     members, once per allocation
-- Returns how many were undone, as a string
-- Writes  -1 per allocation of a member that is still there, or -1/w.  Cost  O(k log m), k given, m in the set

local set = KEYS[1]
local undone = 0
for i = 1, #ARGV do
  local member = ARGV[i]
  local score = tonumber(redis.call('ZSCORE', set, member))
  -- A member that has left takes its count along; ZINCRBY would bring it back.
  if score then
    local weight = weight_of(member)
    if weight == 1 then
      redis.call('ZINCRBY', set, -1, member)
    else
      local count = math.floor(score * weight + 0.5)
      if math.abs(count) <= 2 ^ 50 then
        redis.call('ZADD', set, (count - 1) / weight, member)
      end
    end
    undone = undone + 1
  end
end
return tostring(undone)
